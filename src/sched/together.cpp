#include "sched/together.h"

#include <algorithm>

namespace reprise::sched {

bool Together::step() {
  bool worked = false;
  for (Scheduler* s : schedulers_) worked |= s->propose();
  for (Scheduler* s : schedulers_) s->conclude();
  return worked;
}

void Together::run() {
  while (true) {
    const uint64_t heard = bell_.rings();
    if (std::any_of(schedulers_.begin(), schedulers_.end(), [](const Scheduler* s) { return s->stopped(); })) return;
    if (!step()) bell_.wait(heard);
  }
}

}  // namespace reprise::sched
