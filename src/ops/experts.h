// The ops of mixtures of experts; register_core_ops() adds them.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_expert_ops(OpRegistry& ops);

}  // namespace reprise
