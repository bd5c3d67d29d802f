// RecurrentTable: the kernels of layers with a state for each sequence of one instruction set, beside those of table.h.
#pragma once

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu {

struct RecurrentTable {
  PerType causal_conv, gated_delta;
};

const RecurrentTable& recurrent_table(Isa isa);

}  // namespace reprise::cpu
