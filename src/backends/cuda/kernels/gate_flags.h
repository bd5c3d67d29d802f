// How moe_gate scores and weighs, as its kernel and its entry tell each other.
#pragma once

#include <cstdint>

namespace reprise::cuda {

enum GateFlag : int64_t { kGateSigmoid = 1, kGateNormalise = 2, kGateTopTwo = 4 };

}  // namespace reprise::cuda
