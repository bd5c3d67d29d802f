#include "nn/layers.h"

#include <cmath>

#include "base/check.h"
#include "nn/encoder.h"

namespace reprise::nn {

Tensor StepInputs::more(std::string_view name) const {
  const auto it = added.find(name);
  CHECK(it != added.end(), "the model declares no input {}", name);
  return it->second;
}

Tensor& StepInputs::cache(std::string_view name, int64_t layer) {
  const auto it = caches.find(cache_name(name, layer));
  CHECK(it != caches.end(), "the model declares no cache {}", cache_name(name, layer));
  return it->second;
}

Tensor linear(Tensor x, const ParamScope& p, int64_t features, bool bias, Shard shard) {
  Tensor weight = p.param("weight", {Dim(features), x.dim(-1)});
  return linear(x, weight, bias ? p.param("bias", {Dim(features)}) : Tensor{}, shard);
}

Tensor linear_rows(Tensor x, const ParamScope& p, int64_t first, int64_t features, int64_t of, Shard shard) {
  return linear(x, p.rows("weight", first, features, of, {Dim(features), x.dim(-1)}), {}, shard);
}

Tensor rms_norm(Tensor x, const ParamScope& p, double eps) { return rms_norm(x, p.param("weight", {x.dim(-1)}), eps); }
Tensor rms_norm_centred(Tensor x, const ParamScope& p, double eps) {
  return rms_norm_centred(x, p.param("weight", {x.dim(-1)}), eps);
}
Tensor unit_rms_norm(Tensor x, const ParamScope&, double eps) { return unit_rms_norm(x, eps); }
Tensor layer_norm(Tensor x, const ParamScope& p, double eps) {
  return layer_norm(x, p.param("weight", {x.dim(-1)}), eps);
}
Tensor layer_norm_biased(Tensor x, const ParamScope& p, double eps) {
  return layer_norm(x, p.param("weight", {x.dim(-1)}), eps, p.param("bias", {x.dim(-1)}));
}
Tensor layer_norm_of_heads(Tensor x, const ParamScope& p, double eps) {
  return layer_norm(x, p.param("weight", {x.dim(-2), x.dim(-1)}), eps);
}

Tensor activate(Tensor x, std::string_view activation) {
  if (activation == "gelu") return gelu(x);
  if (activation == "gelu_tanh") return gelu_tanh(x);
  if (activation == "relu_squared") return x.tracer()->call("relu_squared", {x})[0];
  CHECK(activation == "silu", "there is no activation {}", activation);
  return silu(x);
}

namespace {

Tensor rotate(Tensor x, Tensor table, Rotation rotation) {
  switch (rotation) {
    case Rotation::None: return x;
    case Rotation::Halves: return rope(x, table);
    case Rotation::Neighbours: return rope_interleaved(x, table);
  }
  return x;
}

// Query or key heads out of their projection: normed and rotated.
Tensor prepared(Tensor x, const AttentionSpec& s, Tensor table, const ParamScope& norm) {
  const bool normed = s.qk_norm_eps > 0;
  if (normed && s.qk_norm == QkNorm::Row) x = s.norm(x, norm, s.qk_norm_eps);
  x = heads(x, s.head_dim);
  if (normed && s.qk_norm == QkNorm::Heads) x = s.norm(x, norm, s.qk_norm_eps);
  x = rotate(x, table, s.rotation);
  if (normed && s.qk_norm == QkNorm::Rotated) x = s.norm(x, norm, s.qk_norm_eps);
  return x;
}

}  // namespace

Tensor attention(Tensor x, const AttentionSpec& s, Tensor table, StepInputs& in, int64_t layer, const ParamScope& p) {
  const Dim hidden = s.out > 0 ? Dim(s.out) : x.dim(-1);
  const int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim;
  const auto project = [&](std::string_view name, int64_t first, int64_t features) {
    if (s.fused) return linear_rows(x, p / "qkv_proj", first, features, query + 2 * key, Shard::Column);
    return linear(x, p / name, features, s.qkv_bias, Shard::Column);
  };
  Tensor q = project("q_proj", 0, query);
  Tensor k = project("k_proj", query, key);
  Tensor v = heads(project("v_proj", query + key, key), s.head_dim);
  q = prepared(q, s, table, p / s.q_norm);
  k = prepared(k, s, table, p / s.k_norm);
  if (s.query_factor.value()) q = heads(scale_rows(flatten(q), s.query_factor), s.head_dim);
  const double scale = s.scale != 0 ? s.scale : 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  if (s.both_sides) {
    CHECK(s.softcap == 0 && !s.sinks, "attention to both sides has no caps of scores and no sinks");
    const Tensor seen = segment_attention(q, k, v, in.cu_seqlens, scale, s.window);
    return linear(flatten(seen), p / "o_proj", hidden.factor, s.output_bias, Shard::Row);
  }
  Tensor& kv = in.cache("kv", layer);
  kv = kv_write(kv, k, v, in.slots);
  const Tensor sinks = s.sinks ? p.param("sinks", {Dim(s.heads)}, DType::F32) : Tensor{};
  const AttentionMask mask{.window = s.window, .chunk = s.chunk, .softcap = s.softcap};
  Tensor a = paged_attention(q, kv, in.page_table, in.context_lens, in.cu_seqlens, scale, mask, sinks);
  return linear(flatten(a), p / "o_proj", hidden.factor, s.output_bias, Shard::Row);
}

Tensor gated_mlp(Tensor x, const MlpSpec& s, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const auto project = [&](std::string_view name, int64_t first) {
    if (s.fused) return linear_rows(x, p / "gate_up_proj", first, s.intermediate, 2 * s.intermediate, Shard::Column);
    return linear(x, p / name, s.intermediate, s.bias, Shard::Column);
  };
  Tensor gate = project("gate_proj", 0);
  Tensor up = project("up_proj", s.intermediate);
  return linear(mul(activate(gate, s.activation), up), p / "down_proj", hidden.factor, s.bias, Shard::Row);
}

Tensor gated_mlp(Tensor x, int64_t intermediate, bool bias, const ParamScope& p) {
  return gated_mlp(x, {.intermediate = intermediate, .bias = bias}, p);
}

}  // namespace reprise::nn
