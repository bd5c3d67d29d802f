// What becomes of the sums of a matrix product, panel by panel: rounded rows of the result, or the largest of each row.
// Internal linkage.
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
void store_rows(Sums<Sum> s, typename Out::Type* out, int64_t ldo, const Value& value) {
  static_assert(kPanelColumns == 64);
  const Sum* c = s.at;
  if (s.columns == kPanelColumns) {
    for (int64_t m = 0; m < s.rows; ++m, c += s.apart, out += ldo) {
      Out::store_two(out, value(c, m, 0), value(c + 16, m, 1));
      Out::store_two(out + 32, value(c + 32, m, 2), value(c + 48, m, 3));
    }
    return;
  }
  if (s.columns == kPanelColumns / 2) {
    for (int64_t m = 0; m < s.rows; ++m, c += s.apart, out += ldo)
      Out::store_two(out, value(c, m, 0), value(c + 16, m, 1));
    return;
  }
  for (int64_t m = 0; m < s.rows; ++m, c += s.apart, out += ldo)
    for (int j = 0; j < s.columns; j += 16) store_n<Out>(out + j, value(c + j, m, j / 16), s.columns - j);
}

// The same of products of floats: bias, one rounding.
template <class In, class Out>
void round_sums(Sums<float> s, const typename In::Type* bias, typename Out::Type* out, int64_t ldo) {
  if (!bias) {
    store_rows<Out>(s, out, ldo, [](const float* at, int64_t, int) { return load(at); });
    return;
  }
  F32x16 b[kPanelColumns / 16] = {};
  for (int j = 0; j < s.columns; j += 16) b[j / 16] = load_n<In>(bias + j, s.columns - j);
  store_rows<Out>(s, out, ldo, [&](const float* at, int64_t, int i) { return load(at) + b[i]; });
}

// The best column of each row of sums, the first of which is `column`, against what is known already. Columns come in
// any order: of two that are equal the first one wins.
[[maybe_unused]] void search_rows(Sums<float> s, int64_t column, Best* best) {
  for (int64_t m = 0; m < s.rows; ++m) {
    float* row = s.at + m * s.apart;
    for (int j = s.columns; j % 16 != 0; ++j) row[j] = kLowest;
    const bool before = column < best[m].index;
    F32x16 top = splat(before ? kLowest : best[m].value);
    for (int j = 0; j < s.columns; j += 16) {
      const F32x16 v = load(row + j);
      top = select(greater(v, top), v, top);
    }
    const float value = reduce_max(top);
    if (before ? value < best[m].value || value == kLowest : !(value > best[m].value)) continue;
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
