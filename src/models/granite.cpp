// Granite 3, dense and with experts in every layer: embeddings, both branches, scores and logits are scaled.
#include "models/granite.h"

#include "checkpoint/config_groups.h"
#include "models/experts.h"

namespace reprise::models::granite {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

DecoderTraits traits_of(const ModelConfigFields& f) {
  return {.qkv_bias = f.attention_bias,
          .output_bias = f.attention_bias,
          .mlp_bias = f.mlp_bias,
          .score_scale = f.number("attention_multiplier"),
          .shape = {.embedding_scale = f.number("embedding_multiplier"),
                    .residual_scale = f.number("residual_multiplier"),
                    .logit_scale = 1 / f.number("logits_scaling")}};
}

Status read_scales(const FieldReader& in, ModelConfigFields& out) {
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"})
    RETURN_IF_ERROR(in.number(key, 1e-6, 1e6, 1.0, out.numbers[key]));
  return Status::ok();
}

Status add_scales(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(in.copy_number("attention.scale", "attention_multiplier"));
  RETURN_IF_ERROR(in.copy_number("embedding_scale", "embedding_multiplier"));
  RETURN_IF_ERROR(in.copy_number("residual_scale", "residual_multiplier"));
  return in.copy_number("logit_scale", "logits_scaling");
}

namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, traits_of(config.fields), in, root);
}

ModelOutputs forward_experts(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const nn::ExpertSpec spec = expert_spec(config.fields.experts);
  const DecoderTraits traits = traits_of(config.fields);
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::moe(x, spec, in, p / "mlp"); };
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root, traits.shape);
}

constexpr std::string_view kFields[] = {"attention_bias",      "mlp_bias",       "embedding_multiplier",
                                        "residual_multiplier", "logits_scaling", "attention_multiplier"};
constexpr std::string_view kFieldsMoe[] = {"attention_bias",     "num_experts",          "num_local_experts",
                                           "logits_scaling",     "embedding_multiplier", "attention_multiplier",
                                           "residual_multiplier"};

Status read_moe(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(read_scales(in, out));
  return checkpoint::read_experts(
      in, {.count_key = "num_local_experts", .other_count_key = "num_experts", .count = 8, .per_token = 2}, out);
}

constexpr checkpoint::SizeDefaults kSizes{
    .vocab = 32000, .hidden = 4096, .intermediate = 11008, .layers = 32, .heads = 32, .positions = 2048};

}  // namespace

const ModelSpec kGranite{.family = {.architecture = "GraniteForCausalLM",
                                    .model_type = "granite",
                                    .sizes = kSizes,
                                    .fields = kFields,
                                    .read = read_scales,
                                    .gguf = {.name = "granite", .add = add_scales, .interleaved_heads = true}},
                         .forward = forward};

const ModelSpec kGraniteMoe{.family = {.architecture = "GraniteMoeForCausalLM",
                                       .model_type = "granitemoe",
                                       .sizes = kSizes,
                                       .fields = kFieldsMoe,
                                       .read = read_moe,
                                       .gguf = {.name = "granitemoe",
                                                .experts = "num_local_experts",
                                                .add = add_scales,
                                                .interleaved_heads = true},
                                       .names = kMoeNames},
                            .forward = forward_experts};

}  // namespace reprise::models::granite
