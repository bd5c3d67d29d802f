// The ops of encoders and of pooled outputs; register_core_ops() adds them.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_encoder_ops(OpRegistry& ops);

}  // namespace reprise
