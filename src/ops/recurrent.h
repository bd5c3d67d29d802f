// The ops of layers with a state for each sequence; register_core_ops() adds them.
#pragma once

#include <vector>

#include "ops/schema.h"

namespace reprise {

void register_recurrent_ops(OpRegistry& ops);

// Rows of `value` numbers in a slot of the states of gated_delta or state_space, for each head: `key` of the state;
// then of each draft its value, its key, how much of the state stays and how much is taken in, those of all drafts
// behind each other.
constexpr int64_t delta_state_rows(int64_t key, int64_t value, int64_t drafts) {
  return key + drafts + (drafts * (key + 2) + value - 1) / value;
}

// Columns of an operand in two sizes: heads of one size, side by side. Blocks of one operand follow each other.
struct HeadColumns {
  size_t operand = 0;
  int64_t heads = 0, size = 0;
};

// The columns of a call's operands beside its states, where it works head by head on states in slots, [S, H, ...]. The
// columns of the heads of keys come first. An operand in one size has a number for each of the H heads. Empty for every
// other call.
std::vector<HeadColumns> head_columns(const OpCall& call);
// The call has so many heads of keys now.
void set_key_heads(Attrs& attrs, int64_t heads);

}  // namespace reprise
