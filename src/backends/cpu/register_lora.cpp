// Entries of LoRA adapters in slots.
#include "backends/cpu/kernels/lora_table.h"
#include "backends/cpu/register.h"
#include "base/check.h"

namespace reprise::cpu {

#define REPRISE_TABLE(isa, set)                                                            \
  namespace set {                                                                          \
  static const LoraTable kLoraTable{{lora_shrink_f32, lora_shrink_bf16, lora_shrink_f16},  \
                                    {lora_expand_f32, lora_expand_bf16, lora_expand_f16}}; \
  }
REPRISE_CPU_ISAS(REPRISE_TABLE)
#undef REPRISE_TABLE

const LoraTable& lora_table(Isa isa) {
#define REPRISE_CHOOSE(choice, set) \
  if (isa == Isa::choice) return set::kLoraTable;
  REPRISE_CPU_ISAS(REPRISE_CHOOSE)
#undef REPRISE_CHOOSE
  check_failed("isa", __FILE__, __LINE__, fmt::format("no kernels for isa {}", isa_name(isa)));
}

void register_lora(KernelRegistry& kernels, Isa isa) {
  const LoraTable& k = lora_table(isa);
  Entries entries(kernels, isa);
  entries.add("lora_shrink", k.shrink);
  entries.add("lora_expand", k.expand);
}

}  // namespace reprise::cpu
