// Replicas: several schedulers that serve the same model, behind the face of one (data parallel).
//
// Each replica has an executor, KV pages and a prefix cache of its own, and a thread that drives its scheduler. A
// request goes to one of them when it comes, and stays there. The ids of replica d of n are d + 1, d + 1 + n, ..., so
// an id tells its replica. It owns nothing but what it remembers of prompts; the schedulers outlive it. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sched/scheduler.h"

namespace reprise::sched {

// SGLang's names. Ties, and RoundRobin, go around.
enum class Balance : uint8_t {
  Prefix,         // "auto": where the longest part of the prompt was before; the rest as TotalRequests
  RoundRobin,     // "round_robin"
  TotalRequests,  // "total_requests", "shortest_queue": fewest requests that run or wait
  TotalTokens,    // "total_tokens", "minimum_tokens": fewest tokens that are held or wait
};
Result<Balance> parse_balance(std::string_view name);
std::string_view balance_name(Balance balance);

// step_since is the earliest.
SchedulerStats added_up(const std::vector<SchedulerStats>& each);

class Replicas {
 public:
  explicit Replicas(std::vector<Scheduler*> schedulers, Balance balance = Balance::Prefix);

  size_t size() const { return schedulers_.size(); }
  Scheduler& at(size_t replica) const { return *schedulers_[replica]; }

  // As Scheduler's. A replica whose queue is full is passed over; Busy when all of them are.
  Status check(const Request& request) const { return schedulers_[0]->check(request); }
  Result<RequestId> add(Request request);
  void cancel(RequestId id);
  void cancel_all();
  void close();
  void stop();
  bool idle() const;
  Status lost() const;  // of the first that is
  SchedulerStats stats() const { return added_up(each()); }
  std::vector<SchedulerStats> each() const;
  // Empties all prefix caches; `done` gets the pages that they held, on the thread of the last scheduler.
  void flush_cache(std::function<void(int64_t pages)> done);

 private:
  using Mask = uint64_t;  // of replicas
  std::vector<uint64_t> blocks_of(const Request& request) const;
  size_t choose(const std::vector<SchedulerStats>& now, const std::vector<uint64_t>& blocks);
  size_t least(const std::vector<SchedulerStats>& now, int64_t (*load)(const SchedulerStats&));
  std::optional<size_t> holder(const std::vector<SchedulerStats>& now, const std::vector<uint64_t>& blocks) const;
  void remember(const std::vector<uint64_t>& blocks, size_t replica);

  std::vector<Scheduler*> schedulers_;
  Balance balance_;
  std::mutex mutex_;  // of what follows
  size_t next_ = 0;   // where a tie begins
  // Which replicas were sent a prompt that begins so, by the hash of whole pages. Caches may have given it up since,
  // which costs a prefill and no more. The oldest go first.
  std::unordered_map<uint64_t, Mask> blocks_;
  std::deque<uint64_t> order_;
};

}  // namespace reprise::sched
