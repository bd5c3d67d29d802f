// PageBudget: the KV pages and kept states of one scheduler: what the prefix cache gives to a request that is admitted,
// the pages that a request grows into, and what goes back when it ends or is preempted. It owns the prefix cache; pages
// are the executor's, which outlives it. The scheduler's thread.
#pragma once

#include <utility>
#include <vector>

#include "engine/executor.h"
#include "kv/radix_cache.h"
#include "sched/live_request.h"
#include "sched/observer.h"

namespace reprise::sched {

class PageBudget {
 public:
  PageBudget(engine::Executor& executor, bool prefix_cache)
      : executor_(executor), prefix_cache_(prefix_cache), cache_(executor.kv_pool(), executor.kept_states()) {}

  const kv::RadixCache& cache() const { return cache_; }
  bool has_prefix_cache() const { return prefix_cache_; }
  bool keeps_states() const { return prefix_cache_ && executor_.kept_states() != nullptr; }
  // Tokens of the request that the prefix cache has.
  int64_t known_tokens(const LiveRequest& r) const;
  // The requests by a walk of the prefix tree that visits the branches with most of them first; indices.
  std::vector<size_t> depth_first_order(const std::vector<LivePtr>& requests) const;

  // `keep`: pages that stay free for the requests that run.
  //
  // How many pages are missing to admit the request now.
  int64_t missing(const LiveRequest& r, int64_t keep);
  // Gives the pages of its tokens to a request that is admitted, those of the prefix cache among them. Busy: there are
  // not enough pages now, and nothing has changed. Any other error: the request has its pages, but the device could not
  // copy the one that it goes on writing; the request can only end.
  Status admit(LiveRequest& r, int64_t keep);
  // A page for a request that begins one with its first `tokens` tokens; of the prefix cache where none is free. False:
  // there is none.
  bool hold(LiveRequest& r, int64_t tokens);
  // Pages that drafts may take.
  int64_t spare(int64_t keep) const;
  // All that it has; tokens that were checked go into the prefix cache.
  void give_back(LiveRequest& r);

  // Others may begin with the same prompt while this one is still answering.
  void share_prompt(LiveRequest& r);
  // A step of the request is done, with `end` of its tokens cached: keeps the state behind a border of pages, before
  // anything else is done with it.
  void keep_state_at(LiveRequest& r, int64_t end);

  // Pages that steps in flight copy from, since the last call: they stay as they are until the step is done.
  std::vector<kv::RadixCache::Lease> take_copied() { return std::exchange(copied_, {}); }
  // Empties the prefix cache; the pages it held.
  int64_t flush();

  void publish(SchedulerStats& stats) const;
  // Pages are owned once, leases and sequences agree. `resting`: no step is in flight.
  Status check_integrity(const std::vector<LivePtr>& running, const std::vector<LivePtr>& waiting, bool resting) const;

 private:
  void keep_state(LiveRequest& r, int64_t tokens, bool until_next);
  void cache_states(LiveRequest& r, int64_t checked);

  engine::Executor& executor_;
  const bool prefix_cache_;
  kv::RadixCache cache_;
  std::vector<kv::RadixCache::Lease> copied_;  // since the last step was submitted
};

}  // namespace reprise::sched
