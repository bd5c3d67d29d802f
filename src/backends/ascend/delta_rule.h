// DeltaRule: RecurrentGatedDeltaRule over the rows and states of a step.
//
// The operator takes at most 8 rows of a sequence, so prompts are cut into windows; ChunkGatedDeltaRule keeps states in
// bf16 on these chips (ops-transformer 57781440, chunk_gated_delta_rule_tiling.cpp:364) and is not used. In a state the
// operator's keys are the columns, so here [S, H, V, K]; nothing but the entries of these ops looks into one. Plain
// values for one launch; any thread.
#pragma once

#include <cmath>

#include "backends/ascend/attention_plan.h"
#include "backends/ascend/recurrent_rows.h"

namespace reprise::ascend {

// States in slots, each of so many numbers: those that a step reads, and where it leaves them.
struct States {
  void* data;
  int64_t slots, size, sequences;
  const void *read, *write;

  aclTensor* pool(Launch& l) const { return l.tensor(data, DType::F32, {slots, size}); }
};

// What RecurrentGatedDeltaRule takes besides states: queries, keys, values and weights row by row, and how much of the
// state stays, as a logarithm.
struct RuleRows {
  const void *q, *k, *v, *beta, *g;
};

struct DeltaRule {
  int64_t rows, sequences, heads, key_heads, key, value;
  DType type;
  float scale;  // of queries
  States states;
  Borders borders;

  // Leaves results [rows, heads, value] in `out`, and the states where the step leaves them. The constants are the
  // launch's (RecurrentConstants).
  Status run(const RuleRows& in, void* out, Launch& l) const;
};

// LaunchArgs::way of an entry whose first two operands are states and rows: the number of slots, a constant or of a
// symbol, and the type of the rows.
int64_t way_of_states(const OpCall& c);
int64_t slots_of(Launch& l);
DType type_of_rows(const Launch& l);

inline const void* const_behind(const void* data, int64_t elements, DType type) {
  return behind(data, elements * static_cast<int64_t>(size_of(type)));
}

// So many rows can be told apart (RecurrentConstants).
Status want_few_rows(int64_t rows, int64_t sequences);

// The rule over the rows and states of `a`, the arguments of an op with heads of states.
template <class Args>
Result<DeltaRule> delta_rule_of(const Args& a, int64_t key_heads, float scale, Launch& l) {
  const int64_t t = l.size(a.tokens), r = l.size(a.sequences);
  RETURN_IF_ERROR(want_few_rows(t, r));
  const States states{a.state, slots_of(l), a.heads * a.key * a.value, r, a.state_read, a.state_write};
  return DeltaRule{t, r, a.heads, key_heads, a.key, a.value, type_of_rows(l), scale, states, {t, r, a.cu_seqlens}};
}
// Operand `first` and the two behind it name slots and borders; there may be no drafts.
Status accepts_states(const OpCall& c, size_t first);
// The same of ops that the rule computes.
Status accepts_rule(const OpCall& c);

}  // namespace reprise::ascend
