// The ops by which ranks exchange data. All ranks run the same ones in the same order; each has its own part of the
// operand, and the result is whole on all of them.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_collective_ops(OpRegistry& ops);

}  // namespace reprise
