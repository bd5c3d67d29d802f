// Entries of LoRA adapters in slots.
#include "backends/cpu/register.h"

namespace reprise::cpu {

void register_lora(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("lora_shrink", k.lora_shrink);
  entries.add("lora_expand", k.lora_expand);
}

}  // namespace reprise::cpu
