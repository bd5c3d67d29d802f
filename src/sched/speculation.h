// Speculation: gives the decoding rows of a batch drafts to verify, and counts what became of them.
//
// It asks the drafter what may come next, cuts that to what the request, its grammar, its pages and the step allow, and
// lets the rule say how many of all drafts the step takes. A draft never takes a row or a token of a prompt from
// another request, never evicts a cached page and never preempts. The scheduler owns it and alone touches it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/executor.h"
#include "sched/batch.h"
#include "sched/observer.h"
#include "spec/draft_rule.h"
#include "spec/options.h"

namespace reprise::sched {

class Speculation {
 public:
  // The executor outlives it. `teaches`: it hears of what came true.
  Speculation(engine::Executor& executor, const spec::SpecOptions& options, std::unique_ptr<spec::Drafter> drafter,
              bool teaches);

  // `spare_pages` may be taken from the pool.
  void add_drafts(Batch& batch, const BatchLimits& limits, int64_t spare_pages);
  // `now` is in flight: whether the step behind it would have drafts as far as is known, if it were formed when that
  // one is done. None: it would; else why not, which is counted once it is formed without (went_without).
  SpecOff look_ahead(const Batch& now, const BatchLimits& limits);
  void went_without(SpecOff why) { ++stats_.off[static_cast<size_t>(why)]; }
  // A step has verified the request's drafts. Then, in turn: that in this place came true. In the end: so many were
  // judged, of which the first `accepted` came true.
  void verified(LiveRequest& r);
  void came_true(LiveRequest& r, size_t place);
  void judged(const LiveRequest& r, int64_t judged, int64_t accepted) { drafter_->judged(r.id, judged, accepted); }
  void end(LiveRequest& r);
  void flush() { drafter_->flush(); }

  const SpeculationStats& stats() const { return stats_; }

 private:
  int64_t most_drafts(LiveRequest& r, int64_t ahead, SpecOff& why) const;
  bool keep_allowed(LiveRequest& r, spec::Proposal& proposal, SpecOff& why) const;
  int64_t take_pages(LiveRequest& r, int64_t drafts, int64_t& spare_pages) const;
  SpecOff list_wishes(const Batch& batch, const BatchLimits& limits, int64_t most_rows, int64_t ahead = 0);
  SpecOff propose(const Batch& batch);
  int64_t most_rows(const BatchLimits& limits) const;

  engine::Executor& executor_;
  spec::SpecOptions options_;
  std::unique_ptr<spec::Drafter> drafter_;
  bool teaches_;
  spec::DraftRule rule_;
  spec::RowTimes times_;
  int64_t sequences_ = 0;   // of the step that times_ is asked about
  double drafting_us_ = 0;  // a moving average
  SpeculationStats stats_;
  // State of one step, kept to avoid allocating: who asks, for which item, and what it gets.
  std::vector<size_t> items_;
  std::vector<spec::Wish> wishes_;
  std::vector<spec::Proposal> proposals_;
  std::vector<int64_t> priorities_;
};

}  // namespace reprise::sched
