// Floats to int8 with a scale per row: what kernels that quantise share. The CPU's bits
// (backends/cpu/kernels/quantize.h).
#pragma once

#include "backends/cuda/kernels/lane.h"

namespace reprise::cuda {

// NaN is never larger.
DEV float larger_magnitude(float top, float v) {
  const float magnitude = float_of(bits_of(v) & 0x7fffffffu);
  return magnitude > top ? magnitude : top;
}

// The scale of a row whose largest magnitude is `top`. Values are divided by it; 0 / 0 is NaN and so gives 0.
DEV float dynamic_scale(float top) { return divide(top, 127.0f); }

}  // namespace reprise::cuda
