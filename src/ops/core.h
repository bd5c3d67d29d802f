// The primitive ops of a dense decoder. Shapes: T tokens of the step, R sequences, C page-table columns, P pages of the
// KV pool, H query heads, G key/value heads, D head size.
#pragma once

#include "ops/schema.h"

namespace reprise {

constexpr int kPageTokens = 128;  // tokens of one KV page; attention reduces page by page in this unit

void register_core_ops(OpRegistry& ops);

}  // namespace reprise
