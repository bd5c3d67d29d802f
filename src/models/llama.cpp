// Llama 2 and 3: optional biases on all projections of attention and MLP (attention_bias, mlp_bias). InternLM3 is the
// same with other words for the biases, of which that of o_proj is one with the MLP's. LlamaBidirectionalModel is the
// same with rows that see both sides.
#include "checkpoint/config_groups.h"
#include "models/decoder.h"

namespace reprise::models::llama {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .mlp_bias = f.mlp_bias},
                       in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "mlp_bias", "is_causal"};

ModelOutputs forward_internlm3(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(config, {.qkv_bias = f.attention_bias, .output_bias = f.mlp_bias, .mlp_bias = f.mlp_bias}, in,
                       root);
}

constexpr std::string_view kInternLm3Fields[] = {"attention_bias", "mlp_bias", "qkv_bias", "bias"};

// transformers writes the words of Llama for these.
Status read_internlm3(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out) {
  RETURN_IF_ERROR(in.boolean("qkv_bias", out.attention_bias, out.attention_bias));
  return in.boolean("bias", out.mlp_bias, out.mlp_bias);
}

// NVIDIA's Llama whose rows see both sides, by its name alone; "pooling" is read with the other files on vectors.
constexpr std::string_view kBidirectionalFields[] = {"attention_bias", "mlp_bias", "pooling"};

Status read_bidirectional(const checkpoint::FieldReader&, checkpoint::ModelConfigFields& out) {
  out.both_sides = true;
  return Status::ok();
}

constexpr checkpoint::SizeDefaults kSizes{
    .vocab = 32000, .hidden = 4096, .intermediate = 11008, .layers = 32, .heads = 32, .positions = 2048};

}  // namespace

const ModelSpec kLlama{.family = {.architecture = "LlamaForCausalLM",
                                  .other_architecture = "LlamaModel",
                                  .model_type = "llama",
                                  .sizes = kSizes,
                                  .fields = kFields,
                                  .read = checkpoint::read_causal,
                                  .gguf = {.name = "llama", .interleaved_heads = true}},
                       .forward = forward};

const ModelSpec kLlamaBidirectional{.family = {.architecture = "LlamaBidirectionalModel",
                                               .model_type = "llama_bidirec",
                                               .sizes = kSizes,
                                               .fields = kBidirectionalFields,
                                               .read = read_bidirectional},
                                    .forward = forward,
                                    .pooling = checkpoint::PoolKind::Mean};

const ModelSpec kInternLm3{.family = {.architecture = "InternLM3ForCausalLM",
                                      .model_type = "internlm3",
                                      .sizes = {.vocab = 128512,
                                                .hidden = 4096,
                                                .intermediate = 10240,
                                                .layers = 48,
                                                .heads = 32,
                                                .kv_heads = 2,
                                                .head_dim = 128,
                                                .positions = 32768,
                                                .eps = 1e-5},
                                      .fields = kInternLm3Fields,
                                      .read = read_internlm3},
                           .forward = forward_internlm3};

}  // namespace reprise::models::llama
