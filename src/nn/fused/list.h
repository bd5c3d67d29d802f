// The fused ops of the house by family; fused.cpp puts them in one list. Each function adds to the list and keeps
// nothing.
#pragma once

#include "nn/fused.h"

namespace reprise::nn {

void add_attention_ops(FusedOps& ops);
void add_quantised_ops(FusedOps& ops);
void add_float_ops(FusedOps& ops);
void add_expert_ops(FusedOps& ops);

// Symbols of the examples below: T tokens, P pages.
inline std::vector<Symbol> example_symbols() { return {{"T", 24}, {"P", 3}}; }
inline Dim example_tokens() { return Dim(1, 1); }
inline Dim example_pages() { return Dim(1, 2); }

}  // namespace reprise::nn
