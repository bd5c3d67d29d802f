// Runs of decode steps: what is submitted behind a step with the same rows, before the host waits for its tokens.
#include <algorithm>

#include "sched/scheduler.h"

namespace reprise::sched {

// How many steps one run has at most. Where batches overlap, the last step of the run before is in flight as well.
int64_t Scheduler::most_decode_steps() const {
  return executor_.overlaps() && !speculation_ ? executor_.max_in_flight() - 1 : 1;
}

bool Scheduler::somebody_waits() const { return !admission_.waiting().empty() || mailbox_.waiting(); }

// Whether the last step that was submitted may be followed by one that is not formed anew.
RunStop Scheduler::stop_of_run() const {
  const Submitted& last = flights_.back();
  if (last.batch.prefill_tokens > 0) return RunStop::Prompt;
  // A prompt that found no room in this step gets some in the next one.
  for (const LivePtr& r : running_)
    if (r->sequence.uncached() > 0) return RunStop::Prompt;
  switch (stop_of_tokens(last)) {
    case OverlapStop::HostDraw: return RunStop::HostDraw;
    case OverlapStop::Grammar: return RunStop::Grammar;
    case OverlapStop::Penalties: return RunStop::Penalties;
    default: return RunStop::None;
  }
}

// One step more, of the rows of the last one but for those that get their last token there.
RunStop Scheduler::submit_behind() {
  if (somebody_waits()) return RunStop::Waiting;
  const auto begin = Clock::now();
  Batch batch;
  for (LiveRequest* r : flights_.back().batch.owners) {
    if (r->result.finish != FinishReason::None || !r->goes_on()) continue;
    if (!pages_.hold(*r, r->sequence.size() + 1)) return RunStop::Pages;
    batch.items.push_back({&r->sequence, 1, 1});
    batch.owners.push_back(r);
    batch.answers.push_back(1);
    ++batch.decode_tokens;
  }
  if (batch.items.empty()) return RunStop::Ended;
  const std::vector<LiveRequest*> owners = batch.owners;
  for (LiveRequest* r : owners) r->sequence.append_pending();
  if (submit(std::move(batch), begin)) return RunStop::None;
  // Where the device is lost, the requests have gone with it.
  if (!flights_.empty())
    for (LiveRequest* r : owners)
      if (r->sequence.pending()) r->sequence.drop_pending();
  return RunStop::Failed;
}

// Behind a step that was just submitted. Nothing is done for them on the host until all are in the executor's queue.
void Scheduler::submit_run() {
  const auto most = static_cast<uint64_t>(most_decode_steps());
  if (most <= 1 || flights_.empty() || flights_.back().batch.decode_tokens == 0) return;
  RunStop stop = RunStop::None;
  uint64_t steps = 1;
  while (stop == RunStop::None && steps < most) {
    stop = stop_of_run();
    if (stop == RunStop::None) stop = submit_behind();
    steps += stop == RunStop::None;
  }
  std::lock_guard lock(stats_mutex_);
  if (steps > 1) {
    ++stats_.decode_runs;
    stats_.decode_run_steps += steps;
  }
  if (stop != RunStop::None) ++stats_.run_stops[static_cast<size_t>(stop)];
}

}  // namespace reprise::sched
