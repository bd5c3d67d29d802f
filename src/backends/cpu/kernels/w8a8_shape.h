// How the int8 linear kernels lay out their scratch memory: shared by the kernels and by the entries that reserve the
// workspace. Internal linkage, because kernel sources may not share inline code across instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/linear_shape.h"

namespace reprise::cpu {

// Words from one prepared row of x to the next: so many per group of four k, whole cache lines, and one line more that
// keeps rows off each other's cache sets.
[[maybe_unused]] static constexpr int64_t w8a8_x_stride(int64_t k, int words) {
  return ((k + 3) / 4 * words + 15) / 16 * 16 + 16;
}

// Workspace bytes of one thread.
[[maybe_unused]] static constexpr size_t w8a8_thread_bytes(int64_t rows, int64_t k, int words) {
  return static_cast<size_t>((rows < kBlockRows ? rows : kBlockRows) * w8a8_x_stride(k, words)) * 4;
}

}  // namespace reprise::cpu
