// Scratch memory of the ops that look for the largest value of each row in two parts: every thread its columns, then
// all threads their rows. Shared by the kernels and by the entries that reserve the workspace; internal linkage,
// because kernel sources may not share inline code across instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cpu {

// What one thread found in one row. Until something larger than -infinity is found, the index is kNoIndex.
struct Best {
  float value;
  int32_t index;
};

static constexpr int32_t kNoIndex = 0x7fffffff;

// Entries from one thread to the next: whole cache lines.
[[maybe_unused]] static constexpr int64_t best_stride(int64_t rows) { return (rows + 7) / 8 * 8; }

[[maybe_unused]] static constexpr size_t best_bytes(int64_t rows, int threads) {
  return static_cast<size_t>(best_stride(rows) * threads) * sizeof(Best);
}

}  // namespace reprise::cpu
