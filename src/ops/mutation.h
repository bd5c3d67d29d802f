// Which operand a result continues: an op that writes in place gives what it wrote as its first results.
#pragma once

#include "ops/schema.h"

namespace reprise {

// Result i of an op continues the i-th operand that it writes, (a!), (b!), ... in order. -1 for a result of its own.
int continued_operand(const OpSchema& op, size_t result);
// Every operand that it writes.
std::vector<size_t> mutated_operands(const OpSchema& op);

}  // namespace reprise
