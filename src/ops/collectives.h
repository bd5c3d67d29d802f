// The ops by which ranks exchange data. All ranks run the same ones in the same order; each has its own part of the
// operand, and the result is whole on all of them.
#pragma once

#include "ops/schema.h"

namespace reprise {

// Numbers that ranks tell each other of a row that went to another one: as many as Ascend's operators ask for (OT-2608
// aclnnMoeDistributeDispatchV2.md:391-397), and what rows that go in several rounds need besides: their place, the
// counts of each round, and up to a sixteenth more rows.
constexpr int64_t kAssistWords = 128;
constexpr int64_t kSentRowWords = 144;

void register_collective_ops(OpRegistry& ops);

}  // namespace reprise
