// Llama 2 and 3: optional biases on all projections of attention and MLP (attention_bias, mlp_bias).
#include "models/decoder.h"

namespace reprise::models::llama {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .mlp_bias = f.mlp_bias},
                       in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "mlp_bias"};

}  // namespace

const ModelSpec kLlama{
    .family =
        {.architecture = "LlamaForCausalLM",
         .other_architecture = "LlamaModel",
         .model_type = "llama",
         .sizes = {.vocab = 32000, .hidden = 4096, .intermediate = 11008, .layers = 32, .heads = 32, .positions = 2048},
         .fields = kFields,
         .gguf = {.name = "llama"}},
    .forward = forward};

}  // namespace reprise::models::llama
