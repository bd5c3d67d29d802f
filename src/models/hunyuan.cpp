// Hunyuan, dense: query and key heads are normed behind the rotation, whose base may be multiplied once and for all.
#include "models/decoder.h"

namespace reprise::models::hunyuan {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const bool bias = config.fields.attention_bias;
  const DecoderTraits traits{.qkv_bias = bias,
                             .output_bias = bias,
                             .qk_norm = true,
                             .qk_norm_place = nn::QkNorm::Rotated,
                             .q_norm = "query_layernorm",
                             .k_norm = "key_layernorm"};
  return dense_decoder(config, traits, in, root);
}

constexpr std::string_view kFields[] = {"attention_bias"};

}  // namespace

const ModelSpec kHunyuan{.family = {.architecture = "HunYuanDenseV1ForCausalLM",
                                    .model_type = "hunyuan_v1_dense",
                                    .sizes = {.vocab = 290943,
                                              .hidden = 4096,
                                              .intermediate = 11008,
                                              .layers = 32,
                                              .heads = 32,
                                              .positions = 2048,
                                              .eps = 1e-5},
                                    .fields = kFields,
                                    .gguf = {.name = "hunyuan-dense"},
                                    .fixed_ntk = true},
                         .forward = forward,
                         .qk_norm = true};

}  // namespace reprise::models::hunyuan
