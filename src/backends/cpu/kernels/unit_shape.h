// How products on tile registers divide rows into blocks and lay out a thread's scratch memory, in place of what
// linear_shape.h and w8a8_shape.h say: shared by the kernels and by the entries that reserve the workspace. Internal
// linkage, because kernel sources may not share inline code across instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cpu {

// So many bytes of x stay in the second-level cache of 2 MiB while the weights stream past, beside two panels and the
// rows of the result. Of 1024 k in bf16 that are 384 rows, of 3072 k 128.
constexpr int64_t kUnitBlockBytes = 768 << 10;

// Steps of 64 bytes of k.
[[maybe_unused]] static constexpr int64_t unit_steps(int64_t row_bytes) { return (row_bytes + 63) / 64; }

// Rows per block: as few blocks as possible, about equally long, pairs of 16 rows.
[[maybe_unused]] static constexpr int64_t unit_row_block(int64_t rows, int64_t row_bytes) {
  const int64_t fit = kUnitBlockBytes / (unit_steps(row_bytes) * 64) / 32 * 32;
  const int64_t most = fit < 32 ? 32 : fit > 512 ? 512 : fit;
  const int64_t blocks = (rows + most - 1) / most;
  return blocks <= 1 ? rows : ((rows + blocks - 1) / blocks + 31) / 32 * 32;
}

// Bytes of a block's packed rows, whole tiles of 16 rows, and of its sums for a panel of 64 columns.
[[maybe_unused]] static constexpr int64_t unit_x_bytes(int64_t block, int64_t row_bytes) {
  return (block + 15) / 16 * 16 * unit_steps(row_bytes) * 64;
}
[[maybe_unused]] static constexpr int64_t unit_sum_bytes(int64_t block) { return (block + 15) / 16 * 16 * 64 * 4; }

// Workspace bytes of one thread, enough for any share of the rows: a block is not longer than the share, nor than the
// longest one.
[[maybe_unused]] static constexpr size_t unit_thread_bytes(int64_t rows, int64_t row_bytes) {
  const int64_t most = unit_row_block(int64_t{1} << 40, row_bytes), block = rows < most ? rows : most;
  return static_cast<size_t>(unit_x_bytes(block, row_bytes) + unit_sum_bytes(block));
}

}  // namespace reprise::cpu
