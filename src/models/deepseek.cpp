// DeepSeek-V2 and V3: multi-head latent attention; the first layers have a gated MLP, the others experts and shared
// experts.
#include <cmath>

#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/draft_head.h"
#include "models/experts.h"
#include "models/rope.h"
#include "nn/latent.h"

namespace reprise::models::deepseek {
namespace {

using checkpoint::FieldReader;
using checkpoint::GgufFields;
using checkpoint::ModelConfigFields;

nn::LatentSpec latent_spec(const ModelConfig& config) {
  const auto& f = config.fields;
  const checkpoint::LatentFields& l = *f.latent;
  nn::LatentSpec s;
  s.heads = f.num_attention_heads;
  s.q_rank = l.q_lora_rank;
  s.kv_rank = l.kv_lora_rank;
  s.nope = l.qk_nope_head_dim;
  s.rope = l.qk_rope_head_dim;
  s.value = l.v_head_dim;
  s.bias = f.attention_bias;
  s.interleaved = l.rope_interleave;
  s.scale = latent_score_factor(config) / std::sqrt(static_cast<double>(l.qk_nope_head_dim + l.qk_rope_head_dim));
  return s;
}

// The decoder, or the layer behind its last one.
template <bool kPrediction>
ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  if (!f.latent) {
    in.tokens.tracer()->fail(invalid("{}: the sizes of latent attention (kv_lora_rank, ...) are missing", f.source));
    return {in.tokens, in.tokens, in.tokens};
  }
  const nn::LatentSpec latent = latent_spec(config);
  nn::ExpertSpec experts = expert_spec(f.experts);
  if (experts.normalise) experts.eps = 1e-20;  // a sum of sigmoids may be 0
  const auto attention = [&](Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p) {
    return nn::latent_attention(x, latent, rope, in, layer, p / "self_attn");
  };
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    if (!f.experts.at_layer(layer)) return nn::gated_mlp(x, f.intermediate_size, f.mlp_bias, p / "mlp");
    Tensor y = nn::moe(x, experts, in, p / "mlp");
    if (f.experts.shared_intermediate == 0) return y;
    return nn::add(y, nn::gated_mlp(x, f.experts.shared_intermediate, f.mlp_bias, p / "mlp" / "shared_experts"));
  };
  if (kPrediction) return prediction_head(config, attention, mlp, in, root);
  return decoder(config, attention, mlp, in, root);
}

constexpr std::string_view kFields[] = {
    "rope_interleave",  "kv_lora_rank",   "q_lora_rank",      "num_experts",           "num_local_experts",
    "n_routed_experts", "norm_topk_prob", "n_shared_experts", "routed_scaling_factor", "scoring_func",
    "topk_method",      "n_group",        "topk_group",       "first_k_dense_replace", "moe_layer_freq",
    "attention_bias",   "mlp_bias"};
// V3 has no biases in its MLPs.
constexpr auto kFieldsV3 = std::span(kFields).first(std::size(kFields) - 1);

constexpr checkpoint::LatentDefaults kLatent{
    .q_lora_rank = 1536, .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128};

// Experts in all layers but the first ones, chosen among the best groups, and shared ones.
Status read_groups(const FieldReader& in, bool v3, ModelConfigFields& out) {
  checkpoint::ExpertFields& e = out.experts;
  const std::optional<int64_t> none;
  std::optional<int64_t> count = v3 ? 256 : 64;
  RETURN_IF_ERROR(in.integer_or_alias("n_routed_experts", v3 ? "num_local_experts" : "num_experts", 1,
                                      checkpoint::kMaxExperts, count));
  e.count = *count;
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, checkpoint::kMaxExperts, v3 ? std::optional<int64_t>(8) : none,
                             e.per_token));
  RETURN_IF_ERROR(
      in.integer("moe_intermediate_size", 1, checkpoint::kMaxIntermediate, v3 ? 2048 : 1407, e.intermediate));
  int64_t shared = 0, frequency = 1;
  RETURN_IF_ERROR(in.integer("n_shared_experts", 0, checkpoint::kMaxExperts, v3 ? 1 : 2, shared));
  e.shared_intermediate = shared * e.intermediate;
  RETURN_IF_ERROR(in.integer("first_k_dense_replace", 0, checkpoint::kMaxLayers, v3 ? 3 : 0, e.first_layer));
  RETURN_IF_ERROR(in.integer("moe_layer_freq", 1, 1, 1, frequency));
  RETURN_IF_ERROR(in.number("routed_scaling_factor", 0.0, 1e6, v3 ? 2.5 : 1.0, e.scale));
  // null is not absence here: transformers tests the value.
  RETURN_IF_ERROR(in.boolean("norm_topk_prob", v3 && !out.raw_json.contains("norm_topk_prob"), e.normalise));
  std::string method;
  RETURN_IF_ERROR(in.choice("scoring_func", {v3 ? "sigmoid" : "softmax"}, v3 ? "sigmoid" : "softmax", e.score));
  if (v3) {
    RETURN_IF_ERROR(in.choice("topk_method", {"noaux_tc"}, "noaux_tc", method));
    e.group_score = "top2";
    e.choice_bias = true;
  } else {
    RETURN_IF_ERROR(in.choice("topk_method", {"greedy", "group_limited_greedy"}, "greedy", method));
    if (e.normalise)  // the published code and transformers compute different things
      return error(Code::Unsupported, "{}: norm_topk_prob is true; allowed for {}: false", out.source,
                   out.architecture);
  }
  if (method != "greedy") {
    RETURN_IF_ERROR(in.integer("n_group", 1, checkpoint::kMaxExperts, v3 ? 8 : 1, e.groups));
    RETURN_IF_ERROR(in.integer("topk_group", 1, checkpoint::kMaxExperts, v3 ? 4 : 1, e.top_groups));
  }
  const int64_t size = e.count / e.groups;
  if (e.count % e.groups != 0)
    return invalid("{}: n_routed_experts {} is not a multiple of n_group {}", out.source, e.count, e.groups);
  if (e.top_groups > e.groups)
    return invalid("{}: topk_group {} is more than n_group {}", out.source, e.top_groups, e.groups);
  if (v3 && size < 2)
    return invalid("{}: n_group {} leaves groups of one expert; groups are chosen by their best two", out.source,
                   e.groups);
  if (e.per_token > e.top_groups * size)
    return invalid("{}: num_experts_per_tok is {}, but the {} groups chosen have {} experts", out.source, e.per_token,
                   e.top_groups, e.top_groups * size);
  return Status::ok();
}

Status read_v2(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(checkpoint::read_latent(in, kLatent, out));
  out.latent->rope_interleave = true;  // the family knows no other
  return read_groups(in, false, out);
}

Status read_v3(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(checkpoint::read_latent(in, kLatent, out));
  if (out.mlp_bias) {  // transformers: of DeepSeek's families, V2 alone
    out.notices.push_back(fmt::format("mlp_bias has no effect: {} has none", out.architecture));
    out.mlp_bias = false;
  }
  return read_groups(in, true, out);
}

Status add_v2(GgufFields& r) {
  RETURN_IF_ERROR(checkpoint::add_grouped_experts(r, false));
  const Json groups = r.out().value("n_group", Json(1));
  r.out()["topk_method"] = groups.get<int64_t>() > 1 ? "group_limited_greedy" : "greedy";
  return Status::ok();
}

Status add_v3(GgufFields& r) { return checkpoint::add_grouped_experts(r, false); }

// llama.cpp has one name for both; V3 chooses its experts by sigmoids.
Result<bool> holds_v3(const GgufFields& r) {
  constexpr int64_t kSigmoid = 2;  // of expert_gating_func; 1 is softmax, and so is 0 or nothing
  ASSIGN_OR_RETURN(const auto gating, r.get("expert_gating_func"));
  if (gating.value_or(0) < 0 || gating.value_or(0) > kSigmoid)
    return error(Code::Unsupported, "{}: metadata \"{}\" is {}; allowed: 1 (softmax), 2 (sigmoid)", r.file().source(),
                 r.key("expert_gating_func"), *gating);
  return gating.value_or(0) == kSigmoid;
}

}  // namespace

const ModelSpec kDeepseekV2{.family = {.architecture = "DeepseekV2ForCausalLM",
                                       .model_type = "deepseek_v2",
                                       .sizes = {.vocab = 102400,
                                                 .hidden = 4096,
                                                 .intermediate = 11008,
                                                 .layers = 32,
                                                 .heads = 32,
                                                 .head_dim = 64,
                                                 .positions = 2048},
                                       .fields = kFields,
                                       .read = read_v2,
                                       .gguf = {.name = "deepseek2",
                                                .latent = true,
                                                .experts = "n_routed_experts",
                                                .add = add_v2,
                                                .tensors = kSharedExpertTensors}},
                            .forward = forward<false>};

namespace {

extern const ModelSpec kPredictionV3;  // below, behind the family that it is of
}  // namespace

const ModelSpec kDeepseekV3{.family = {.architecture = "DeepseekV3ForCausalLM",
                                       .model_type = "deepseek_v3",
                                       .other_model_type = "kimi_k2",
                                       .sizes = {.vocab = 129280,
                                                 .hidden = 7168,
                                                 .intermediate = 18432,
                                                 .layers = 61,
                                                 .heads = 128,
                                                 .head_dim = 64,
                                                 .positions = 4096},
                                       .fields = kFieldsV3,
                                       .read = read_v3,
                                       .gguf = {.name = "deepseek2",
                                                .latent = true,
                                                .experts = "n_routed_experts",
                                                .holds = holds_v3,
                                                .add = add_v3,
                                                .tensors = kSharedExpertTensors}},
                            .forward = forward<false>,
                            .prediction = &kPredictionV3};

namespace {

const ModelSpec kPredictionV3{.family = kDeepseekV3.family,
                              .forward = forward<true>,
                              .declare = declare_prediction,
                              .source_width = width_of_hidden};

}  // namespace

}  // namespace reprise::models::deepseek
