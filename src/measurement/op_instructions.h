// Vector instructions that the definition of an op asks for, in every kernel: a lower bound of its time.
#pragma once

#include "graph/graph.h"

namespace reprise::measurement {

// Instructions on fp32 vectors: those per element times the elements; 0 for ops that are bound otherwise. `has_bf16`:
// the processor has instructions for bf16.
double instructions_of(const Node& node, const LiveSizes& live, bool has_bf16);

}  // namespace reprise::measurement
