#include "nn/functional.h"

namespace reprise::nn {
namespace {

std::string name(Shard shard) {
  switch (shard) {
    case Shard::None: return "none";
    case Shard::Column: return "column";
    case Shard::Row: return "row";
  }
  return "none";
}

}  // namespace

Tensor call_op(std::string_view op, std::vector<Tensor> in, Attrs attrs) {
  return in[0].tracer()->call(op, std::move(in), std::move(attrs))[0];
}
Tensor embedding(Tensor table, Tensor ids, Shard shard) {
  return call_op("embedding", {table, ids}, {{"shard", name(shard)}});
}
Tensor linear(Tensor x, Tensor weight, Tensor bias, Shard shard) {
  return call_op("linear", {x, weight, bias}, {{"shard", name(shard)}});
}
Tensor linear_f32(Tensor x, Tensor weight, Shard shard, Tensor bias) {
  return call_op("linear", {x, weight, bias},
                 {{"out", std::string(x.dtype() == DType::F32 ? "same" : "f32")}, {"shard", name(shard)}});
}
Tensor rms_norm(Tensor x, Tensor weight, double eps, Tensor bias) {
  return call_op("rms_norm", {x, weight, bias}, {{"eps", eps}});
}
Tensor rms_norm_centred(Tensor x, Tensor weight, double eps) {
  return call_op("rms_norm_centred", {x, weight}, {{"eps", eps}});
}
Tensor unit_rms_norm(Tensor x, double eps) { return call_op("unit_rms_norm", {x}, {{"eps", eps}}); }
Tensor layer_norm(Tensor x, Tensor weight, double eps, Tensor bias) {
  return call_op("layer_norm", {x, weight, bias}, {{"eps", eps}});
}
Tensor scale(Tensor x, double by) { return by == 1 ? x : call_op("scale", {x}, {{"by", by}}); }
Tensor softcap(Tensor x, double cap) { return call_op("softcap", {x}, {{"cap", cap}}); }
Tensor heads(Tensor x, int64_t size) { return call_op("heads", {x}, {{"size", size}}); }

Tensor slice(Tensor x, int64_t begin, int64_t size) {
  return call_op("slice", {x}, {{"begin", begin}, {"size", size}});
}
Sampled sample(Tensor logits, Tensor draws, Tensor edited) {
  std::vector<Tensor> out = logits.tracer()->call("sample", {logits, draws, edited});
  out.resize(4, logits);  // after an error
  return {out[0], out[1], out[2], out[3]};
}
Quantized quantize_dynamic(Tensor x) {
  const std::vector<Tensor> out = x.tracer()->call("quantize_dynamic", {x});
  return {out[0], out.size() > 1 ? out[1] : out[0]};
}
Tensor linear_w8a8_static(Tensor x, Tensor weight, Tensor scale, Tensor bias, DType out, Tensor add, Shard shard) {
  return call_op("linear_w8a8_static", {x, weight, scale, bias, add},
                 {{"out", std::string(dtype_name(out))}, {"shard", name(shard)}});
}
Tensor linear_w8a8_dynamic(Quantized x, Tensor weight, Tensor scale, DType out, Tensor add, Shard shard) {
  return call_op("linear_w8a8_dynamic", {x.values, x.scale, weight, scale, add},
                 {{"out", std::string(dtype_name(out))}, {"shard", name(shard)}});
}

Tensor position_scale(Tensor positions, std::vector<double> factors, int64_t period, int64_t offset) {
  return call_op("position_scale", {positions},
                 {{"factors", std::move(factors)}, {"period", period}, {"offset", offset}});
}
Tensor rope_table(Tensor positions, const RopeSpec& s) {
  return call_op("rope_table", {positions},
                 {{"dim", s.dim},
                  {"inv_freq", s.inv_freq},
                  {"scale", s.scale},
                  {"ntk_base", s.ntk_base},
                  {"ntk_factor", s.ntk_factor},
                  {"ntk_window", s.ntk_window}});
}
Tensor rope(Tensor x, Tensor table) { return call_op("rope", {x, table}); }
Tensor rope_interleaved(Tensor x, Tensor table) { return call_op("rope", {x, table}, {{"interleaved", int64_t{1}}}); }

Tensor paged_attention(Tensor q, Tensor kv, Tensor page_table, Tensor context_lens, Tensor cu_seqlens, double scale,
                       const AttentionMask& mask, Tensor sinks) {
  return call_op("paged_attention", {q, kv, page_table, context_lens, cu_seqlens, sinks},
                 {{"scale", scale}, {"window", mask.window}, {"softcap", mask.softcap}, {"chunk", mask.chunk}});
}

Tensor latent_attention(Tensor q, Tensor q_rope, Tensor c_kv, Tensor k_pe, Tensor page_table, Tensor context_lens,
                        Tensor cu_seqlens, double scale) {
  return call_op("latent_attention", {q, q_rope, c_kv, k_pe, page_table, context_lens, cu_seqlens}, {{"scale", scale}});
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
  return call_op("grouped_linear", {x, starts, weight}, {{"shard", name(shard)}});
}
Tensor swiglu_clamped(Tensor gate, Tensor up, double alpha, double limit) {
  return call_op("swiglu_clamped", {gate, up}, {{"alpha", alpha}, {"limit", limit}});
}

}  // namespace reprise::nn
