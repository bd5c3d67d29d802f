// EncoderTable: the kernels of encoders, pooled outputs and heads that draft of one instruction set, beside those of
// table.h.
#pragma once

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu {

struct EncoderTable {
  PerType segment_attention, pool_rows, widen;
  CpuKernel l2_normalize = nullptr, concat = nullptr;
};

const EncoderTable& encoder_table(Isa isa);

}  // namespace reprise::cpu
