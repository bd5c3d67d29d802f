// make_program(): a model's forward function at given sizes, through the passes, matched to the device and planned;
// from the plan cache when it has been made before by the same code for the same model. Plain functions without state;
// the thread that calls owns the result, and is the only one at the plan cache.
#pragma once

#include "compile/plan_cache.h"
#include "models/model.h"

namespace reprise::engine {

// What the program depends on.
Result<PlanKey> program_key(const models::ModelSpec& spec, const models::ModelConfig& config,
                            const models::TraceOptions& trace, const PipelineOptions& pipeline,
                            const Platform& platform);

// Options that show graphs between passes need the passes to run, so nothing is read from the cache then.
Result<Program> make_program(const models::ModelSpec& spec, const models::ModelConfig& config,
                             const models::TraceOptions& trace, const PipelineOptions& pipeline,
                             const Platform& platform, PlanCache& cache);

}  // namespace reprise::engine
