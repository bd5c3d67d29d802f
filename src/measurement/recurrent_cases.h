// Cases of what models with recurrent states, encoders and vision towers compute besides the ops of a decoder: the
// convolution and the delta rule of Qwen3-Next, attention within a sequence, layer norms and GELUs.
#pragma once

#include "measurement/op_cases.h"

namespace reprise::measurement {

// Their names.
std::vector<std::string> recurrent_ops();

// Empty for any other op.
std::vector<OpCase> recurrent_cases(const std::string& op, int64_t max_tokens);

}  // namespace reprise::measurement
