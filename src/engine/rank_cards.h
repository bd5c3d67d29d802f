// What the ranks of a world show each other at the start, so that ranks that would not fit are told apart in words
// before the first step. Plain functions over a seat; all ranks call the same ones in the same order.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "engine/engine_options.h"
#include "engine/learned.h"
#include "engine/step_runner.h"

namespace reprise::engine {

// Build, model, instruction set and settings are the same everywhere.
Status agree_on_model(ranks::Member& member, const EngineOptions& options, const checkpoint::ModelConfigFields& config,
                      const checkpoint::Checkpoint* checkpoint, const DeviceInfo& device);

// The smallest of all ranks' numbers.
Result<int64_t> least_of_all(ranks::Member& member, int64_t mine);

// The sizes that the phases replay.
std::string sizes_text(const Runners& runners);

}  // namespace reprise::engine
