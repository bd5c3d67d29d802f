// Admission: the requests that wait, in which order they are admitted, and which of those that run give way to them. It
// decides and changes nothing but its own list: the scheduler gives the pages and does the preempting. It reads the
// running requests, which are the scheduler's. The scheduler's thread.
//
// The next request is of the highest priority; among these the call with the fewest sequences running goes first, then
// the policy's order, then that of arrival. A request whose prompt begins like one that is being read waits for that
// one.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "sched/live_request.h"
#include "sched/page_budget.h"
#include "sched/scheduler_options.h"

namespace reprise::sched {

class Admission {
 public:
  using Place = std::vector<LivePtr>::iterator;

  // All of them outlive it.
  Admission(const SchedulerOptions& options, const PageBudget& pages, const std::vector<LivePtr>& running)
      : options_(options), pages_(pages), running_(running) {}

  // A new request, or one that was preempted.
  void add(LivePtr r);
  std::vector<LivePtr>& waiting() { return waiting_; }  // in the order of priority, then arrival
  const std::vector<LivePtr>& waiting() const { return waiting_; }

  // Counts the sequences that each call has running; before what follows, and when that has changed.
  void count();
  // Whether a running request may be preempted for a waiting one at all.
  bool may_preempt() const { return options_.preemption_threshold || running_by_call_.size() < running_.size(); }
  // The order of the waiting requests by the policy, for the admissions that follow.
  void rank();
  // end() of waiting(): none can be admitted now.
  Place next();
  // The request leaves the list, and counts among those that run.
  LivePtr take(Place place);

  // One page for everybody who may soon begin a new one; without them the next steps would preempt whom we admit.
  int64_t pages_to_keep() const;
  // Who is preempted to give the request `pages` pages and a place in the step; nullopt: that would not do, or nothing
  // is missing. They count as running no longer.
  std::optional<std::vector<LiveRequest*>> victims_for(const LiveRequest& r, int64_t pages);
  // Whether a waiting request would have a running one preempted.
  bool would_preempt();
  // Who gives way when a running request needs a page: the least important, then of the call that runs the most, then
  // the latest arrival. There is one.
  LiveRequest& least_important();

 private:
  bool better_soon(const LiveRequest& r, int64_t known) const;
  void rank_by_tree();
  int64_t running_of(const LiveRequest& r) const;
  LiveRequest* victim_for(const LiveRequest& r, const std::vector<LiveRequest*>& chosen) const;

  const SchedulerOptions& options_;
  const PageBudget& pages_;
  const std::vector<LivePtr>& running_;
  std::vector<LivePtr> waiting_;
  std::unordered_map<uint64_t, int64_t> running_by_call_;
  uint64_t draws_ = 0;  // of Policy::Random
};

}  // namespace reprise::sched
