#include "service/supervisor.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

#include "base/elapsed.h"
#include "base/log.h"
#include "service/thread_dump.h"
#include "settings/setting.h"

namespace reprise::service {

sigset_t signals_of(const ServeOptions& o) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (o.reloads()) sigaddset(&set, SIGHUP);
  return set;
}

Status lost_rank(const std::vector<std::shared_ptr<ranks::Member>>& fronts) {
  for (const auto& front : fronts)
    if (front->aborted()) return front->lost();
  return Status::ok();
}

void Supervisor::start() {
  say_loading();  // before a small model is there
  thread_ = std::thread([this] { watch(); });
}

void Supervisor::stop() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

void Supervisor::keep(sched::Replicas* scheduler, std::vector<pthread_t> threads) {
  std::lock_guard lock(mutex_);
  scheduler_ = scheduler;
  reported_.resize(threads.size());
  threads_ = std::move(threads);
}

void Supervisor::say_ready(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (leaving_since_) return;
  status_ = "serving " + name;
  ready_ = true;
  notifier_.say("READY=1\nSTATUS=" + status_);
}

void Supervisor::let_go() {
  std::lock_guard lock(mutex_);
  scheduler_ = nullptr;
  let_go_ = true;
}

void Supervisor::watch() {
  const sigset_t set = signals_of(options_);
  while (!ended_) {
    const timespec tick{0, 100'000'000};
    const int signal = sigtimedwait(&set, nullptr, &tick);
    if (signal == SIGHUP) {
      reload();
    } else if (signal > 0) {
      if (asked_to_end() || leaving_since_) {
        log::warning("a second signal: ending at once");
        std::_Exit(kSecondSignal);
      }
      begin_to_end();
    }
    if (leaving_since_ && !asked_to_end() && seconds_since(*leaving_since_) >= delay()) drain();
    if (!ready_ && !leaving_since_) say_loading();
    std::lock_guard lock(mutex_);
    if (sched::Replicas* s = scheduler_) {
      look_after_ranks(*s);
      // The server's state of a lost replica is worth nothing.
      if (!s->lost().is_ok()) s->stop();
      end_when_drained(*s);
      for (size_t r = 0; r < s->size(); ++r) look_for_hangs(s->at(r), r);
    }
    say_alive();  // a step that hangs has ended the process
  }
}

void Supervisor::say_loading() {
  constexpr double kBetween = 5;
  if (said_ && seconds_since(*said_) < kBetween) return;
  said_ = Clock::now();
  notifier_.say(
      fmt::format("STATUS=loading the model since {:.0f} s\nEXTEND_TIMEOUT_USEC=60000000", seconds_since(begin_)));
}

void Supervisor::say_alive() {
  const auto wanted = notifier_.watchdog();
  if (!wanted || (alive_ && Clock::now() - *alive_ < *wanted / 2)) return;
  alive_ = Clock::now();
  notifier_.say("WATCHDOG=1");
}

void Supervisor::reload() {
  if (ready_) notifier_.say_reloading();
  reload_.run();
  if (ready_) notifier_.say("READY=1\nSTATUS=" + status_);
}

double Supervisor::delay() const {
  constexpr double kMoment = 0.3;
  return options_.http.inherited ? std::max(options_.drain_delay_s, kMoment) : options_.drain_delay_s;
}

void Supervisor::begin_to_end() {
  {
    std::lock_guard lock(mutex_);
    leaving_since_ = Clock::now();
    status_ = "ending: what runs may finish";
    notifier_.say("STOPPING=1\nSTATUS=" + status_);
    if (!scheduler_ && !let_go_) std::_Exit(0);  // nothing is served yet, so nothing can be lost
  }
  api_.leave();
  if (options_.http.inherited) http_.leave();
  if (delay() > 0) log::info("requests are taken for {:g} s more; a second signal ends at once", delay());
}

void Supervisor::drain() {
  drain_since_ = Clock::now().time_since_epoch().count();
  api_.drain();
  std::lock_guard lock(mutex_);
  sched::Replicas* s = scheduler_;
  if (let_go_ || !s) return;
  s->close();
  log::info("shutting down: {} requests may finish within {:g} s; a second signal ends at once",
            s->stats().running + s->stats().waiting, options_.shutdown_timeout_s);
}

void Supervisor::look_after_ranks(sched::Replicas& s) {
  const Status lost = lost_rank(options_.model.fronts);
  if (lost.is_ok() || !s.idle()) return;
  api_.fail(lost.message());
  s.stop();
}

void Supervisor::end_when_drained(sched::Replicas& s) {
  if (!asked_to_end() || ended_) return;
  const auto since = Clock::time_point(Clock::duration(drain_since_.load()));
  const double waited = seconds_since(since);
  if (!s.idle() && waited > options_.shutdown_timeout_s && !cut_) {
    cut_ = true;
    log::warning("the shutdown time is over: {} requests are cancelled", s.stats().running + s.stats().waiting);
    s.cancel_all();
  }
  if (s.idle()) s.stop();
}

void Supervisor::look_for_hangs(sched::Scheduler& s, size_t replica) {
  const sched::SchedulerStats st = s.stats();
  if (!st.step_since) {
    reported_[replica] = {};
    return;
  }
  const double running = seconds_since(*st.step_since);
  const bool hard = options_.watchdog_timeout_s > 0 && running >= options_.watchdog_timeout_s;
  const bool soft = options_.soft_watchdog_timeout_s > 0 && running >= options_.soft_watchdog_timeout_s &&
                    reported_[replica] != *st.step_since;
  if (!hard && !soft) return;
  reported_[replica] = *st.step_since;
  const std::string what = settings::as_flags(fmt::format(
      "{}step {} has been running for {:.3g} s ({} {:g}): {} requests run, {} wait, {} of {} KV pages are free",
      threads_.size() > 1 ? fmt::format("replica {}: ", replica) : "", st.steps + 1, running,
      hard ? "`watchdog_timeout`" : "`soft_watchdog_timeout`",
      hard ? options_.watchdog_timeout_s : options_.soft_watchdog_timeout_s, st.running, st.waiting, st.free_pages,
      st.pages));
  log::error("{}\n{}", what, thread_states());
  if (hard) end_hanging(what, replica);
}

void Supervisor::end_hanging(const std::string& what, size_t replica) {
  api_.fail(what);
  notifier_.say("STOPPING=1\nSTATUS=" + what);
  dump_stack(threads_[replica]);
  log::error("this server has to be started again: a step hangs");
  std::_Exit(1);
}

}  // namespace reprise::service
