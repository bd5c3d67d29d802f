// GLM-4: the first half of a head turns, by pairs of neighbours; gate and up are rows of one tensor. The later ones
// (0414) have norms on both sides of each branch.
#include "checkpoint/field_reader.h"
#include "models/decoder.h"

namespace reprise::models::glm4 {
namespace {

template <bool kNormsBehind>
ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const DecoderTraits traits{.qkv_bias = f.attention_bias, .rotation = nn::Rotation::Neighbours};
  const nn::MlpSpec spec{.intermediate = f.intermediate_size, .fused = true};
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::gated_mlp(x, spec, p / "mlp"); };
  DecoderShape shape;
  if (kNormsBehind) shape = {.after_attention = "post_self_attn_layernorm", .after_mlp = "post_mlp_layernorm"};
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root, shape);
}

constexpr std::string_view kFields[] = {"attention_bias"};

Status read(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out) {
  return in.boolean("attention_bias", true, out.attention_bias);
}

constexpr checkpoint::GgufTensorName kTensors[] = {{"post_attention_norm.", "post_self_attn_layernorm."},
                                                   {"post_ffw_norm.", "post_mlp_layernorm."},
                                                   {"ffn_up.", "mlp.gate_up_proj."}};

constexpr checkpoint::SizeDefaults kSizes{.vocab = 151552,
                                          .hidden = 4096,
                                          .intermediate = 13696,
                                          .layers = 40,
                                          .heads = 32,
                                          .kv_heads = 2,
                                          .head_dim = 128,
                                          .positions = 131072,
                                          .eps = 1.5625e-7,
                                          .rotated = 0.5};

}  // namespace

const ModelSpec kGlm{.family = {.architecture = "GlmForCausalLM",
                                .model_type = "glm",
                                .sizes = kSizes,
                                .fields = kFields,
                                .read = read,
                                .partial_rotation = true},
                     .forward = forward<false>};

const ModelSpec kGlm4{.family = {.architecture = "Glm4ForCausalLM",
                                 .model_type = "glm4",
                                 .sizes = kSizes,
                                 .fields = kFields,
                                 .read = read,
                                 .gguf = {.name = "glm4", .tensors = kTensors},
                                 .partial_rotation = true},
                      .forward = forward<true>};

}  // namespace reprise::models::glm4
