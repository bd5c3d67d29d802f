// Arcee's AFM: Llama with a squared ReLU in an MLP without a gate.
#include "checkpoint/field_reader.h"
#include "models/decoder.h"

namespace reprise::models::arcee {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) {
    Tensor h = nn::linear(x, p / "mlp" / "up_proj", f.intermediate_size, f.mlp_bias, nn::Shard::Column);
    return nn::linear(nn::activate(h, f.hidden_act), p / "mlp" / "down_proj", f.hidden_size, f.mlp_bias,
                      nn::Shard::Row);
  };
  const DecoderTraits traits{.qkv_bias = f.attention_bias, .output_bias = f.attention_bias};
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "mlp_bias"};

}  // namespace

const ModelSpec kArcee{.family = {.architecture = "ArceeForCausalLM",
                                  .model_type = "arcee",
                                  .sizes = {.vocab = 32000,
                                            .hidden = 2560,
                                            .intermediate = 18432,
                                            .layers = 32,
                                            .heads = 32,
                                            .positions = 4096,
                                            .eps = 1e-5},
                                  .fields = kFields,
                                  .gguf = {.name = "arcee", .interleaved_heads = true},
                                  .activation_key = "hidden_act",
                                  .activation = "relu2"},
                       .forward = forward};

}  // namespace reprise::models::arcee
