// Mistral: Llama without biases, with an optional sliding attention window.
#include "models/decoder.h"

namespace reprise::models {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {}, in, root);
}

}  // namespace

const ModelSpec kMistral{"MistralForCausalLM", forward};

}  // namespace reprise::models
