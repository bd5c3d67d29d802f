// What the kernels of encoders take.
#pragma once

namespace reprise::cuda {

constexpr int kMostSegmentHead = 128;  // numbers of a head

}  // namespace reprise::cuda
