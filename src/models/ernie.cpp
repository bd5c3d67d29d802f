// ERNIE 4.5, dense and with experts: pairs of neighbours turn. Experts are chosen by softmax and a bias, and a layer
// has shared ones besides.
#include <algorithm>

#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::ernie {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

DecoderTraits traits_of(const ModelConfigFields& f) {
  const bool bias = f.number("use_bias") != 0;
  return {.qkv_bias = bias, .output_bias = bias, .mlp_bias = bias, .rotation = nn::Rotation::Neighbours};
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, traits_of(config.fields), in, root);
}

ModelOutputs forward_experts(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const nn::ExpertSpec experts = expert_spec(f.experts);
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    if (!f.experts.at_layer(layer)) return nn::gated_mlp(x, f.intermediate_size, false, p / "mlp");
    Tensor y = nn::moe(x, experts, in, p / "mlp");
    if (f.experts.shared_intermediate == 0) return y;
    return nn::add(y, nn::gated_mlp(x, f.experts.shared_intermediate, false, p / "mlp" / "shared_experts"));
  };
  return decoder(config, grouped_attention(config, traits_of(f), in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"use_bias"};
constexpr std::string_view kFieldsMoe[] = {"use_bias",
                                           "moe_k",
                                           "moe_num_experts",
                                           "num_experts",
                                           "num_local_experts",
                                           "moe_num_shared_experts",
                                           "moe_layer_start_index",
                                           "moe_layer_end_index",
                                           "moe_layer_interval",
                                           "moe_norm_min"};

Status read(const FieldReader& in, ModelConfigFields& out) {
  bool bias = false;
  RETURN_IF_ERROR(in.boolean("use_bias", false, bias));
  out.numbers["use_bias"] = bias ? 1 : 0;
  return Status::ok();
}

Status add(checkpoint::GgufFields& in) {
  in.out()["use_bias"] = in.has("blk.0.attn_q.bias");
  in.out()["attention_bias"] = in.out()["mlp_bias"] = false;
  return Status::ok();
}

// A file does not say which layer with experts is the last one; its tensors do.
Status add_moe(checkpoint::GgufFields& in) {
  Json& out = in.out();
  RETURN_IF_ERROR(add(in));
  RETURN_IF_ERROR(in.copy("expert_feed_forward_length", "moe_intermediate_size"));
  for (const auto& [name, to] : {std::pair{"expert_shared_count", "moe_num_shared_experts"},
                                 {"leading_dense_block_count", "moe_layer_start_index"}}) {
    out[to] = 0;
    RETURN_IF_ERROR(in.copy(name, to, false));
  }
  RETURN_IF_ERROR(in.copy("interleave_moe_layer_step", "moe_layer_interval", false));
  for (int64_t l = 0; l < std::min(checkpoint::kMaxLayers, out["num_hidden_layers"].get<int64_t>()); ++l)
    if (in.has(fmt::format("blk.{}.ffn_down_exps.weight", l))) out["moe_layer_end_index"] = l;
  return Status::ok();
}

Status read_moe(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(read(in, out));
  if (out.number("use_bias") != 0)  // the head would have one, too
    return in.wrong("use_bias", Json(true), fmt::format("false with {}", out.architecture));
  checkpoint::ExpertFields& e = out.experts;
  std::optional<int64_t> count = 64, chosen = 6;
  RETURN_IF_ERROR(in.integer_or_alias("moe_num_experts", "num_experts", 1, checkpoint::kMaxExperts, count));
  e.count = *count;
  RETURN_IF_ERROR(in.integer_or_alias("moe_k", "num_experts_per_tok", 1, e.count, chosen));
  e.per_token = *chosen;
  RETURN_IF_ERROR(in.integer("moe_intermediate_size", 1, checkpoint::kMaxIntermediate, 1536, e.intermediate));
  int64_t shared = 0, last = 0;
  RETURN_IF_ERROR(in.integer("moe_num_shared_experts", 0, checkpoint::kMaxExperts, 2, shared));
  e.shared_intermediate = shared * e.intermediate;
  RETURN_IF_ERROR(in.integer("moe_layer_start_index", 0, checkpoint::kMaxLayers, 1, e.first_layer));
  RETURN_IF_ERROR(in.integer("moe_layer_end_index", -1, checkpoint::kMaxLayers, -1, last));
  RETURN_IF_ERROR(in.integer("moe_layer_interval", 1, checkpoint::kMaxLayers, 1, e.step));
  for (int64_t l = last + 1; last >= 0 && l < out.num_hidden_layers; ++l) e.dense_layers.push_back(l);
  // Far below the sum of any weights that are chosen, so that it changes none.
  double least = 0;
  RETURN_IF_ERROR(in.number("moe_norm_min", 0.0, 1e-6, 1e-12, least));
  e.normalise = true;
  e.choice_bias = true;
  return Status::ok();
}

constexpr checkpoint::NameRule kMoeNames[] = {
    {checkpoint::NameRule::At::End, ".mlp.moe_statics.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"}};

}  // namespace

const ModelSpec kErnie{.family = {.architecture = "Ernie4_5ForCausalLM",
                                  .other_architecture = "Ernie4_5_ForCausalLM",
                                  .model_type = "ernie4_5",
                                  .sizes = {.vocab = 103424,
                                            .hidden = 1024,
                                            .intermediate = 3072,
                                            .layers = 18,
                                            .heads = 16,
                                            .kv_heads = 2,
                                            .head_dim = 128,
                                            .positions = 131072,
                                            .eps = 1e-5,
                                            .theta = 5e5,
                                            .tied = true},
                                  .fields = kFields,
                                  .read = read,
                                  .gguf = {.name = "ernie4_5", .add = add}},
                       .forward = forward};

const ModelSpec kErnieMoe{.family = {.architecture = "Ernie4_5_MoeForCausalLM",
                                     .model_type = "ernie4_5_moe",
                                     .sizes = {.vocab = 103424,
                                               .hidden = 2560,
                                               .intermediate = 12288,
                                               .layers = 28,
                                               .heads = 20,
                                               .kv_heads = 4,
                                               .positions = 131072,
                                               .eps = 1e-5,
                                               .theta = 5e5,
                                               .tied = true},
                                     .fields = kFieldsMoe,
                                     .read = read_moe,
                                     .gguf = {.name = "ernie4_5-moe",
                                              .experts = "moe_num_experts",
                                              .add = add_moe,
                                              .tensors = kSharedExpertTensors},
                                     .names = kMoeNames},
                          .forward = forward_experts};

}  // namespace reprise::models::ernie
