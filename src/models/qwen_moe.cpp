// Qwen2-MoE (Qwen1.5-MoE-A2.7B) and Qwen3-MoE: Qwen2 and Qwen3 with experts in some layers, usually in all. Qwen2-MoE
// adds a shared expert behind a gate of its own.
#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"
#include "models/experts.h"
#include "models/qwen.h"

namespace reprise::models::qwen_moe {
namespace {

using checkpoint::FieldReader;
using checkpoint::GgufFields;
using checkpoint::ModelConfigFields;

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
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root);
}

ModelOutputs forward2(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return qwen_moe(config, {.qkv_bias = config.fields.qkv_bias}, in, root);
}

constexpr std::string_view kFields2[] = {"num_experts",     "num_local_experts",   "norm_topk_prob",
                                         "mlp_only_layers", "decoder_sparse_step", "shared_expert_intermediate_size"};
constexpr std::string_view kFields3[] = {"num_experts",     "num_local_experts",   "norm_topk_prob",
                                         "mlp_only_layers", "decoder_sparse_step", "attention_bias"};

Status read2(const FieldReader& in, ModelConfigFields& out) {
  return checkpoint::read_experts(in,
                                  {.count_key = "num_experts",
                                   .other_count_key = "num_local_experts",
                                   .count = 60,
                                   .per_token = 4,
                                   .intermediate = 1408,
                                   .shared = 5632},
                                  out);
}

Status read3(const FieldReader& in, ModelConfigFields& out) {
  return checkpoint::read_experts(in,
                                  {.count_key = "num_experts",
                                   .other_count_key = "num_local_experts",
                                   .count = 128,
                                   .per_token = 8,
                                   .intermediate = 768},
                                  out);
}

// Files without a list of layers: every second one of the first max_window_layers.
bool slides2(const ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.use_sliding_window && layer % 2 == 0 && layer < f.max_window_layers);
}

bool slides3(const ModelConfigFields& f, int64_t) { return f.use_sliding_window && f.sliding_window.has_value(); }

Status add2(GgufFields& in) {
  RETURN_IF_ERROR(checkpoint::add_expert_sizes(in, false));
  checkpoint::add_dense_layers(in);
  return in.copy("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
}

Status add3(GgufFields& in) {
  RETURN_IF_ERROR(checkpoint::add_expert_sizes(in, true));
  checkpoint::add_dense_layers(in);
  return Status::ok();
}

}  // namespace

ModelOutputs qwen3_moe(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const bool bias = config.fields.attention_bias;
  return qwen_moe(config, {.qkv_bias = bias, .output_bias = bias, .qk_norm = true}, in, root);
}

const ModelSpec kQwen2Moe{
    .family = {.architecture = "Qwen2MoeForCausalLM",
               .model_type = "qwen2_moe",
               .sizes = {.vocab = 151936,
                         .hidden = 2048,
                         .intermediate = 5632,
                         .layers = 24,
                         .heads = 16,
                         .kv_heads = 16,
                         .positions = 32768,
                         .window = 4096},
               .fields = kFields2,
               .read = read2,
               .slides = slides2,
               .window_switch = true,
               .gguf = {.name = "qwen2moe", .windows = true, .qkv_bias = true, .experts = "num_experts", .add = add2}},
    .forward = forward2};

const ModelSpec kQwen3Moe{
    .family = {.architecture = "Qwen3MoeForCausalLM",
               .model_type = "qwen3_moe",
               .sizes = {.vocab = 151936,
                         .hidden = 2048,
                         .intermediate = 6144,
                         .layers = 24,
                         .heads = 32,
                         .kv_heads = 4,
                         .positions = 32768,
                         .window = 4096},
               .fields = kFields3,
               .read = read3,
               .slides = slides3,
               .window_switch = true,
               .gguf = {.name = "qwen3moe", .windows = true, .experts = "num_experts", .add = add3}},
    .forward = qwen3_moe,
    .qk_norm = true};

}  // namespace reprise::models::qwen_moe
