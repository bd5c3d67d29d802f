// GLM-4.5 and 4.6: the first half of a head turns; experts behind the first layers, chosen as in DeepSeek-V3, and
// shared ones.
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/draft_head.h"
#include "models/experts.h"

namespace reprise::models::glm4_moe {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

// The decoder, or the layer behind its last one.
template <bool kPrediction>
ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  nn::ExpertSpec experts = expert_spec(f.experts);
  if (experts.normalise) experts.eps = 1e-20;
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    if (!f.experts.at_layer(layer)) return nn::gated_mlp(x, f.intermediate_size, false, p / "mlp");
    Tensor y = nn::moe(x, experts, in, p / "mlp");
    if (f.experts.shared_intermediate == 0) return y;
    return nn::add(y, nn::gated_mlp(x, f.experts.shared_intermediate, false, p / "mlp" / "shared_experts"));
  };
  const DecoderTraits traits{.qkv_bias = f.attention_bias, .qk_norm = f.number("use_qk_norm") != 0};
  const LayerAttention attention = grouped_attention(config, traits, in);
  if (kPrediction) return prediction_head(config, attention, mlp, in, root);
  return decoder(config, attention, mlp, in, root);
}

constexpr std::string_view kFields[] = {
    "num_experts",    "num_local_experts",     "n_routed_experts", "norm_topk_prob", "n_shared_experts",
    "n_group",        "routed_scaling_factor", "topk_group",       "use_qk_norm",    "first_k_dense_replace",
    "attention_bias", "scoring_func",          "topk_method"};

Status read(const FieldReader& in, ModelConfigFields& out) {
  checkpoint::ExpertFields& e = out.experts;
  std::optional<int64_t> count = 128;
  RETURN_IF_ERROR(in.integer_or_alias("n_routed_experts", "num_local_experts", 1, checkpoint::kMaxExperts, count));
  e.count = *count;
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, e.count, 8, e.per_token));
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, checkpoint::kMaxIntermediate, 1408, e.intermediate));
  int64_t shared = 0;
  RETURN_IF_ERROR(in.integer("n_shared_experts", 0, checkpoint::kMaxExperts, 1, shared));
  e.shared_intermediate = shared * e.intermediate;
  RETURN_IF_ERROR(in.integer("first_k_dense_replace", 0, checkpoint::kMaxLayers, 1, e.first_layer));
  RETURN_IF_ERROR(in.number("routed_scaling_factor", 0.0, 1e6, 1.0, e.scale));
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", true, e.normalise));
  RETURN_IF_ERROR(in.integer("n_group", 1, e.count, 1, e.groups));
  RETURN_IF_ERROR(in.integer("topk_group", 1, e.groups, 1, e.top_groups));
  std::string method;
  RETURN_IF_ERROR(in.choice("scoring_func", {"sigmoid"}, "sigmoid", e.score));
  RETURN_IF_ERROR(in.choice("topk_method", {"noaux_tc"}, "noaux_tc", method));
  e.group_score = "top2";
  e.choice_bias = true;
  if (e.count % e.groups != 0 || (e.groups > 1 && e.count / e.groups < 2) ||
      e.per_token > e.top_groups * (e.count / e.groups))
    return invalid("{}: n_group {} and topk_group {} do not fit {} experts of which a token goes to {}", out.source,
                   e.groups, e.top_groups, e.count, e.per_token);
  bool norm = false;
  RETURN_IF_ERROR(in.boolean("use_qk_norm", false, norm));
  out.numbers["use_qk_norm"] = norm ? 1 : 0;
  return Status::ok();
}

Status add(checkpoint::GgufFields& in) {
  in.out()["use_qk_norm"] = in.has("blk.0.attn_q_norm.weight");
  return checkpoint::add_grouped_experts(in, true);
}

extern const ModelSpec kPrediction;  // below, behind the family that it is of
}  // namespace

const ModelSpec kGlm4Moe{
    .family = {.architecture = "Glm4MoeForCausalLM",
               .model_type = "glm4_moe",
               .sizes = {.vocab = 151552,
                         .hidden = 4096,
                         .intermediate = 10944,
                         .layers = 46,
                         .heads = 96,
                         .kv_heads = 8,
                         .positions = 131072,
                         .eps = 1e-5,
                         .rotated = 0.5},
               .fields = kFields,
               .read = read,
               .gguf = {.name = "glm4moe", .experts = "n_routed_experts", .add = add, .tensors = kSharedExpertTensors},
               .partial_rotation = true},
    .forward = forward<false>,
    .prediction = &kPrediction};

namespace {

const ModelSpec kPrediction{.family = kGlm4Moe.family,
                            .forward = forward<true>,
                            .declare = declare_prediction,
                            .source_width = width_of_hidden};

}  // namespace

}  // namespace reprise::models::glm4_moe
