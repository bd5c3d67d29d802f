#include "ranks/processors.h"

namespace reprise::ranks {

Processors Processors::allowed() {
  Processors out;
  CPU_ZERO(&out.set_);
  if (::sched_getaffinity(0, sizeof out.set_, &out.set_) != 0) CPU_ZERO(&out.set_);
  return out;
}

bool Processors::take(int index, int of) const {
  const int all = count();
  if (all < of) return false;
  const int first = all * index / of, end = all * (index + 1) / of;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  for (int cpu = 0, at = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set_)) {
      if (at >= first && at < end) CPU_SET(cpu, &mine);
      ++at;
    }
  return ::sched_setaffinity(0, sizeof mine, &mine) == 0;
}

}  // namespace reprise::ranks
