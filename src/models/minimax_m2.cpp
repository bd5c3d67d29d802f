// MiniMax-M2: experts in every layer, chosen by sigmoids and a bias; a part of each head turns; queries and keys are
// normed over whole rows.
#include <algorithm>

#include "checkpoint/config_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::minimax_m2 {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const nn::ExpertSpec spec = expert_spec(config.fields.experts);
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::moe(x, spec, in, p / "mlp"); };
  const DecoderTraits traits{.qk_norm = true, .qk_norm_place = nn::QkNorm::Row};
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"num_experts",      "num_local_experts", "rotary_dim",    "scoring_func",
                                        "use_routing_bias", "qk_norm_type",      "attn_type_list"};

Status read(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(checkpoint::read_experts(
      in, {.count_key = "num_local_experts", .other_count_key = "num_experts", .count = 256, .per_token = 8}, out));
  RETURN_IF_ERROR(in.choice("scoring_func", {"sigmoid"}, "sigmoid", out.experts.score));
  std::string type;
  RETURN_IF_ERROR(in.choice("qk_norm_type", {"per_layer"}, "per_layer", type));
  bool bias = true;
  RETURN_IF_ERROR(in.boolean("use_routing_bias", true, bias));
  if (!bias) return in.wrong("use_routing_bias", Json(false), "true");
  out.experts.choice_bias = true;
  // 1: the layer attends; 0: linear attention, as in MiniMax-Text-01.
  if (const Json* types = in.find("attn_type_list"); types) {
    const auto attends = [](const Json& t) { return t == 1; };
    if (!types->is_array() || !std::all_of(types->begin(), types->end(), attends))
      return in.wrong("attn_type_list", *types, "null, a list of 1, as no layer has linear attention");
  }
  std::optional<int64_t> rotated;
  RETURN_IF_ERROR(in.integer("rotary_dim", 2, out.head_dim, rotated));
  if (rotated) out.partial_rotary_factor = static_cast<double>(*rotated) / static_cast<double>(out.head_dim);
  return Status::ok();
}

constexpr checkpoint::NameRule kNames[] = {
    {.from = ".w1.", .to = ".gate_proj.", .within = ".block_sparse_moe.experts."},
    {.from = ".w2.", .to = ".down_proj.", .within = ".block_sparse_moe.experts."},
    {.from = ".w3.", .to = ".up_proj.", .within = ".block_sparse_moe.experts."},
    {.from = ".block_sparse_moe.", .to = ".mlp."},
    {checkpoint::NameRule::At::End, ".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"}};

}  // namespace

const ModelSpec kMiniMaxM2{.family = {.architecture = "MiniMaxM2ForCausalLM",
                                      .model_type = "minimax_m2",
                                      .sizes = {.vocab = 200064,
                                                .hidden = 3072,
                                                .intermediate = 1536,
                                                .layers = 62,
                                                .heads = 48,
                                                .kv_heads = 8,
                                                .head_dim = 128,
                                                .positions = 196608,
                                                .theta = 5e6},
                                      .fields = kFields,
                                      .read = read,
                                      .gguf = {.name = "minimax-m2", .experts = "num_local_experts"},
                                      .names = kNames,
                                      .partial_rotation = true},
                           .forward = forward,
                           .qk_norm = true};

}  // namespace reprise::models::minimax_m2
