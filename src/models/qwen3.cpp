// Qwen3 dense: RMS norm of every query and key head; biases as the configuration says.
#include "checkpoint/config_groups.h"
#include "models/decoder.h"
#include "models/qwen.h"

namespace reprise::models::qwen3 {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .qk_norm = true}, in,
                       root);
}

constexpr std::string_view kFields[] = {"attention_bias", "is_causal"};

}  // namespace

const ModelSpec kQwen3{.family = {.architecture = "Qwen3ForCausalLM",
                                  .other_architecture = "Qwen3Model",
                                  .model_type = "qwen3",
                                  .sizes = {.vocab = 151936,
                                            .hidden = 4096,
                                            .intermediate = 22016,
                                            .layers = 32,
                                            .heads = 32,
                                            .kv_heads = 32,
                                            .head_dim = 128,
                                            .positions = 32768,
                                            .window = 4096},
                                  .fields = kFields,
                                  .read = checkpoint::read_causal,
                                  .slides = qwen_slides,
                                  .window_switch = true,
                                  .gguf = {.name = "qwen3", .windows = true}},
                       .forward = forward,
                       .qk_norm = true,
                       .least_size = 32};

}  // namespace reprise::models::qwen3
