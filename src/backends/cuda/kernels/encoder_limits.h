// What the kernels of encoders take.
#pragma once

namespace reprise::cuda {

constexpr int kUsualSegmentHead = 128, kMostSegmentHead = 256;  // numbers of a head

}  // namespace reprise::cuda
