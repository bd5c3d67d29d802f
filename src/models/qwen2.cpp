// Qwen2 and Qwen2.5: biases on query, key and value. Rows of gte-Qwen2 see both sides.
#include "checkpoint/config_groups.h"
#include "models/decoder.h"
#include "models/qwen.h"

namespace reprise::models::qwen2 {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {.qkv_bias = true}, in, root);
}

constexpr std::string_view kFields[] = {"is_causal"};

}  // namespace

const ModelSpec kQwen2{.family = {.architecture = "Qwen2ForCausalLM",
                                  .other_architecture = "Qwen2Model",
                                  .model_type = "qwen2",
                                  .sizes = {.vocab = 151936,
                                            .hidden = 4096,
                                            .intermediate = 22016,
                                            .layers = 32,
                                            .heads = 32,
                                            .kv_heads = 32,
                                            .positions = 32768,
                                            .window = 4096},
                                  .fields = kFields,
                                  .read = checkpoint::read_causal,
                                  .slides = qwen_slides,
                                  .window_switch = true,
                                  .gguf = {.name = "qwen2", .windows = true, .qkv_bias = true}},
                       .forward = forward};

}  // namespace reprise::models::qwen2
