// SmolLM3: Llama in which every fourth layer sees no positions; a window, if there is one, is that of these layers.
#include <algorithm>

#include "checkpoint/config_groups.h"
#include "models/decoder.h"

namespace reprise::models::smollm3 {
namespace {

using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .mlp_bias = f.mlp_bias},
                       in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval"};

bool slides(const ModelConfigFields& f, int64_t layer) {
  const bool turns = std::find(f.unrotated_layers.begin(), f.unrotated_layers.end(), layer) == f.unrotated_layers.end();
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value() && !turns);
}

}  // namespace

const ModelSpec kSmolLm3{.family = {.architecture = "SmolLM3ForCausalLM",
                                    .model_type = "smollm3",
                                    .sizes = {.vocab = 128256,
                                              .hidden = 2048,
                                              .intermediate = 11008,
                                              .layers = 36,
                                              .heads = 16,
                                              .kv_heads = 4,
                                              .positions = 32768,
                                              .theta = 2e6,
                                              .tied = true},
                                    .fields = kFields,
                                    .read = checkpoint::read_unrotated_layers,
                                    .slides = slides,
                                    .window_switch = true,
                                    .gguf = {.name = "smollm3", .interleaved_heads = true}},
                         .forward = forward};

}  // namespace reprise::models::smollm3
