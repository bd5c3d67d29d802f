// Dtypes where the device has no kernels for those that a model would have: another that it has all of them for, or an
// error that says what is possible. Pure functions but for the log.
#pragma once

#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "engine/graph_options.h"
#include "models/model.h"
#include "ops/platform.h"

namespace reprise::engine {

// As --dtype takes it.
std::string_view dtype_flag(DType d);

struct DtypeInputs {
  const models::ModelSpec& spec;
  const models::ModelConfig& config;
  const Platform& platform;
  const GraphOptions& graph;
};

// The model has an op without a kernel. With a dtype of the engine's own choice, the step in the first dtype that has
// all of them; else an error that names the flag and what it may be. `why` when that is not what is wrong.
Result<models::TraceOptions> other_dtypes(const DtypeInputs& in, const models::TraceOptions& trace, bool any_dtype,
                                          bool any_kv_dtype, const Status& why);

}  // namespace reprise::engine
