// Mistral: Llama without biases, with an optional sliding attention window. Mistral Small 3.1 and later are the text
// models of larger ones.
#include "models/decoder.h"

namespace reprise::models::mistral {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {}, in, root);
}

// One window for all layers, unless a file lists them.
bool slides(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value());
}

}  // namespace

const ModelSpec kMistral{.family = {.architecture = "MistralForCausalLM",
                                    .other_architecture = "MistralModel",
                                    .model_type = "mistral",
                                    .other_model_type = "ministral",
                                    .sizes = {.vocab = 32000,
                                              .hidden = 4096,
                                              .intermediate = 14336,
                                              .layers = 32,
                                              .heads = 32,
                                              .kv_heads = 8,
                                              .positions = 131072,
                                              .window = 4096},
                                    .slides = slides,
                                    .gguf = {.name = "mistral", .windows = true},
                                    .wrapper = "Mistral3ForConditionalGeneration"},
                         .forward = forward};

}  // namespace reprise::models::mistral
