// The ops of LoRA adapters in fixed slots; register_core_ops() adds them.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_lora_ops(OpRegistry& ops);

}  // namespace reprise
