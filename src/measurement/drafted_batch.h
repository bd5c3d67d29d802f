// One batch of random prompts through a scheduler that drafts, timed step by step: what `bench one-batch` measures
// where `speculative_algorithm` is set. A plain function; it drives the engine from the calling thread.
#pragma once

#include "measurement/one_batch.h"

namespace reprise::measurement {

// As measure_one_batch(), with the drafts of `plan.speculation`. With `plan.acceptance` each repeat is run without
// drafts first, and an answer with drafts that is another one is an error. Advances `bar` by one per repeat.
Result<OneBatchRow> measure_drafted_batch(engine::Engine& engine, const OneBatch& plan, int64_t batch_size,
                                          Progress& bar);

}  // namespace reprise::measurement
