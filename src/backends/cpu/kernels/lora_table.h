// LoraTable: the kernels of LoRA adapters of one instruction set. Apart from table.h, which every kernel source reads.
#pragma once

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu {

#define REPRISE_DECLARE(name) void name(const LaunchArgs& args, const LiveSizes& live, int thread, int threads);
#define REPRISE_DECLARE_SET(isa, set) \
  namespace set {                     \
  REPRISE_DECLARE(lora_shrink_f32)    \
  REPRISE_DECLARE(lora_shrink_bf16)   \
  REPRISE_DECLARE(lora_shrink_f16)    \
  REPRISE_DECLARE(lora_expand_f32)    \
  REPRISE_DECLARE(lora_expand_bf16)   \
  REPRISE_DECLARE(lora_expand_f16)    \
  }
REPRISE_CPU_ISAS(REPRISE_DECLARE_SET)
#undef REPRISE_DECLARE_SET
#undef REPRISE_DECLARE

struct LoraTable {
  PerType shrink, expand;
};

const LoraTable& lora_table(Isa isa);

}  // namespace reprise::cpu
