// Seed-OSS: Llama with biases on query, key and value, and another switch for that of the output.
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"

namespace reprise::models::seed_oss {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  return dense_decoder(
      config,
      {.qkv_bias = f.attention_bias, .output_bias = f.number("attention_out_bias") != 0, .mlp_bias = f.mlp_bias}, in,
      root);
}

constexpr std::string_view kFields[] = {"attention_bias", "attention_out_bias", "mlp_bias"};

Status read(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out) {
  bool bias = false;
  RETURN_IF_ERROR(in.boolean("attention_out_bias", false, bias));
  out.numbers["attention_out_bias"] = bias ? 1 : 0;
  return in.boolean("attention_bias", true, out.attention_bias);
}

Status add(checkpoint::GgufFields& in) {
  in.out()["attention_bias"] = in.has("blk.0.attn_q.bias");
  in.out()["attention_out_bias"] = in.has("blk.0.attn_output.bias");
  return Status::ok();
}

}  // namespace

const ModelSpec kSeedOss{.family = {.architecture = "SeedOssForCausalLM",
                                    .model_type = "seed_oss",
                                    .sizes = {.vocab = 155136,
                                              .hidden = 4096,
                                              .intermediate = 27648,
                                              .layers = 64,
                                              .heads = 80,
                                              .kv_heads = 8,
                                              .head_dim = 128,
                                              .positions = 524288},
                                    .fields = kFields,
                                    .read = read,
                                    .gguf = {.name = "seed_oss", .add = add}},
                         .forward = forward};

}  // namespace reprise::models::seed_oss
