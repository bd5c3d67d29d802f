// Sizes that the kernels of layers with states and their entries share.
#pragma once

namespace reprise::cuda {

constexpr int kMostTaps = 16;       // of a convolution
constexpr int kConvRows = 16;       // of a thread
constexpr int kMostDeltaKey = 128;  // numbers of a key, and of a state's column, which two threads keep
constexpr int kDeltaColumns = 64;   // of a state that a block has

}  // namespace reprise::cuda
