#include "sched/observer.h"

#include <algorithm>
#include <cmath>

namespace reprise::sched {

std::string_view overlap_stop_name(OverlapStop why) {
  constexpr std::string_view kNames[] = {"", "host_draw", "grammar", "penalties", "preemption", "drafts"};
  static_assert(std::size(kNames) == static_cast<size_t>(OverlapStop::kCount));
  return kNames[static_cast<size_t>(why)];
}

std::string_view run_stop_name(RunStop why) {
  constexpr std::string_view kNames[] = {"",          "waiting", "prompt", "host_draw", "grammar",
                                         "penalties", "pages",   "ended",  "failed"};
  static_assert(std::size(kNames) == static_cast<size_t>(RunStop::kCount));
  return kNames[static_cast<size_t>(why)];
}

int64_t retry_after_s(const SchedulerStats& s) {
  if (s.tokens_per_s <= 0) return 1;
  const double wait = std::ceil(static_cast<double>(s.waiting_tokens) / s.tokens_per_s);
  return static_cast<int64_t>(std::clamp(wait, 1.0, static_cast<double>(kLongestRetry)));
}

}  // namespace reprise::sched
