// Launch arguments of the ops of layers with a state for each sequence.
//
// `tokens` of the step belong to `sequences`. States lie in slots, one behind the other. Filled in recurrent.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

// With drafts (models/step_spec.h) a slot holds what is behind a sequence's own tokens, and behind that what each draft
// of the step would change: the next step makes these changes for those that came true. `drafts`: how many did,
// and how many there are in this step.
//
// Columns of `taps` weights each; a slot holds taps - 1 rows of them, then one for each of `most_drafts`.
struct CausalConvArgs {
  Out state;
  In x, weight, state_read, state_write, cu_seqlens, drafts;
  Out same, out;
  Dim tokens, sequences;
  int64_t columns, taps, most_drafts;

  void fill(const OpCall& call);
};

struct CausalConvBiasedArgs {
  Out state;
  In x, weight, bias, state_read, state_write, cu_seqlens, drafts;
  Out same, out;
  Dim tokens, sequences;
  int64_t columns, taps, most_drafts;

  void fill(const OpCall& call);
};

// `key` and `value`: sizes of a head, which has `rows` rows of values in a slot (delta_state_rows()).
struct GatedDeltaArgs {
  Out state;
  In qkv, b, a, a_log, dt_bias, state_read, state_write, cu_seqlens, drafts;
  Out same, out;
  Dim tokens, sequences;
  int64_t heads, key_heads, key, value, rows, most_drafts;

  void fill(const OpCall& call);
};

// `key`: numbers of B and of C, the rows of a state; `value`: numbers of a head, its columns. Each group of heads has a
// B and a C. A most_step of 0 is no limit.
struct StateSpaceArgs {
  Out state;
  In xbc, dt, a_log, dt_bias, d, state_read, state_write, cu_seqlens, drafts;
  Out same, out;
  Dim tokens, sequences;
  int64_t heads, groups, key, value, rows, most_drafts;
  double least_step, most_step;

  void fill(const OpCall& call);
};

// `groups` parts of each row of `width` numbers are normed by themselves.
struct GatedNormArgs {
  In x, gate, weight;
  Out out;
  Dim rows;
  int64_t width, groups;
  double eps;

  void fill(const OpCall& call);
};

}  // namespace reprise
