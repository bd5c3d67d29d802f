// How a GPU lays out one (page, key or value, head) block of the KV cache: [128 tokens][D], in every dtype. Of int8,
// the fp32 scales of the 128 tokens lie behind the numbers.
#pragma once

#include "backends/cuda/kernels/lane.h"
#include "base/kv_page.h"

namespace reprise::cuda {

constexpr int kPageRows = static_cast<int>(kPageTokens);

// Elements from the start of the cache [P, 2, heads, 128, row] to a block; `row` counts an int8 row's scale.
HOST_DEV int64_t kv_block(int64_t page, bool values, int64_t head, int64_t heads, int64_t row) {
  return ((page * 2 + (values ? 1 : 0)) * heads + head) * kPageRows * row;
}

}  // namespace reprise::cuda
