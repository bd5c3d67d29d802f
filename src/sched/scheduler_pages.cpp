// Who is admitted and who is preempted: what the objects Admission and PageBudget decide is done here.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace reprise::sched {

void Scheduler::admit(bool may_preempt) {
  auto& waiting = admission_.waiting();
  if (waiting.empty()) return;
  const auto full = [&] { return static_cast<int64_t>(running_.size()) >= options_.max_running; };
  if (full() && !may_preempt) return;
  admission_.count();
  if (full() && !admission_.may_preempt()) return;
  admission_.rank();
  while (!waiting.empty() && (may_preempt || !full())) {
    const auto next = admission_.next();
    if (next == waiting.end()) break;
    if (full() || !admit_one(**next)) {
      // In order: who must wait for pages holds back those behind it, so none can starve.
      if (may_preempt && make_room(**next)) continue;
      break;
    }
    LivePtr r = admission_.take(next);
    const auto by_arrival = [](const LivePtr& a, const LivePtr& b) { return a->id < b->id; };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), r, by_arrival), std::move(r));
  }
  forget_finished();
}

// Preempts what it takes to admit the request, or no one when that would not do.
bool Scheduler::make_room(const LiveRequest& r) {
  const auto victims = admission_.victims_for(r, pages_.missing(r, admission_.pages_to_keep()));
  if (!victims) return false;
  for (LiveRequest* victim : *victims) preempt(*victim);
  return true;
}

// False: there are not enough pages now.
bool Scheduler::admit_one(LiveRequest& r) {
  const Status given = pages_.admit(r, admission_.pages_to_keep());
  if (given.code() == Code::Busy) return false;
  const int64_t cached = r.sequence.cached();
  if (r.result.admitted) {
    r.request.sink->resumed();
  } else {
    r.result.admitted = Clock::now();
    r.result.cached_tokens = cached;
    r.request.sink->admitted(cached);
    mailbox_.admitted(r);
    std::lock_guard lock(stats_mutex_);
    stats_.prompt_tokens += static_cast<uint64_t>(r.result.prompt_tokens);
    stats_.cached_tokens += static_cast<uint64_t>(cached);
  }
  if (!given.is_ok()) finish(r, FinishReason::Cancelled, given);
  return true;
}

// A request that decodes gets the page that its next token begins, if it begins one. False: a request was preempted for
// it, or must be.
bool Scheduler::provide_pages(bool may_preempt) {
  bool all = true;
  for (size_t i = 0; i < running_.size(); ++i) {
    LiveRequest& r = *running_[i];
    if (pages_.hold(r, r.sequence.size())) continue;
    if (!may_preempt) return false;
    CHECK(running_.size() > 1, "one request of {} tokens does not fit into {} pages", r.sequence.size(),
          executor_.kv_pool().total_pages());
    preempt(admission_.least_important());  // perhaps this one
    all = false;
    i = static_cast<size_t>(-1);  // the list has changed
  }
  return all;
}

// Keeps the states behind borders of pages of a finished step's requests.
void Scheduler::keep_states(const Submitted& step) {
  for (size_t i = 0; i < step.batch.items.size(); ++i)
    if (LiveRequest& r = *step.batch.owners[i]; r.result.finish == FinishReason::None)
      pages_.keep_state_at(r, step.ends[i]);
}

int64_t Scheduler::flush_cache() {
  complete_all();
  if (speculation_) speculation_->flush();
  return pages_.flush();
}

}  // namespace reprise::sched
