// The two kinds of layers that Qwen3-Next and Qwen3.5 take turns with: the gated delta rule, whose memory is a state
// for each sequence (Gated DeltaNet, arXiv 2412.06464), and attention whose result goes through a gate. Plain
// functions; the trace that their tensors belong to is one thread's.
#pragma once

#include "nn/layers.h"

namespace reprise::nn {

// How the projections of a gated delta layer are stored: each as a tensor of its own ("in_proj_qkv", "in_proj_z",
// "in_proj_b", "in_proj_a"), or two tensors with what belongs to a key head side by side ("in_proj_qkvz",
// "in_proj_ba"), or the last of these alone so and the others of their own.
enum class DeltaTensors : uint8_t { Apart, ByKeyHead, GatesByKeyHead };

struct DeltaSpec {
  int64_t key_heads = 0, value_heads = 0;
  int64_t key = 0, value = 0;  // sizes of a head
  int64_t taps = 0;            // rows that the convolution reads
  DeltaTensors tensors = DeltaTensors::Apart;
  double norm_eps = 1e-6;

  int64_t columns() const { return 2 * key_heads * key + value_heads * value; }  // queries, keys and values
};

// [T, N] -> [T, N]; further parameters conv1d, A_log, dt_bias, norm, out_proj; caches "conv", "delta".
Tensor delta_layer(Tensor x, const DeltaSpec& spec, StepInputs& in, int64_t layer, const ParamScope& p);

// attention() of layers.h, times sigmoid of a gate before o_proj; in q_proj each head's query has its gate behind it.
// Norms of heads are centred. Window, caps and sinks are not for it.
Tensor gated_attention(Tensor x, const AttentionSpec& spec, Tensor table, StepInputs& in, int64_t layer,
                       const ParamScope& p);

}  // namespace reprise::nn
