// Launch arguments of the ops of layers with a state for each sequence.
//
// `tokens` of the step belong to `sequences`. States lie in slots, one behind the other. Filled in recurrent.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

// Columns of `taps` weights each; a slot holds taps - 1 rows of them.
struct CausalConvArgs {
  Out state;
  In x, weight, state_read, state_write, cu_seqlens;
  Out same, out;
  Dim tokens, sequences;
  int64_t columns, taps;

  void fill(const OpCall& call);
};

// `key` and `value`: sizes of a head.
struct GatedDeltaArgs {
  Out state;
  In qkv, b, a, a_log, dt_bias, state_read, state_write, cu_seqlens;
  Out same, out;
  Dim tokens, sequences;
  int64_t heads, key_heads, key, value;

  void fill(const OpCall& call);
};

}  // namespace reprise
