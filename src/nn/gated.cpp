#include "nn/gated.h"

#include <cmath>

#include "nn/row_ranges.h"
#include "nn/states.h"

namespace reprise::nn {
namespace {

struct Projected {
  Tensor qkv, z, b, a;
};

Projected project(Tensor x, const DeltaSpec& s, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const int64_t values = s.value_heads * s.value;
  const auto of = [&](std::string_view name, int64_t features) {
    return linear(x, p / name, features, false, Shard::Column);
  };
  if (s.tensors == DeltaTensors::Apart)
    return {of("in_proj_qkv", s.columns()), of("in_proj_z", values), of("in_proj_b", s.value_heads),
            of("in_proj_a", s.value_heads)};
  // Each key head has a query, a key, the values of its heads, their gates; and b of its heads, then a.
  const int64_t heads = s.value_heads / s.key_heads, own = heads * s.value, each = 2 * (s.key + own);
  const ParamScope qkvz = p / "in_proj_qkvz", ba = p / "in_proj_ba";
  const RowRanges qkv{"weight", {{0, s.key}, {s.key, s.key}, {2 * s.key, own}}, each};
  const auto rows = [&](const ParamScope& from, int64_t first, int64_t count, int64_t all, int64_t features) {
    return linear(x, from.row_groups("weight", first, count, all, false, {Dim(features), hidden}), {}, Shard::Column);
  };
  Projected y;
  if (s.tensors == DeltaTensors::ByKeyHead) {
    y.qkv = linear(x, qkvz.param(qkv.text(), {Dim(s.columns()), hidden}), {}, Shard::Column);
    y.z = rows(qkvz, 2 * s.key + own, own, each, values);
  } else {
    y.qkv = of("in_proj_qkv", s.columns());
    y.z = of("in_proj_z", values);
  }
  y.b = rows(ba, 0, heads, 2 * heads, s.value_heads);
  y.a = rows(ba, heads, heads, 2 * heads, s.value_heads);
  return y;
}

}  // namespace

Tensor delta_layer(Tensor x, const DeltaSpec& s, StepInputs& in, int64_t layer, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const Projected y = project(x, s, p);
  const Tensor weight = (p / "conv1d").param("weight", {Dim(s.columns()), Dim(1), Dim(s.taps)});
  const Tensor qkv = continued("causal_conv", in.cache("conv", layer), {y.qkv, weight}, in);
  const Tensor a_log = p.param("A_log", {Dim(s.value_heads)}, DType::F32),
               dt_bias = p.param("dt_bias", {Dim(s.value_heads)}, DType::F32);
  Tensor& state = in.cache("delta", layer);
  Attrs attrs{{"key_heads", s.key_heads}};
  if (!in.drafts.absent()) attrs.set("most_drafts", drafts_of_conv(in.cache("conv", layer), s.taps));
  const Tensor o = continued("gated_delta", state, {qkv, y.b, y.a, a_log, dt_bias}, in, std::move(attrs));
  const Tensor normed = flatten(rms_norm(o, p / "norm", s.norm_eps));
  return linear(mul(silu(y.z), normed), p / "out_proj", hidden.factor, false, Shard::Row);
}

Tensor gated_attention(Tensor x, const AttentionSpec& s, Tensor table, StepInputs& in, int64_t layer,
                       const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const int64_t d = s.head_dim, query = s.heads * d, key = s.kv_heads * d;
  const auto half = [&](int64_t first) {
    const ParamScope q = p / "q_proj";
    const Tensor weight = q.row_groups("weight", first, d, 2 * d, false, {Dim(query), hidden});
    const Tensor bias = s.qkv_bias ? q.row_groups("bias", first, d, 2 * d, false, {Dim(query)}) : Tensor{};
    return linear(x, weight, bias, Shard::Column);
  };
  const auto prepared = [&](Tensor rows, std::string_view norm) {
    return rope(rms_norm_centred(heads(rows, d), p / norm, s.qk_norm_eps), table);
  };
  const Tensor q = prepared(half(0), s.q_norm), gate = half(d);
  const Tensor k = prepared(linear(x, p / "k_proj", key, s.qkv_bias, Shard::Column), s.k_norm);
  const Tensor v = heads(linear(x, p / "v_proj", key, s.qkv_bias, Shard::Column), d);
  Tensor& kv = in.cache("kv", layer);
  kv = kv_write(kv, k, v, in.slots);
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  const Tensor a = paged_attention(q, kv, in.page_table, in.context_lens, in.cu_seqlens, scale);
  return linear(mul(flatten(a), sigmoid(gate)), p / "o_proj", hidden.factor, s.output_bias, Shard::Row);
}

}  // namespace reprise::nn
