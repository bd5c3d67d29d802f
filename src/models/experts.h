// expert_spec: how a configuration says that a layer chooses and weighs its experts. A plain function; any thread.
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

}  // namespace reprise::models
