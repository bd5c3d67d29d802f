// The ops models are written in, one function each. Shapes as in ops/core.h: T tokens, R sequences, H and G heads of
// size D, N features. Every result is rounded once to its dtype. Plain functions; the trace that their tensors belong
// to is one thread's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/tracer.h"

namespace reprise::nn {

// How a weight is split over ranks: by output features (Column), by input features (Row), or not at all.
enum class Shard { None, Column, Row };

// The only result of a call of the op.
Tensor call_op(std::string_view op, std::vector<Tensor> in, Attrs attrs = {});

// [V, N], [T] -> [T, N]
Tensor embedding(Tensor table, Tensor ids, Shard shard = Shard::Column);
// [T, K], [N, K], [N]? -> [T, N]
Tensor linear(Tensor x, Tensor weight, Tensor bias = {}, Shard shard = Shard::None);
// The same with an fp32 result: logits are not rounded to the model's dtype.
Tensor linear_f32(Tensor x, Tensor weight, Shard shard = Shard::None, Tensor bias = {});
// over the last size of [T, N] or [T, H, D]; the bias, of that size, is there where a quantisation has moved outliers
Tensor rms_norm(Tensor x, Tensor weight, double eps, Tensor bias = {});
// the same with 1 + weight
Tensor rms_norm_centred(Tensor x, Tensor weight, double eps);
// the same without a weight
Tensor unit_rms_norm(Tensor x, double eps);
// the weight, and the bias if there is one, of the last size or of the last two
Tensor layer_norm(Tensor x, Tensor weight, double eps, Tensor bias = {});
inline Tensor add(Tensor a, Tensor b) { return call_op("add", {a, b}); }
inline Tensor mul(Tensor a, Tensor b) { return call_op("mul", {a, b}); }
inline Tensor silu(Tensor x) { return call_op("silu", {x}); }
inline Tensor gelu(Tensor x) { return call_op("gelu", {x}); }
inline Tensor gelu_tanh(Tensor x) { return call_op("gelu_tanh", {x}); }
Tensor scale(Tensor x, double by);     // x itself by 1
Tensor softcap(Tensor x, double cap);  // cap tanh(x / cap)
// [T, H*D] -> [T, H, D] and back, same bytes
Tensor heads(Tensor x, int64_t size);
inline Tensor flatten(Tensor x) { return call_op("flatten", {x}); }
// [T, N], [R] -> [R, N]
inline Tensor index_select(Tensor x, Tensor index) { return call_op("index_select", {x, index}); }

// [T, N] -> [T, size] or [T, H, N] -> [T, H, size]: columns [begin, begin + size)
Tensor slice(Tensor x, int64_t begin, int64_t size);
// [T, N], [T, M] -> [T, N + M]
inline Tensor concat(Tensor a, Tensor b) { return call_op("concat", {a, b}); }
inline Tensor copy(Tensor x) { return call_op("copy", {x}); }
inline Tensor reciprocal(Tensor x) { return call_op("reciprocal", {x}); }
// [L, V] -> [L] i32, the smallest index on ties
inline Tensor argmax(Tensor x) { return call_op("argmax", {x}); }
// [L, V] fp32 logits, [E, 10] i32 edits (ops/logit_edit.h), what they point at -> [E, V]
inline Tensor mask_logits(Tensor logits, Tensor edits, Tensor words) {
  return call_op("mask_logits", {logits, edits, words});
}
// [L, V] fp32 logits and [L, 10] i32 draws (ops/draw.h), which name rows of `edited`.
struct Sampled {
  Tensor token;                     // [L] i32
  Tensor logprob;                   // [L] fp32, of the token
  Tensor top_tokens, top_logprobs;  // [L, 20] i32 and fp32, best first
};
Sampled sample(Tensor logits, Tensor draws, Tensor edited = {});
// [T, N], [N] or [1], [N] or [1] -> [T, N] i8: round(x * scale + offset)
inline Tensor quantize_static(Tensor x, Tensor scale, Tensor offset) {
  return call_op("quantize_static", {x, scale, offset});
}
struct Quantized {
  Tensor values;  // [T, N] i8
  Tensor scale;   // [T, 1] f32
};
Quantized quantize_dynamic(Tensor x);
// Products of int8, [T, K] and [N, K] with one scale per row of the weight, summed in int32; `add` [N] f32 comes last.
// x is the result of quantize_static with one scale for all of it: bias [N] i32 and scale carry its share.
Tensor linear_w8a8_static(Tensor x, Tensor weight, Tensor scale, Tensor bias, DType out, Tensor add = {},
                          Shard shard = Shard::None);
Tensor linear_w8a8_dynamic(Quantized x, Tensor weight, Tensor scale, DType out, Tensor add = {},
                           Shard shard = Shard::None);

// Rotary position embedding. Frequencies and the scale come from models/rope.h.
struct RopeSpec {
  int64_t dim = 0;               // rotated dimensions of a head, even
  std::vector<double> inv_freq;  // dim / 2
  double scale = 1;              // yarn's attention factor, on cos and sin
  double ntk_base = 0;           // dynamic NTK: base, factor and window; 0 window = off
  double ntk_factor = 0;
  int64_t ntk_window = 0;
};
// [T] -> [T, 1] f32: factors[(position + offset) / period], behind the list its last one.
Tensor position_scale(Tensor positions, std::vector<double> factors, int64_t period, int64_t offset = 0);
Tensor rope_table(Tensor positions, const RopeSpec& spec);  // [T] -> [T, dim] f32
Tensor rope(Tensor x, Tensor table);                        // [T, H, D]
Tensor rope_interleaved(Tensor x, Tensor table);            // pairs of neighbours, put apart

// Writes k and v [T, G, D] into the cache and returns the cache as it is afterwards.
inline Tensor kv_write(Tensor kv, Tensor k, Tensor v, Tensor slots) { return call_op("kv_write", {kv, k, v, slots}); }
// What keys a row attends to, and how; 0: all, and no cap.
struct AttentionMask {
  int64_t window = 0, chunk = 0;  // not both
  double softcap = 0;
};
// sinks [H] f32, or none: a score of each head that has no value
Tensor paged_attention(Tensor q, Tensor kv, Tensor page_table, Tensor context_lens, Tensor cu_seqlens, double scale,
                       const AttentionMask& mask = {}, Tensor sinks = {});

// Every head times its own matrix: [T, H, K], [H, N, K] -> [T, H, N].
inline Tensor per_head_matmul(Tensor x, Tensor weight) { return call_op("per_head_matmul", {x, weight}); }
// Writes rows [T, N] into a cache [P, 128, N] and returns the cache as it is afterwards.
inline Tensor row_write(Tensor cache, Tensor rows, Tensor slots) { return call_op("row_write", {cache, rows, slots}); }
// [P, 128, N] -> [P * 128, N], same bytes: rows by slot
inline Tensor cache_rows(Tensor cache) { return call_op("cache_rows", {cache}); }
// [T, H, C], [T, H, D] -> [T, H, C]: keys are latents with ropes behind them, values the latents.
Tensor latent_attention(Tensor q, Tensor q_rope, Tensor c_kv, Tensor k_pe, Tensor page_table, Tensor context_lens,
                        Tensor cu_seqlens, double scale);

// A layer of experts, as ops/experts.cpp has it: E experts of which a token goes to k.
struct GateSpec {
  int64_t top_k = 1;
  std::string score = "softmax";  // or sigmoid
  bool normalise = false;
  double scale = 1, eps = 0;
  int64_t groups = 1, top_groups = 1;
  std::string group_score = "max";  // or top2
};
struct Gated {
  Tensor weights;  // [T, k] f32
  Tensor experts;  // [T, k] i32
};
Gated moe_gate(Tensor logits, Tensor slots, Tensor bias, const GateSpec& spec);
struct Routed {
  Tensor token;   // [T k], the row that each sorted row reads
  Tensor place;   // [T, k], where each choice went
  Tensor starts;  // [count + 1]
};
Routed moe_route(Tensor experts, int64_t first, int64_t count);
// [S, K], [E + 1], [E, N, K] -> [S, N]: rows of each group times a matrix of their own
Tensor grouped_linear(Tensor x, Tensor starts, Tensor weight, Shard shard = Shard::None);
// [S, N], [E + 1], [E, N] -> [S, N]: rows of each group and a bias of their own
inline Tensor add_groups(Tensor x, Tensor starts, Tensor bias) { return call_op("add_groups", {x, starts, bias}); }
// (u + 1) g / (1 + exp(-alpha g)), where g is min(gate, limit) and u is up between -limit and limit
Tensor swiglu_clamped(Tensor gate, Tensor up, double alpha, double limit);
// [T k, N], [T, k] f32, [T, k] -> [T, N]
inline Tensor moe_combine(Tensor y, Tensor weights, Tensor place) {
  return call_op("moe_combine", {y, weights, place});
}
inline Tensor sigmoid(Tensor x) { return call_op("sigmoid", {x}); }
inline Tensor scale_rows(Tensor x, Tensor scale) { return call_op("scale_rows", {x, scale}); }  // [T, N], [T, 1] f32

}  // namespace reprise::nn
