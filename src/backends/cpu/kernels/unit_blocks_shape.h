// A thread's scratch memory in products of bf16 rows with weights in GGUF blocks on tile registers: that of
// unit_shape.h, and behind it the weights of a strip. Shared by the kernels and by the entries that reserve the
// workspace. Internal linkage, as unit_shape.h.
#pragma once

#include "backends/cpu/kernels/unit_shape.h"

namespace reprise::cpu {

// A strip: the four tiles of 16 columns of a panel, so many steps of 32 k deep. Half of it is used at once, and stays
// in the first-level cache meanwhile.
constexpr int64_t kUnitStripDepth = 16, kUnitStripTiles = 4;
constexpr int64_t kUnitStripBytes = kUnitStripDepth * kUnitStripTiles * 1024;

[[maybe_unused]] static constexpr size_t unit_blocks_thread_bytes(int64_t rows, int64_t k) {
  return unit_thread_bytes(rows, 2 * k) + static_cast<size_t>(kUnitStripBytes);
}

}  // namespace reprise::cpu
