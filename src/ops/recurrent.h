// The ops of layers with a state for each sequence; register_core_ops() adds them.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_recurrent_ops(OpRegistry& ops);

}  // namespace reprise
