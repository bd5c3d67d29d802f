// Replica: an engine with its scheduler on a thread of its own, beside the server's first, which is on the caller's.
//
// The thread keeps to its share of the processors, opens the engine, runs the scheduler, and ends both. Whoever opened
// it owns it, and may call everything but the engine's steps.
#pragma once

#include <pthread.h>

#include <future>
#include <memory>
#include <thread>

#include "common/model_flags.h"
#include "ranks/processors.h"
#include "sched/scheduler.h"

namespace reprise::apps {

// The calling thread keeps to the share of replica flags.replica; where processors are too few for that, the replica
// has one thread unless the flags say otherwise.
void take_share(ModelFlags& flags, const ranks::Processors& processors);

class Replica {
 public:
  // Replica flags.replica of flags.dp_size. Returns at once.
  Replica(ModelFlags flags, const ranks::Processors& processors);
  ~Replica();  // stops its scheduler
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Once: waits for the engine.
  Status opened() { return opened_.get_future().get(); }
  // What follows, after opened() was ok.
  engine::Engine& engine() { return *engine_; }
  sched::Scheduler& schedule(const sched::SchedulerOptions& options, sched::Observer& observer);
  void run();  // from now on its thread runs the scheduler
  pthread_t thread() { return thread_.native_handle(); }

 private:
  void live(ModelFlags flags, ranks::Processors processors);

  std::promise<Status> opened_;
  std::promise<bool> go_;  // whether there is something to run
  std::promise<void> end_;
  bool runs_ = false;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::thread thread_;
};

}  // namespace reprise::apps
