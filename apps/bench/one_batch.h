// One batch of random prompts through an engine, timed step by step: what `reprise bench one-batch` measures. Time is
// the device's own where that is modelled (Device::clock_us), else real. A plain function; it drives the engine from
// the calling thread.
#pragma once

#include <cstdint>

#include "base/progress.h"
#include "engine/engine.h"

namespace reprise::apps {

struct OneBatch {
  int64_t input_len = 512;
  int64_t output_len = 64;
  int64_t repeat = 3;
  uint64_t seed = 0;
  double temperature = 0;  // of decode steps; above 0 their tokens are drawn by the device
};

struct OneBatchRow {
  int64_t batch_size = 0;
  double prefill_s = 0, decode_s = 0;  // medians of the repeats; of all decode steps together
  double step_ms_p50 = 0, step_ms_p99 = 0;
  double host_us = 0;       // of a decode step, outside the device; always this machine's time
  double gap_us = 0;        // median of decode steps: the device had nothing to do before the step
  double rank_wait_us = 0;  // of a decode step: the front waited in collectives for other ranks; mean
};

// Advances `bar` by one per repeat.
Result<OneBatchRow> measure_one_batch(engine::Engine& engine, const OneBatch& plan, int64_t batch_size, Progress& bar);

}  // namespace reprise::apps
