// OLMo 2 and 3: norms behind the two branches alone, and over whole rows of queries and keys. OLMo 3 has windows in
// three of four layers, whose positions are not scaled. OLMoE has experts in every layer, and norms where Llama has
// them.
#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::olmo {
namespace {

using checkpoint::ModelConfigFields;

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const bool bias = config.fields.attention_bias;
  const DecoderTraits traits{.qkv_bias = bias,
                             .output_bias = bias,
                             .qk_norm = true,
                             .qk_norm_place = nn::QkNorm::Row,
                             .shape = {.before_attention = {},
                                       .after_attention = "post_attention_layernorm",
                                       .before_mlp = {},
                                       .after_mlp = "post_feedforward_layernorm"}};
  return dense_decoder(config, traits, in, root);
}

ModelOutputs forward_experts(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const nn::ExpertSpec experts = expert_spec(f.experts);
  const DecoderTraits traits{
      .qkv_bias = f.attention_bias, .output_bias = f.attention_bias, .qk_norm = true, .qk_norm_place = nn::QkNorm::Row};
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::moe(x, experts, in, p / "mlp"); };
  return decoder(config, grouped_attention(config, traits, in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"attention_bias"};
constexpr std::string_view kFieldsMoe[] = {"attention_bias", "num_experts", "num_local_experts", "norm_topk_prob"};

Status read_moe(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  return checkpoint::read_experts(in,
                                  {.count_key = "num_experts",
                                   .other_count_key = "num_local_experts",
                                   .count = 64,
                                   .per_token = 8,
                                   .intermediate = out.intermediate_size},
                                  out);
}

bool slides3(const ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or((layer + 1) % 4 != 0);
}

// llama.cpp has one name for both.
Result<bool> holds3(const checkpoint::GgufFields& in) {
  ASSIGN_OR_RETURN(const auto window, in.get("attention.sliding_window"));
  return window.value_or(0) > 0;
}

constexpr checkpoint::SizeDefaults sizes(int64_t window, double theta) {
  return {.vocab = 50304,
          .hidden = 4096,
          .intermediate = 11008,
          .layers = 32,
          .heads = 32,
          .positions = 2048,
          .window = window,
          .eps = 1e-5,
          .theta = theta};
}

}  // namespace

const ModelSpec kOlmo2{.family = {.architecture = "Olmo2ForCausalLM",
                                  .model_type = "olmo2",
                                  .sizes = sizes(0, 1e4),
                                  .fields = kFields,
                                  .gguf = {.name = "olmo2"}},
                       .forward = forward,
                       .qk_norm = true};

const ModelSpec kOlmoe{.family = {.architecture = "OlmoeForCausalLM",
                                  .model_type = "olmoe",
                                  .sizes = {.vocab = 50304,
                                            .hidden = 2048,
                                            .intermediate = 2048,
                                            .layers = 16,
                                            .heads = 16,
                                            .positions = 4096,
                                            .eps = 1e-5},
                                  .fields = kFieldsMoe,
                                  .read = read_moe,
                                  .gguf = {.name = "olmoe", .experts = "num_experts"}},
                       .forward = forward_experts,
                       .qk_norm = true};

const ModelSpec kOlmo3{
    .family = {.architecture = "Olmo3ForCausalLM",
               .model_type = "olmo3",
               .sizes = sizes(4096, 5e5),
               .fields = kFields,
               .slides = slides3,
               .gguf = {.name = "olmo2", .windows = true, .holds = holds3, .add = checkpoint::add_window_pattern},
               .sliding_rotation = true},
    .forward = forward,
    .qk_norm = true};

}  // namespace reprise::models::olmo
