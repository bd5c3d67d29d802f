// Replicas next to a server's first, which is on the caller's thread: each an engine with its scheduler on a thread of
// its own.
//
// The thread keeps to its share of the processors, opens the engine, runs the scheduler, and ends both. The server owns
// them and calls everything here from one thread.
#pragma once

#include <pthread.h>

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "ranks/processors.h"
#include "sched/scheduler.h"
#include "service/run_settings.h"

namespace reprise::service {

// The calling thread keeps to the share of replica settings.replica; where processors are too few for that, the replica
// has one thread unless the settings say otherwise.
void take_share(RunSettings& settings, const ranks::Processors& processors);

class Replica {
 public:
  // Replica settings.replica of settings.dp_size. Returns at once.
  Replica(RunSettings settings, const ranks::Processors& processors);
  ~Replica() { end(); }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Once: waits for the engine. What follows is for one that is open.
  Status opened() { return opened_.get_future().get(); }
  engine::Engine& engine() { return *engine_; }
  // The observer stays until end().
  sched::Scheduler& schedule(const sched::SchedulerOptions& options, std::unique_ptr<sched::Observer> observer);
  pthread_t thread() { return thread_.native_handle(); }
  // From now on its thread runs the scheduler. When that is stopped, `lost` is asked whether another replica is lost,
  // and requests that are left end with what it says.
  void run(std::function<Status()> lost);
  void wait_stopped();  // waits until the scheduler, which was stopped, does not run; clients may still cancel
  void end();           // takes both apart

 private:
  void live(RunSettings settings, ranks::Processors processors);

  std::promise<Status> opened_;
  std::promise<bool> go_;  // whether there is something to run
  std::promise<void> stopped_, end_;
  std::function<Status()> lost_;
  bool runs_ = false, waited_ = false;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<sched::Observer> observer_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::thread thread_;
};

using Replicas = std::vector<std::unique_ptr<Replica>>;

// Replicas 1 and up of settings.dp_size, with caches of so many tokens. The error names the replica.
Result<Replicas> open_other_replicas(const RunSettings& settings, int64_t tokens, const ranks::Processors& processors);

}  // namespace reprise::service
