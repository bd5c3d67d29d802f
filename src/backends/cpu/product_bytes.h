// The workspace of products with a weight in panel64, which all entries of such products reserve alike.
#pragma once

#include <algorithm>

#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/unit_shape.h"
#include "device/thunk.h"

namespace reprise::cpu {

// Scratch of all threads: what each needs, with tile registers at least what rows of so many bytes take there.
inline size_t team_bytes(int threads, size_t each, bool tiles, int64_t rows, int64_t row_bytes) {
  return static_cast<size_t>(threads) * (tiles ? std::max(each, unit_thread_bytes(rows, row_bytes)) : each);
}

// Counted for rows of 16-bit numbers, as fp32 needs less. kTiles: the set has tile registers, which fp16 does not use.
template <bool kTiles, class A>
size_t product_bytes(const A& a, const LiveSizes& bound, int threads) {
  const int64_t rows = a.shape.rows.value(bound), k = a.shape.depth;
  return team_bytes(threads, linear_thread_bytes(rows, k), kTiles, rows, 2 * k);
}

}  // namespace reprise::cpu
