// Cases of what families of models newer than Llama compute besides: attention with sinks, caps and windows, other
// activations and norms, rotations of parts of a head and by several positions, experts with biases and in MXFP4.
#pragma once

#include "measurement/op_cases.h"

namespace reprise::measurement {

// Their names.
std::vector<std::string> family_ops();

// Empty for any op without a case here.
std::vector<OpCase> family_cases(const std::string& op, int64_t max_tokens);

}  // namespace reprise::measurement
