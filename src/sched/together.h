// Together: drives the schedulers of one world's parts on one thread, a round at a time.
//
// In a round every scheduler submits its batch, or nothing, and then all take what the common step gave
// (engine/shared_step.h). Requests come to the schedulers from any thread, which ring the bell that run() sleeps at.
#pragma once

#include <vector>

#include "sched/scheduler.h"

namespace reprise::sched {

class Together {
 public:
  // The schedulers outlive it; `bell` is that of their options.
  Together(std::vector<Scheduler*> schedulers, Bell& bell) : schedulers_(std::move(schedulers)), bell_(bell) {}

  // A round. False when no scheduler had anything to do.
  bool step();
  // Rounds until one of the schedulers is stopped, sleeping while there is nothing to do.
  void run();

 private:
  std::vector<Scheduler*> schedulers_;
  Bell& bell_;
};

}  // namespace reprise::sched
