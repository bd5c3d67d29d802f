// The ops by which ranks exchange data. All ranks run the same ones in the same order; each has its own part of the
// operand, and the result is whole on all of them.
#pragma once

#include "ops/schema.h"

namespace reprise {

// Tokens of a rank whose rows are sent: what Atlas A2 and A3 take (OT-2608
// moe_distribute_dispatch_v2_tiling_arch22.cpp:482).
constexpr int64_t kMostSentTokens = 256;
// Numbers that ranks tell each other of a row that went to another one.
constexpr int64_t kSentRowWords = 128;

void register_collective_ops(OpRegistry& ops);

}  // namespace reprise
