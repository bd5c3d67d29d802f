// Mixtral: Mistral with experts in every layer; their weights are normalised over those chosen.
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const nn::ExpertSpec spec = expert_spec(config.fields.experts);
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::moe(x, spec, in, p / "mlp"); };
  return decoder(config, {}, mlp, in, root);
}

}  // namespace

const ModelSpec kMixtral{"MixtralForCausalLM", forward};

}  // namespace reprise::models
