// product_bytes: the workspace of products with a weight in panel64, which all entries of such products reserve alike.
#pragma once

#include <algorithm>

#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/unit_shape.h"
#include "device/thunk.h"

namespace reprise::cpu {

// Of rows of 16-bit numbers, those of fp32 need less; kTiles: of a set with tile registers, whose fp16 goes without.
template <bool kTiles, class A>
size_t product_bytes(const A& a, const LiveSizes& bound, int threads) {
  const int64_t rows = a.shape.rows.value(bound), k = a.shape.depth;
  const size_t words = linear_thread_bytes(rows, k);
  return static_cast<size_t>(threads) * (kTiles ? std::max(words, unit_thread_bytes(rows, 2 * k)) : words);
}

}  // namespace reprise::cpu
