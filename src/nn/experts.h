// A layer of experts: a router chooses a few of many small gated MLPs for every token, and their results are added up
// by weight. Shared experts are ordinary MLPs next to it and the model's own business.
#pragma once

#include <string>

#include "nn/layers.h"

namespace reprise::nn {

// The experts that one of several ranks holds.
struct ExpertRange {
  int64_t first = 0, count = 0;
};
// In order, none without experts; counts differ by at most one.
Result<ExpertRange> expert_range(int64_t experts, int64_t rank, int64_t ranks);

struct ExpertSpec {
  int64_t count = 0;         // of all ranks
  int64_t per_token = 0;     // how many a token goes to
  int64_t intermediate = 0;  // size of one expert's MLP
  ExpertRange here;          // those computed here; count 0: all

  // How they are chosen and weighted: moe_gate's attributes (ops/experts.cpp).
  std::string score = "softmax";
  bool normalise = false;
  double scale = 1, eps = 0;
  int64_t groups = 1, top_groups = 1;
  std::string group_score = "max";
  bool choice_bias = false;  // parameter "gate.e_score_correction_bias"
  // An expert's input is multiplied with its score, and not its result; per_token is 1.
  bool weighs_input = false;

  bool bias = false;  // of the router and of every product
  // The MLP of an expert is down(relu(up(x))^2).
  bool gated = true;
  // Above 0: experts work on rows of so many numbers, parameters "fc1_latent_proj" and "fc2_latent_proj".
  int64_t latent = 0;
  // Above 0: the gate goes through the clamped SwiGLU (op swiglu_clamped), not SiLU.
  double swiglu_alpha = 0, swiglu_limit = 0;
};

// [T, N] -> [T, N]; parameters gate.weight, experts.<e>.{gate,up,down}_proj.weight, with biases as the spec says. The
// router's logits are fp32 in every dtype. Rows with a negative slot are padding and go to no expert.
Tensor moe(Tensor x, const ExpertSpec& spec, const StepInputs& in, const ParamScope& p);

// sigmoid(x w^T) * mlp(x), w the parameter "<name>_gate.weight" of one row: how Qwen2-MoE adds its shared expert
Tensor gated_shared_expert(Tensor x, int64_t intermediate, const ParamScope& p, std::string_view name);

}  // namespace reprise::nn
