// Qwen2-MoE (Qwen1.5-MoE-A2.7B) and Qwen3-MoE: Qwen2 and Qwen3 with experts in some layers, usually in all. Qwen2-MoE
// adds a shared expert behind a gate of its own.
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models {
namespace {

ModelOutputs qwen_moe(const ModelConfig& config, const DecoderTraits& traits, nn::StepInputs& in,
                      const nn::ParamScope& root) {
  const auto& f = config.fields;
  const checkpoint::ExpertFields& e = f.experts;
  const nn::ExpertSpec spec = expert_spec(e);
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    if (!e.at_layer(layer)) return nn::gated_mlp(x, f.intermediate_size, false, p / "mlp");
    Tensor y = nn::moe(x, spec, in, p / "mlp");
    if (e.shared_intermediate == 0) return y;
    return nn::add(y, nn::gated_shared_expert(x, e.shared_intermediate, p / "mlp", "shared_expert"));
  };
  return decoder(config, traits, mlp, in, root);
}

ModelOutputs forward2(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return qwen_moe(config, {.qkv_bias = config.fields.qkv_bias}, in, root);
}

ModelOutputs forward3(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const bool bias = config.fields.attention_bias;
  return qwen_moe(config, {.qkv_bias = bias, .output_bias = bias, .qk_norm = true}, in, root);
}

}  // namespace

const ModelSpec kQwen2Moe{"Qwen2MoeForCausalLM", forward2};
const ModelSpec kQwen3Moe{"Qwen3MoeForCausalLM", forward3};

}  // namespace reprise::models
