#include "nn/layers.h"

#include <cmath>

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

Tensor rms_norm(Tensor x, const ParamScope& p, double eps) { return rms_norm(x, p.param("weight", {x.dim(-1)}), eps); }

Tensor attention(Tensor x, const AttentionSpec& s, Tensor table, StepInputs& in, int64_t layer, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  Tensor q = heads(linear(x, p / "q_proj", s.heads * s.head_dim, s.qkv_bias, Shard::Column), s.head_dim);
  Tensor k = heads(linear(x, p / "k_proj", s.kv_heads * s.head_dim, s.qkv_bias, Shard::Column), s.head_dim);
  Tensor v = heads(linear(x, p / "v_proj", s.kv_heads * s.head_dim, s.qkv_bias, Shard::Column), s.head_dim);
  if (s.qk_norm_eps > 0) {
    q = rms_norm(q, p / "q_norm", s.qk_norm_eps);
    k = rms_norm(k, p / "k_norm", s.qk_norm_eps);
  }
  q = rope(q, table);
  k = rope(k, table);
  Tensor& kv = in.cache("kv", layer);
  kv = kv_write(kv, k, v, in.slots);
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  Tensor a = paged_attention(q, kv, in.page_table, in.context_lens, in.cu_seqlens, scale, s.window);
  return linear(flatten(a), p / "o_proj", hidden.factor, s.output_bias, Shard::Row);
}

Tensor gated_mlp(Tensor x, int64_t intermediate, bool bias, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  Tensor gate = linear(x, p / "gate_proj", intermediate, bias, Shard::Column);
  Tensor up = linear(x, p / "up_proj", intermediate, bias, Shard::Column);
  return linear(mul(silu(gate), up), p / "down_proj", hidden.factor, bias, Shard::Row);
}

}  // namespace reprise::nn
