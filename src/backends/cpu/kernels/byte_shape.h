// How linears of int8 inputs by blocks lay out their workspace: shared by the kernels and by the entries that reserve
// it. Internal linkage, because kernel sources may not share inline code across instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/linear_shape.h"

namespace reprise::cpu {

// Outliers are added to the sums once so many k are done (byte_sums.h).
static constexpr int64_t kByteChunk = 256;
[[maybe_unused]] static constexpr int64_t byte_chunks(int64_t k) { return (k + kByteChunk - 1) / kByteChunk; }
// Words from one row to the next: the numbers, a factor and a sum of each 16 of them at most, and the outliers: a word
// for each chunk, a place and a number for each 32; the extra line keeps rows off each other's cache sets.
[[maybe_unused]] static constexpr int64_t byte_x_stride(int64_t k) {
  return (k / 4 + k / 16 * 2 + byte_chunks(k) + k / 32 * 2 + 15) / 16 * 16 + 16;
}
// All rows, of which every thread prepares its share.
[[maybe_unused]] static constexpr int64_t byte_rows_words(int64_t rows, int64_t k) { return rows * byte_x_stride(k); }
// A thread's list of the outliers of a block of rows (OutlierList): the end of each chunk's, and two words each.
[[maybe_unused]] static constexpr int64_t outlier_list_words(int64_t rows, int64_t k) {
  return (byte_chunks(k) + (rows < kBlockRows ? rows : kBlockRows) * (k / 32) * 2 + 15) / 16 * 16;
}
// Of a launch: the rows, then the lists.
[[maybe_unused]] static constexpr size_t byte_rows_bytes(int64_t rows, int64_t k, int threads) {
  return static_cast<size_t>(byte_rows_words(rows, k) + threads * outlier_list_words(rows, k)) * 4;
}

}  // namespace reprise::cpu
