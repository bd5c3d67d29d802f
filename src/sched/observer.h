// Observer: sees what the scheduler does, for metrics and traces. Called on the scheduler's thread.
#pragma once

#include <cstdint>

#include "sched/request.h"

namespace reprise::sched {

struct StepRecord {
  Clock::time_point begin, end;
  int64_t decode_tokens = 0, prefill_tokens = 0;
  int64_t sequences = 0;
  double forming_s = 0;  // of it, before the engine was called
};

// Gauges and totals since the start.
struct SchedulerStats {
  int64_t running = 0, waiting = 0, waiting_tokens = 0;
  int64_t pages = 0, free_pages = 0, cached_pages = 0, evictable_pages = 0;
  uint64_t steps = 0, requests = 0, preemptions = 0, evicted_pages = 0, failed_steps = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;  // cached: of the prompt tokens
  double busy_s = 0;                                                    // in steps
  std::optional<Clock::time_point> step_since;                          // a step is running since then
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void stepped(const StepRecord& step) {}
  virtual void finished(const Request& request, const RequestResult& result) {}
};

}  // namespace reprise::sched
