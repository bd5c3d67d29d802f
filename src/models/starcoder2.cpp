// StarCoder2: layer norms with biases, biases everywhere, and an MLP without a gate.
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"

namespace reprise::models::starcoder2 {
namespace {

using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const bool bias = f.number("use_bias") != 0;
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) {
    Tensor h = nn::linear(x, p / "mlp" / "c_fc", f.intermediate_size, bias, nn::Shard::Column);
    return nn::linear(nn::activate(h, f.hidden_act), p / "mlp" / "c_proj", f.hidden_size, bias, nn::Shard::Row);
  };
  return decoder(config, grouped_attention(config, {.qkv_bias = bias, .output_bias = bias}, in), mlp, in, root,
                 {.norm = nn::layer_norm_biased});
}

constexpr std::string_view kFields[] = {"use_bias", "norm_epsilon", "norm_type", "mlp_type"};

Status read(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  bool bias = true;
  RETURN_IF_ERROR(in.boolean("use_bias", true, bias));
  out.numbers["use_bias"] = bias ? 1 : 0;
  // Words of published files; transformers knows this norm and this MLP alone.
  std::string word;
  RETURN_IF_ERROR(in.choice("norm_type", {"layer_norm"}, "layer_norm", word));
  RETURN_IF_ERROR(in.choice("mlp_type", {"default"}, "default", word));
  return Status::ok();
}

Status add(checkpoint::GgufFields& in) {
  in.out()["use_bias"] = in.has("blk.0.attn_q.bias");
  in.out()["attention_bias"] = in.out()["mlp_bias"] = false;  // words of other families
  return Status::ok();
}

bool slides(const ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value());
}

constexpr checkpoint::GgufTensorName kTensors[] = {{"ffn_up.", "mlp.c_fc."}, {"ffn_down.", "mlp.c_proj."}};

}  // namespace

const ModelSpec kStarcoder2{.family = {.architecture = "Starcoder2ForCausalLM",
                                       .model_type = "starcoder2",
                                       .sizes = {.vocab = 49152,
                                                 .hidden = 3072,
                                                 .intermediate = 12288,
                                                 .layers = 30,
                                                 .heads = 24,
                                                 .kv_heads = 2,
                                                 .positions = 4096,
                                                 .eps = 1e-5,
                                                 .tied = true},
                                       .fields = kFields,
                                       .read = read,
                                       .slides = slides,
                                       .gguf = {.name = "starcoder2",
                                                .windows = true,
                                                .eps = "attention.layer_norm_epsilon",
                                                .add = add,
                                                .tensors = kTensors},
                                       .eps_key = "norm_epsilon",
                                       .activation_key = "hidden_act",
                                       .activation = "gelu_pytorch_tanh"},
                            .forward = forward};

}  // namespace reprise::models::starcoder2
