// The ops of layers with a state for each sequence; register_core_ops() adds them.
#pragma once

#include "ops/schema.h"

namespace reprise {

void register_recurrent_ops(OpRegistry& ops);

// Rows of `value` numbers in a slot of the states of gated_delta or state_space, for each head: `key` of the state;
// then of each draft its value, its key, how much of the state stays and how much is taken in, those of all drafts
// behind each other.
constexpr int64_t delta_state_rows(int64_t key, int64_t value, int64_t drafts) {
  return key + drafts + (drafts * (key + 2) + value - 1) / value;
}

}  // namespace reprise
