// Rotations of one head, for operators that rotate among other things.
//
// Pure functions on `width` elements; cos and sin are as wide as x. x and y must not be the same.
#pragma once

#include <cstdint>

namespace ascend_sim {

// The first half is turned with the second.
void rotate_half(const float* x, const float* cos, const float* sin, int64_t width, float* y);
// Neighbours are turned with each other.
void rotate_pairs(const float* x, const float* cos, const float* sin, int64_t width, float* y);
// Even places first, then odd ones.
void deinterleave(const float* x, int64_t width, float* y);

}  // namespace ascend_sim
