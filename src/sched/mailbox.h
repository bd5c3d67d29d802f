// Mailbox: what other threads leave for a scheduler's thread: requests, cancellations and work. It is bounded by the
// requests that have not ended and by the tokens of those that wait: what does not fit is refused at once with Busy.
// It gives requests their numbers, knows whether anything is accepted still, and is where the scheduler's thread
// sleeps. The scheduler owns it; which thread may call what stands below.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "sched/live_request.h"
#include "sched/scheduler_options.h"

namespace reprise::sched {

struct Mail {
  RequestId id = 0;
  LivePtr request;             // a new one
  std::function<void()> what;  // or something to do
  bool cancel = false;         // or the end of `id`; of all when 0
};

class Mailbox {
 public:
  struct Counts {
    uint64_t accepted = 0;
    int64_t unfinished = 0, unread = 0;  // of these: those that have not ended, and those that take() has yet to give
    int64_t waiting_tokens = 0;          // of requests that were not admitted yet
  };

  // The options outlive it.
  explicit Mailbox(const SchedulerOptions& options) : options_(options) {}

  // Any thread. Whether a request of so many tokens in all would be accepted now: Busy, and why, or the lost device.
  Status check(int64_t tokens) const;
  // Any thread. As check(); the request gets its number.
  Result<RequestId> add(LivePtr request);
  void cancel(RequestId id);
  void post(std::function<void()> what);
  void close();  // nothing new is accepted from now on
  void stop();
  bool stopped() const;
  Status lost() const;
  Counts counts() const;

  // The scheduler's thread.
  std::vector<Mail> take();
  void wait();                          // for mail, or stop()
  bool waiting() const;                 // whether wait() would return at once
  void admitted(const LiveRequest& r);  // a new request waits no longer
  void ended(const LiveRequest& r);
  void lose(const Status& lost);  // closes and stops

 private:
  Status place_for(int64_t tokens) const;  // with the mutex
  void put(Mail mail);
  void wake();

  const SchedulerOptions& options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Mail> mail_;
  bool closed_ = false, stopped_ = false;
  Status lost_;
  RequestId last_id_ = 0;
  int64_t queued_ = 0;  // accepted and not admitted
  Counts counts_;
};

}  // namespace reprise::sched
