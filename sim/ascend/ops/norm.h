// What the norms share with those that quantise or write a cache afterwards.
//
// Pure functions.
#pragma once

#include "ascend/ops/executor.h"

namespace ascend_sim {

// y = x / sqrt(mean of squares + epsilon) * gamma; answers the factor of x.
float norm_row(const float* x, const float* gamma, int64_t width, float epsilon, float* y);
// The shape of x with the dimensions of gamma reduced to 1.
Dims rstd_shape(const View& x, const View& gamma);
// gamma must be the trailing dimensions of x.
bool trailing(Operator& op, Slot x, Slot gamma);

}  // namespace ascend_sim
