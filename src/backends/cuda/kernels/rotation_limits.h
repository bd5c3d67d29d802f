// Sizes that the kernels of norms and rotation, and their entries, share.
#pragma once

namespace reprise::cuda {

constexpr int kLargestHead = 256;      // numbers of a head, eight a lane of a warp
constexpr int kMaxRotatedHalf = 256;   // frequencies that a launch carries in its arguments
constexpr int kMaxScaleFactors = 256;  // likewise, factors of positions

}  // namespace reprise::cuda
