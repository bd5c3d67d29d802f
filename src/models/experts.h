// expert_spec: how a configuration says that a layer chooses and weighs its experts; and names of experts that several
// families have. A plain function; any thread.
#pragma once

#include "checkpoint/config.h"
#include "nn/experts.h"

namespace reprise::models {

inline nn::ExpertSpec expert_spec(const checkpoint::ExpertFields& e) {
  return {.count = e.count,
          .per_token = e.per_token,
          .intermediate = e.intermediate,
          .here = {},
          .score = e.score,
          .normalise = e.normalise,
          .scale = e.scale,
          .groups = e.groups,
          .top_groups = e.top_groups,
          .group_score = e.group_score,
          .choice_bias = e.choice_bias};
}

// Shared experts where there may be several.
inline constexpr checkpoint::GgufTensorName kSharedExpertTensors[] = {
    {"ffn_gate_shexp.", "mlp.shared_experts.gate_proj."},
    {"ffn_up_shexp.", "mlp.shared_experts.up_proj."},
    {"ffn_down_shexp.", "mlp.shared_experts.down_proj."}};

}  // namespace reprise::models
