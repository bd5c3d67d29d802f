#include "nn/mamba.h"

#include "nn/states.h"

namespace reprise::nn {
namespace {

// silu(convolution of x, B and C)
Tensor convolved(Tensor xbc, const MambaSpec& s, StepInputs& in, int64_t layer, const ParamScope& p) {
  const int64_t columns = s.columns();
  const Tensor weight = p.param("weight", {Dim(columns), Dim(1), Dim(s.taps)});
  Tensor& cache = in.cache("conv", layer);
  if (!s.conv_bias) return continued("causal_conv", cache, {xbc, weight}, in);
  return continued("causal_conv_biased", cache, {xbc, weight, p.param("bias", {Dim(columns)})}, in);
}

// The norm of each group of y silu(gate).
Tensor normed(Tensor y, Tensor gate, const MambaSpec& s, const ParamScope& p) {
  const Tensor weight = p.param("weight", {Dim(s.inner())});
  return y.tracer()->call("rms_norm_gated", {y, gate, weight}, {{"groups", s.groups}, {"eps", s.norm_eps}})[0];
}

}  // namespace

Tensor mamba_layer(Tensor x, const MambaSpec& s, StepInputs& in, int64_t layer, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const int64_t inner = s.inner(), columns = s.columns(), all = inner + columns + s.heads;
  const ParamScope from = p / "in_proj";
  const auto rows = [&](int64_t first, int64_t features) {
    const Tensor weight = from.rows("weight", first, features, all, {Dim(features), hidden});
    return linear(x, weight, s.proj_bias ? from.rows("bias", first, features, all, {Dim(features)}) : Tensor{});
  };
  const Tensor z = rows(0, inner), xbc = rows(inner, columns), dt = rows(inner + columns, s.heads);
  const Tensor y = convolved(xbc, s, in, layer, p / "conv1d");
  const auto number = [&](std::string_view name) { return p.param(name, {Dim(s.heads)}, DType::F32); };
  const Tensor a_log = number("A_log"), dt_bias = number("dt_bias"), d = number("D");
  Attrs attrs{{"groups", s.groups}, {"least_step", s.least_step}, {"most_step", s.most_step}};
  if (!in.drafts.absent()) attrs.set("most_drafts", drafts_of_conv(in.cache("conv", layer), s.taps));
  const Tensor o = continued("state_space", in.cache("space", layer), {y, dt, a_log, dt_bias, d}, in, std::move(attrs));
  return linear(normed(flatten(o), z, s, p / "norm"), p / "out_proj", hidden.factor, s.proj_bias, Shard::None);
}

}  // namespace reprise::nn
