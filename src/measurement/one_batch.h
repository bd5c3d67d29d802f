// One batch of random prompts through an engine, timed step by step: what `reprise bench one-batch` measures. Time is
// the device's own where that is modelled (Device::clock_us), else real. A plain function; it drives the engine from
// the calling thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "engine/engine.h"
#include "spec/options.h"

namespace reprise::measurement {

struct OneBatch {
  int64_t input_len = 512;
  int64_t output_len = 64;
  int64_t repeat = 3;
  uint64_t seed = 0;
  double temperature = 0;              // of decode steps; above 0 their tokens are drawn by the device
  spec::SpecOptions speculation = {};  // drafts (bench/drafted_batch.h)
  // Drafts are the answer of a plain run, each token of it right with this chance (bench/known_text.h).
  std::optional<double> acceptance = {};
};

struct OneBatchRow {
  int64_t batch_size = 0;
  double prefill_s = 0, decode_s = 0;  // medians of the repeats; of all decode steps together
  double step_ms_p50 = 0, step_ms_p99 = 0;
  double host_us = 0;       // of a decode step, outside the device; always this machine's time
  double gap_us = 0;        // median of decode steps: the device had nothing to do before the step
  double rank_wait_us = 0;  // of a decode step: the front waited in collectives for other ranks; mean
  // With drafts: decode steps (the median of the repeats), the tokens of a sequence in one of them, and the drafts of
  // all repeats.
  double decode_steps = 0, tokens_per_step = 1;
  int64_t draft_tokens = 0, accepted_tokens = 0;
  std::vector<int64_t> accepted_at = {};  // by place among the drafts of a step
  int64_t drafted_steps = 0;              // of a sequence, with drafts
  double plain_decode_s = 0;              // where OneBatch::acceptance is set: the same prompts without drafts
  bool same_answers = false;              // these were compared, and are equal
};

// Prompts of `input_len` tokens each, by the seed.
std::vector<std::vector<int32_t>> random_prompts(const engine::Engine& engine, int64_t count, int64_t input_len,
                                                 uint64_t seed);
// 0 for an empty list.
double quantile(std::vector<double> v, double q);

// Advances `bar` by one per repeat.
Result<OneBatchRow> measure_one_batch(engine::Engine& engine, const OneBatch& plan, int64_t batch_size, Progress& bar);

}  // namespace reprise::measurement
