// What the int8 operators share.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ascend/ops/executor.h"

namespace ascend_sim {

// One row to int8 by its own scale, the largest magnitude / 127; answers the scale. A row of zeros has scale 0.
inline float quantise_row(const float* values, int64_t width, int8_t* to) {
  float largest = 0;
  for (int64_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float scale = largest / 127;
  for (int64_t i = 0; i < width; ++i) to[i] = scale > 0 ? to_int8(values[i] / scale) : int8_t{0};
  return scale;
}

// The factor that a 64-bit scale of TransQuantParamV2 stands for: 19 bits of a float.
inline float scale_of(uint64_t packed) { return std::bit_cast<float>(static_cast<uint32_t>(packed) & 0xFFFFE000u); }

// Scales of a weight, whichever of its types they have.
inline std::vector<float> read_scales(const View& view) {
  if (view.dtype != kUint64 && view.dtype != kInt64) return read(view);
  std::vector<float> scales;
  for (const uint64_t packed : read<uint64_t>(view)) scales.push_back(scale_of(packed));
  return scales;
}

// All dimensions but the last: one scale per row.
inline Dims row_shape(const View& view) { return Dims(view.shape.begin(), view.shape.end() - (view.rank() > 0)); }

}  // namespace ascend_sim
