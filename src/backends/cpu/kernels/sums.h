// What becomes of the sums of a matrix product, panel by panel: rounded rows of the result, or the largest of each row.
// Sums lie kPanelColumns apart, as the finish functions of linear_tiles.h get them. Internal linkage.
#pragma once

#include "backends/cpu/kernels/argmax.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/tile.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows of sums become rows of the result: bias, one rounding, no column beyond `columns`.
template <class In, class Out>
void round_sums(const float* c, int64_t rows, int columns, const typename In::Type* bias, typename Out::Type* out,
                int64_t ldo) {
  for (int j = 0; j < columns; j += 16) {
    const int n = columns - j < 16 ? columns - j : 16;
    F32x16 b = zero();
    if (bias) {
      typename In::Type padded[16] = {};
      std::memcpy(padded, bias + j, static_cast<size_t>(n) * sizeof(padded[0]));
      b = In::load(padded);
    }
    for (int64_t m = 0; m < rows; ++m) {
      F32x16 v = load(c + m * kPanelColumns + j);
      if (bias) v = v + b;
      typename Out::Type* to = out + m * ldo + j;
      if (n == 16) {
        Out::store(to, v);
      } else {
        typename Out::Type padded[16];
        Out::store(padded, v);
        std::memcpy(to, padded, static_cast<size_t>(n) * sizeof(padded[0]));
      }
    }
  }
}

// The best column of each row of a panel's sums against what is known already. Columns come in ascending order.
[[maybe_unused]] void search_rows(float* sums, int64_t rows, int64_t column, int columns, Best* best) {
  for (int64_t m = 0; m < rows; ++m) {
    float* row = sums + m * kPanelColumns;
    for (int j = columns; j % 16 != 0; ++j) row[j] = kLowest;
    F32x16 top = splat(best[m].value);
    for (int j = 0; j < columns; j += 16) {
      const F32x16 v = load(row + j);
      top = select(greater(v, top), v, top);
    }
    const float value = reduce_max(top);
    if (!(value > best[m].value)) continue;
    int j = 0;
    while (row[j] != value) ++j;
    best[m] = {value, static_cast<int32_t>(column + j)};
  }
}

// Behind the `thread_bytes` that each thread has for itself.
[[maybe_unused]] Best* found_by_threads(const Launch& l, size_t thread_bytes) {
  return reinterpret_cast<Best*>(static_cast<char*>(l.workspace) + static_cast<size_t>(l.threads) * thread_bytes);
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
