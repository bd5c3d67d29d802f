// Llama 2 and 3: optional biases on all projections of attention and MLP (attention_bias, mlp_bias).
#include "models/decoder.h"

namespace reprise::models {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .mlp_bias = f.mlp_bias},
                       in, root);
}

}  // namespace

const ModelSpec kLlama{"LlamaForCausalLM", forward};

}  // namespace reprise::models
