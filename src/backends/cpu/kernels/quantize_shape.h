// How the ops that quantise with a scale per row divide their work and scratch memory: shared by the kernels and by the
// entries that reserve the workspace. Internal linkage, because kernel sources may not share inline code across
// instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cpu {

// Whole rows per rank where that is even or hardly matters, else columns of every row.
[[maybe_unused]] static constexpr bool quantize_whole_rows(int64_t rows, int ranks) {
  return rows % ranks == 0 || rows >= 4 * ranks;
}

// One row, in whole cache lines.
[[maybe_unused]] static constexpr int64_t row_scratch_bytes(int64_t columns, int64_t element) {
  return (columns * element + 63) / 64 * 64;
}

// Scratch of silu_mul_quant: the largest magnitude per row and rank, then rows of products: one per rank, or one per
// row of a small batch.
struct SiluMulShape {
  constexpr SiluMulShape(int64_t columns, int64_t element, int all_ranks)
      : ranks(all_ranks), row_bytes(row_scratch_bytes(columns, element)) {}
  constexpr int64_t top_at(int64_t row, int rank) const { return row * ranks + rank; }
  constexpr int64_t row_at(int64_t row) const { return (4 * ranks * ranks * 4 + 63) / 64 * 64 + row * row_bytes; }
  constexpr size_t bytes() const { return static_cast<size_t>(row_at(4 * ranks)); }

  int64_t ranks;
  int64_t row_bytes;
};

}  // namespace reprise::cpu
