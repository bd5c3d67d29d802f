// Processors: those that this process may use, as they were when it looked, and their division into shares. A plain
// value; any thread.
#pragma once

#include <sched.h>

namespace reprise::ranks {

class Processors {
 public:
  // Those of the calling thread.
  static Processors allowed();

  int count() const { return CPU_COUNT(&set_); }
  // The calling thread, and those that it starts from now on, keep to share `index` of `of`. False, and nothing is
  // changed, where there are fewer processors than shares.
  bool take(int index, int of) const;

 private:
  cpu_set_t set_;
};

}  // namespace reprise::ranks
