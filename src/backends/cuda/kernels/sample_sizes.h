// Sizes that the kernels which draw tokens and their entries agree on.
#pragma once

#include <cstdint>

namespace reprise::cuda {

// Blocks of a launch: each draws row after row, and has scratch memory for all candidates of one.
constexpr int64_t kSampleBlocks = 128;
// Columns whose peaks and sums fit shared memory beside candidates that are sorted there.
constexpr int64_t kMostSampleColumns = 384 << 10;

}  // namespace reprise::cuda
