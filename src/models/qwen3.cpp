// Qwen3 dense: RMS norm of every query and key head; biases as the configuration says.
#include "models/decoder.h"

namespace reprise::models {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .qk_norm = true}, in,
                       root);
}

}  // namespace

const ModelSpec kQwen3{"Qwen3ForCausalLM", forward};

}  // namespace reprise::models
