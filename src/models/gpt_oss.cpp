// gpt-oss: windows in every second layer, attention with sinks, and experts in every layer with biases and a clamped
// SwiGLU. Files have the experts in MXFP4 or as floats (checkpoint/expert_tensors.h).
#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::gpt_oss {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  nn::ExpertSpec spec = expert_spec(f.experts);
  spec.bias = true;
  spec.swiglu_alpha = f.number("swiglu_alpha");
  spec.swiglu_limit = f.number("swiglu_limit");
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::moe(x, spec, in, p / "mlp"); };
  const DecoderTraits traits{.qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .sinks = true};
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"attention_bias", "num_experts",  "num_local_experts",
                                        "swiglu_alpha",   "swiglu_limit", "experts_per_token"};

Status read(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out) {
  // The published files say both.
  std::optional<int64_t> per_token;
  RETURN_IF_ERROR(in.integer_or_alias("num_experts_per_tok", "experts_per_token", 1, 4096, per_token));
  RETURN_IF_ERROR(in.boolean("attention_bias", true, out.attention_bias));
  if (!in.find("rope_scaling") && !in.find("rope_parameters")) {  // what Hugging Face fills in
    out.rope.kind = checkpoint::RopeKind::Yarn;
    out.rope.factor = 32;
    out.rope.original_max_position_embeddings = 4096;
    out.rope.truncate = false;
  }
  RETURN_IF_ERROR(in.number("swiglu_alpha", 1e-3, 1e3, 1.702, out.numbers["swiglu_alpha"]));
  RETURN_IF_ERROR(in.number("swiglu_limit", 1e-3, 1e6, 7.0, out.numbers["swiglu_limit"]));
  return checkpoint::read_experts(in,
                                  {.count_key = "num_local_experts",
                                   .other_count_key = "num_experts",
                                   .count = 128,
                                   .per_token = per_token.value_or(4)},
                                  out);
}

// llama.cpp and Hugging Face take the same values for what a file leaves out, but for the ramp of YaRN: gpt-oss is
// trained with one that is not rounded to whole dimensions.
Status add(checkpoint::GgufFields& in) {
  Json& rope = in.out()["rope_scaling"];
  if (!rope.is_object()) rope = {{"rope_type", "default"}};
  if (rope["rope_type"] == "yarn") rope["truncate"] = false;
  return Status::ok();
}

bool slides(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(layer % 2 == 0);
}

constexpr checkpoint::NameRule kNames[] = {{checkpoint::NameRule::At::End, ".mlp.router.weight", ".mlp.gate.weight"},
                                           {checkpoint::NameRule::At::End, ".mlp.router.bias", ".mlp.gate.bias"}};

}  // namespace

const ModelSpec kGptOss{
    .family = {.architecture = "GptOssForCausalLM",
               .model_type = "gpt_oss",
               .sizes = {.vocab = 201088,
                         .hidden = 2880,
                         .intermediate = 2880,
                         .layers = 36,
                         .heads = 64,
                         .kv_heads = 8,
                         .head_dim = 64,
                         .positions = 131072,
                         .window = 128,
                         .eps = 1e-5,
                         .theta = 1.5e5},
               .fields = kFields,
               .read = read,
               .slides = slides,
               .gguf = {.name = "gpt-oss", .windows = true, .experts = "num_local_experts", .add = add},
               .names = kNames},
    .forward = forward};

}  // namespace reprise::models::gpt_oss
