// Sizes that the attention kernels and their entries share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cuda {

constexpr int64_t kSlots = 4096;    // states of 16 rows in the workspace
constexpr int kValueColumns = 128;  // of the output that a warp keeps; wider heads take several passes

// Head sizes that attention is compiled for; a head takes the next.
constexpr int kDepths[] = {64, 128, 256};

// A state: largest, sum and output columns of 16 rows.
constexpr size_t attention_workspace_bytes(int64_t size) {
  for (const int depth : kDepths)
    if (size <= depth)
      return static_cast<size_t>(kSlots) * 16 *
             (static_cast<size_t>(depth < kValueColumns ? depth : kValueColumns) + 2) * sizeof(float);
  return 0;
}

}  // namespace reprise::cuda
