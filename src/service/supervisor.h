// Supervisor: waits for signals, and looks after the schedulers of a server meanwhile: ranks that are lost, steps that
// hang, the end of a drain. It tells the process's own supervisor how far the server is (service/notifier.h). It has a
// thread of its own; what it is given outlives it.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sched/replicas.h"
#include "server/api.h"
#include "server/http_server.h"
#include "service/notifier.h"
#include "service/reload.h"
#include "service/serve_process.h"

namespace reprise::service {

// The signals that it waits for, which all threads of the process block.
sigset_t signals_of(const ServeOptions& options);

// Ok while all ranks of all replicas are there.
Status lost_rank(const std::vector<std::shared_ptr<ranks::Member>>& fronts);

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;
  Supervisor(const ServeOptions& options, Reload& reload, const Notifier& notifier, server::Api& api,
             server::HttpServer& http)
      : options_(options), reload_(reload), notifier_(notifier), api_(api), http_(http) {}
  ~Supervisor() { stop(); }
  void start();
  void stop();
  // From now on the end is a drain. A signal that came before ends it here. `threads`: those that run the schedulers.
  void keep(sched::Replicas* scheduler, std::vector<pthread_t> threads);
  // The model is served under that name.
  void say_ready(const std::string& name);
  void say_lost(const Status& why) { notifier_.say("STOPPING=1\nSTATUS=" + why.message()); }
  // The scheduler has ended and goes. Signals are still waited for: the second ends the process if something hangs.
  void let_go();
  bool asked_to_end() const { return drain_since_.load() != 0; }

 private:
  void watch();

  // A supervisor that gives a start so much time gives it more while the model is being read.
  void say_loading();
  // Twice as often as it is asked for.
  void say_alive();

  void reload();

  // A socket that a supervisor keeps has its next connections wait for the next server. What has connected already
  // has a moment to say what it wants.
  double delay() const;
  void begin_to_end();
  void drain();

  // A step that runs tells the scheduler itself.
  void look_after_ranks(sched::Replicas& s);

  void end_when_drained(sched::Replicas& s);

  void look_for_hangs(sched::Scheduler& s, size_t replica);

  // As SGLang's watchdog: a step cannot be taken back, so the process ends, and a supervisor starts another one.
  void end_hanging(const std::string& what, size_t replica);

  static constexpr int kSecondSignal = 130;
  const ServeOptions& options_;
  Reload& reload_;
  const Notifier& notifier_;
  server::Api& api_;
  server::HttpServer& http_;
  std::thread thread_;
  const Clock::time_point begin_ = Clock::now();
  std::optional<Clock::time_point> said_, alive_;  // that it is loading, that it is alive
  std::string status_;                             // for the supervisor; written before ready_, and by the thread
  std::atomic<bool> ready_{false};
  std::optional<Clock::time_point> leaving_since_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // of the next three, and of leaving_since_ where it is written
  sched::Replicas* scheduler_ = nullptr;
  std::vector<pthread_t> threads_;
  bool let_go_ = false;
  std::atomic<Clock::rep> drain_since_{0};
  bool cut_ = false;
  std::vector<Clock::time_point> reported_;  // by replica: the step that was told of
};

}  // namespace reprise::service
