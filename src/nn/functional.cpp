#include "nn/functional.h"

namespace reprise::nn {
namespace {

Tensor one(std::string_view op, std::vector<Tensor> in, Attrs attrs = {}) {
  return in[0].tracer()->call(op, std::move(in), std::move(attrs))[0];
}

std::string name(Shard shard) {
  switch (shard) {
    case Shard::None: return "none";
    case Shard::Column: return "column";
    case Shard::Row: return "row";
  }
  return "none";
}

}  // namespace

Tensor embedding(Tensor table, Tensor ids, Shard shard) {
  return one("embedding", {table, ids}, {{"shard", name(shard)}});
}
Tensor linear(Tensor x, Tensor weight, Tensor bias, Shard shard) {
  return one("linear", {x, weight, bias}, {{"shard", name(shard)}});
}
Tensor linear_f32(Tensor x, Tensor weight, Shard shard, Tensor bias) {
  return one("linear", {x, weight, bias},
             {{"out", std::string(x.dtype() == DType::F32 ? "same" : "f32")}, {"shard", name(shard)}});
}
Tensor rms_norm(Tensor x, Tensor weight, double eps, Tensor bias) {
  return one("rms_norm", {x, weight, bias}, {{"eps", eps}});
}
Tensor rms_norm_centred(Tensor x, Tensor weight, double eps) {
  return one("rms_norm_centred", {x, weight}, {{"eps", eps}});
}
Tensor layer_norm(Tensor x, Tensor weight, double eps, Tensor bias) {
  return one("layer_norm", {x, weight, bias}, {{"eps", eps}});
}
Tensor add(Tensor a, Tensor b) { return one("add", {a, b}); }
Tensor mul(Tensor a, Tensor b) { return one("mul", {a, b}); }
Tensor silu(Tensor x) { return one("silu", {x}); }
Tensor gelu(Tensor x) { return one("gelu", {x}); }
Tensor gelu_tanh(Tensor x) { return one("gelu_tanh", {x}); }
Tensor scale(Tensor x, double by) { return by == 1 ? x : one("scale", {x}, {{"by", by}}); }
Tensor softcap(Tensor x, double cap) { return one("softcap", {x}, {{"cap", cap}}); }
Tensor heads(Tensor x, int64_t size) { return one("heads", {x}, {{"size", size}}); }
Tensor cache_rows(Tensor cache) { return one("cache_rows", {cache}); }
Tensor flatten(Tensor x) { return one("flatten", {x}); }
Tensor index_select(Tensor x, Tensor index) { return one("index_select", {x, index}); }

Tensor concat(Tensor a, Tensor b) { return one("concat", {a, b}); }
Tensor slice(Tensor x, int64_t begin, int64_t size) { return one("slice", {x}, {{"begin", begin}, {"size", size}}); }
Tensor copy(Tensor x) { return one("copy", {x}); }
Tensor reciprocal(Tensor x) { return one("reciprocal", {x}); }
Tensor argmax(Tensor x) { return one("argmax", {x}); }
Tensor mask_logits(Tensor logits, Tensor edits, Tensor words) { return one("mask_logits", {logits, edits, words}); }
Sampled sample(Tensor logits, Tensor draws, Tensor edited) {
  std::vector<Tensor> out = logits.tracer()->call("sample", {logits, draws, edited});
  out.resize(4, logits);  // after an error
  return {out[0], out[1], out[2], out[3]};
}
Tensor quantize_static(Tensor x, Tensor scale, Tensor offset) { return one("quantize_static", {x, scale, offset}); }
Quantized quantize_dynamic(Tensor x) {
  const std::vector<Tensor> out = x.tracer()->call("quantize_dynamic", {x});
  return {out[0], out.size() > 1 ? out[1] : out[0]};
}
Tensor linear_w8a8_static(Tensor x, Tensor weight, Tensor scale, Tensor bias, DType out, Tensor add, Shard shard) {
  return one("linear_w8a8_static", {x, weight, scale, bias, add},
             {{"out", std::string(dtype_name(out))}, {"shard", name(shard)}});
}
Tensor linear_w8a8_dynamic(Quantized x, Tensor weight, Tensor scale, DType out, Tensor add, Shard shard) {
  return one("linear_w8a8_dynamic", {x.values, x.scale, weight, scale, add},
             {{"out", std::string(dtype_name(out))}, {"shard", name(shard)}});
}

Tensor rope_table(Tensor positions, const RopeSpec& s) {
  return one("rope_table", {positions},
             {{"dim", s.dim},
              {"inv_freq", s.inv_freq},
              {"scale", s.scale},
              {"ntk_base", s.ntk_base},
              {"ntk_factor", s.ntk_factor},
              {"ntk_window", s.ntk_window}});
}
Tensor rope(Tensor x, Tensor table) { return one("rope", {x, table}); }
Tensor rope_interleaved(Tensor x, Tensor table) { return one("rope", {x, table}, {{"interleaved", int64_t{1}}}); }

Tensor kv_write(Tensor kv, Tensor k, Tensor v, Tensor slots) { return one("kv_write", {kv, k, v, slots}); }
Tensor paged_attention(Tensor q, Tensor kv, Tensor page_table, Tensor context_lens, Tensor cu_seqlens, double scale,
                       int64_t window, double softcap, Tensor sinks) {
  return one("paged_attention", {q, kv, page_table, context_lens, cu_seqlens, sinks},
             {{"scale", scale}, {"window", window}, {"softcap", softcap}});
}

Tensor per_head_matmul(Tensor x, Tensor weight) { return one("per_head_matmul", {x, weight}); }
Tensor row_write(Tensor cache, Tensor rows, Tensor slots) { return one("row_write", {cache, rows, slots}); }
Tensor latent_attention(Tensor q, Tensor q_rope, Tensor c_kv, Tensor k_pe, Tensor page_table, Tensor context_lens,
                        Tensor cu_seqlens, double scale) {
  return one("latent_attention", {q, q_rope, c_kv, k_pe, page_table, context_lens, cu_seqlens}, {{"scale", scale}});
}

Gated moe_gate(Tensor logits, Tensor slots, Tensor bias, const GateSpec& s) {
  const std::vector<Tensor> out = logits.tracer()->call("moe_gate", {logits, slots, bias},
                                                        {{"top_k", s.top_k},
                                                         {"score", s.score},
                                                         {"normalise", int64_t{s.normalise}},
                                                         {"scale", s.scale},
                                                         {"eps", s.eps},
                                                         {"groups", s.groups},
                                                         {"top_groups", s.top_groups},
                                                         {"group_score", s.group_score}});
  return {out[0], out.back()};  // one handle alone after an error
}
Routed moe_route(Tensor experts, int64_t first, int64_t count) {
  const std::vector<Tensor> out = experts.tracer()->call("moe_route", {experts}, {{"first", first}, {"count", count}});
  if (out.size() < 3) return {out[0], out[0], out[0]};
  return {out[0], out[1], out[2]};
}
Tensor grouped_linear(Tensor x, Tensor starts, Tensor weight, Shard shard) {
  return one("grouped_linear", {x, starts, weight}, {{"shard", name(shard)}});
}
Tensor add_groups(Tensor x, Tensor starts, Tensor bias) { return one("add_groups", {x, starts, bias}); }
Tensor swiglu_clamped(Tensor gate, Tensor up, double alpha, double limit) {
  return one("swiglu_clamped", {gate, up}, {{"alpha", alpha}, {"limit", limit}});
}
Tensor moe_combine(Tensor y, Tensor weights, Tensor place) { return one("moe_combine", {y, weights, place}); }
Tensor sigmoid(Tensor x) { return one("sigmoid", {x}); }
Tensor scale_rows(Tensor x, Tensor scale) { return one("scale_rows", {x, scale}); }

}  // namespace reprise::nn
