// What becomes of the sums of a matrix product, panel by panel: rounded rows of the result, or the largest of each row.
// Sums lie kPanelColumns apart, as the finish functions of linear_tiles.h get them. Internal linkage.
#pragma once

#include "backends/cpu/kernels/argmax.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/tile.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows of sums become rows of the result, row by row, because sums of many rows come from the second-level cache:
// value(sums of sixteen columns, row, which sixteen of the panel) gives what is rounded. No column beyond `columns` is
// written.
template <class Out, class Sum, class Value>
void store_rows(const Sum* c, int64_t rows, int columns, typename Out::Type* out, int64_t ldo, const Value& value) {
  static_assert(kPanelColumns == 64);
  if (columns == kPanelColumns) {
    for (int64_t m = 0; m < rows; ++m, c += kPanelColumns, out += ldo) {
      Out::store_two(out, value(c, m, 0), value(c + 16, m, 1));
      Out::store_two(out + 32, value(c + 32, m, 2), value(c + 48, m, 3));
    }
    return;
  }
  for (int64_t m = 0; m < rows; ++m, c += kPanelColumns, out += ldo)
    for (int j = 0; j < columns; j += 16) store_n<Out>(out + j, value(c + j, m, j / 16), columns - j);
}

// The same of products of floats: bias, one rounding.
template <class In, class Out>
void round_sums(const float* c, int64_t rows, int columns, const typename In::Type* bias, typename Out::Type* out,
                int64_t ldo) {
  if (!bias) {
    store_rows<Out>(c, rows, columns, out, ldo, [](const float* at, int64_t, int) { return load(at); });
    return;
  }
  F32x16 b[kPanelColumns / 16] = {};
  for (int j = 0; j < columns; j += 16) b[j / 16] = load_n<In>(bias + j, columns - j);
  store_rows<Out>(c, rows, columns, out, ldo, [&](const float* at, int64_t, int i) { return load(at) + b[i]; });
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
