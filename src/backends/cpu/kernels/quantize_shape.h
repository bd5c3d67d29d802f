// How the ops that quantise with a scale per row divide their work and scratch memory: shared by the kernels and by the
// entries that reserve the workspace. Internal linkage, because kernel sources may not share inline code across
// instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cpu {

// Whole rows per thread where that is even or hardly matters, else columns of every row.
[[maybe_unused]] static constexpr bool quantize_whole_rows(int64_t rows, int threads) {
  return rows % threads == 0 || rows >= 4 * threads;
}

// One row, in whole cache lines.
[[maybe_unused]] static constexpr int64_t row_scratch_bytes(int64_t columns, int64_t element) {
  return (columns * element + 63) / 64 * 64;
}

// Scratch of silu_mul_quant: the largest magnitude per row and thread, then rows of products: one per thread, or one
// per row of a small batch.
struct SiluMulShape {
  constexpr SiluMulShape(int64_t columns, int64_t element, int all_threads)
      : threads(all_threads), row_bytes(row_scratch_bytes(columns, element)) {}
  constexpr int64_t top_at(int64_t row, int thread) const { return row * threads + thread; }
  constexpr int64_t row_at(int64_t row) const { return (4 * threads * threads * 4 + 63) / 64 * 64 + row * row_bytes; }
  constexpr size_t bytes() const { return static_cast<size_t>(row_at(4 * threads)); }

  int64_t threads;
  int64_t row_bytes;
};

}  // namespace reprise::cpu
