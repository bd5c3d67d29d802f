#include "nn/experts.h"

namespace reprise::nn {

Result<ExpertRange> expert_range(int64_t experts, int64_t rank, int64_t ranks) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return invalid("rank {} of {} does not exist", rank, ranks);
  if (experts < ranks)
    return invalid("{} experts cannot be shared by {} ranks; allowed: 1 to {}", experts, ranks, experts);
  const int64_t first = experts * rank / ranks;
  return ExpertRange{first, experts * (rank + 1) / ranks - first};
}

Tensor moe(Tensor x, const ExpertSpec& s, const StepInputs& in, const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const ExpertRange here = s.here.count > 0 ? s.here : ExpertRange{0, s.count};
  const ParamScope router = p / "gate", experts = p / "experts";
  const Tensor router_bias = s.bias ? router.param("bias", {Dim(s.count)}) : Tensor{};
  Tensor logits = linear_f32(x, router.param("weight", {Dim(s.count), hidden}), Shard::None, router_bias);
  GateSpec gate{s.per_token, s.score, s.normalise, s.scale, s.eps, s.groups, s.top_groups, s.group_score};
  Tensor bias = s.choice_bias ? router.param("e_score_correction_bias", {Dim(s.count)}, DType::F32) : Tensor{};
  Gated chosen = moe_gate(logits, in.slots, bias, gate);
  if (s.weighs_input) {
    CHECK(s.per_token == 1 && s.latent == 0, "a row has one input, so it cannot be weighted for {} experts",
          s.per_token);
    x = scale_rows(x, chosen.weights);
    // The share of one expert in itself: 1, whatever its score is.
    chosen = moe_gate(logits, in.slots, bias, {.normalise = true});
  }
  const Routed routed = moe_route(chosen.experts, here.first, here.count);
  const auto product = [&](Tensor rows, std::string_view name, int64_t features, Shard shard) {
    const Shape shape{Dim(here.count), Dim(features), rows.dim(-1)};
    const int64_t end = here.first + here.count;
    Tensor stack = experts.stacked(here.first, end, std::string(name) + ".weight", shape);
    Tensor y = grouped_linear(rows, routed.starts, stack, shard);
    if (!s.bias) return y;
    const Shape each{Dim(here.count), Dim(features)};
    return add_groups(y, routed.starts, experts.stacked(here.first, end, std::string(name) + ".bias", each));
  };
  const Tensor rows = s.latent > 0 ? linear(x, p / "fc1_latent_proj", s.latent, false, Shard::None) : x;
  Tensor sorted = index_select(rows, routed.token);
  Tensor gate_part = s.gated ? product(sorted, "gate_proj", s.intermediate, Shard::Column) : Tensor{};
  Tensor up_part = product(sorted, "up_proj", s.intermediate, Shard::Column);
  Tensor inner = !s.gated             ? activate(up_part, "relu_squared")
                 : s.swiglu_limit > 0 ? swiglu_clamped(gate_part, up_part, s.swiglu_alpha, s.swiglu_limit)
                                      : mul(silu(gate_part), up_part);
  Tensor y = product(inner, "down_proj", rows.dim(-1).factor, Shard::Row);
  y = moe_combine(y, chosen.weights, routed.place);
  return s.latent > 0 ? linear(y, p / "fc2_latent_proj", hidden.factor, false, Shard::None) : y;
}

Tensor gated_shared_expert(Tensor x, int64_t intermediate, const ParamScope& p, std::string_view name) {
  Tensor gate = (p / (std::string(name) + "_gate")).param("weight", {Dim(1), x.dim(-1)});
  const Tensor share = sigmoid(linear_f32(x, gate));  // by itself, as compilers differ in the order of arguments
  return scale_rows(gated_mlp(x, intermediate, false, p / name), share);
}

}  // namespace reprise::nn
