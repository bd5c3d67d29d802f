// Qwen2 and Qwen2.5: biases on query, key and value.
#include "models/decoder.h"

namespace reprise::models {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {.qkv_bias = true}, in, root);
}

}  // namespace

const ModelSpec kQwen2{"Qwen2ForCausalLM", forward};

}  // namespace reprise::models
