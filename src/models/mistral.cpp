// Mistral: Llama without biases, with an optional sliding attention window. Mistral Small 3.1 and later are the text
// models of larger ones, and so is Ministral 3, whose queries grow with their positions.
#include <cmath>

#include "checkpoint/config_groups.h"
#include "checkpoint/config_rope.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"

namespace reprise::models::mistral {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {}, in, root);
}

constexpr std::string_view kFields[] = {"is_causal"};

// Behind every `period` positions a further factor.
Tensor query_factor(const checkpoint::ModelConfigFields& f, Tensor positions) {
  const auto period = static_cast<int64_t>(f.number("llama_4_scaling_period"));
  std::vector<double> factors;
  for (int64_t k = 0; k <= f.max_position_embeddings / period; ++k)
    factors.push_back(1 + f.number("llama_4_scaling_beta") * std::log(1 + static_cast<double>(k)));
  return nn::position_scale(positions, factors, period);
}

ModelOutputs forward_ministral3(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {.query_factor = query_factor(config.fields, in.positions)}, in, root);
}

Status read_ministral3(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out) {
  const Json* rope = in.find(checkpoint::rope_object_in_effect(out.raw_json));
  if (!rope || !rope->is_object())
    return in.absent("rope_parameters", "an object with llama_4_scaling_beta and original_max_position_embeddings");
  const checkpoint::FieldReader of_rope(*rope, out.source, "rope_parameters.");
  RETURN_IF_ERROR(
      of_rope.number("llama_4_scaling_beta", 0.0, 100.0, std::nullopt, out.numbers["llama_4_scaling_beta"]));
  int64_t period = 0;
  RETURN_IF_ERROR(
      of_rope.integer("original_max_position_embeddings", 1, checkpoint::kMaxPositions, std::nullopt, period));
  out.numbers["llama_4_scaling_period"] = static_cast<double>(period);
  if (out.max_position_embeddings / period >= checkpoint::kMaxScaleFactors)
    return invalid(
        "{}: max_position_embeddings {} is {} times original_max_position_embeddings {}; allowed: less than {}",
        out.source, out.max_position_embeddings, out.max_position_embeddings / period, period,
        checkpoint::kMaxScaleFactors);
  return Status::ok();
}

// llama.cpp names both families alike; queries that grow are Ministral 3's.
constexpr std::string_view kQueryFactor = "attention.temperature_scale";

Result<bool> holds_ministral3(const checkpoint::GgufFields& in) {
  ASSIGN_OR_RETURN(const auto factor, in.file().number(in.key(kQueryFactor)));
  return factor.value_or(0) != 0;
}

// The period is YaRN's old length. Of its mscales llama.cpp takes 1 for the first.
Status add_ministral3(checkpoint::GgufFields& in) {
  Json& rope = in.out()["rope_scaling"];
  if (!rope.is_object() || !rope.contains("original_max_position_embeddings"))
    return in.missing("rope.scaling.original_context_length");
  ASSIGN_OR_RETURN(const auto factor, in.file().number(in.key(kQueryFactor)));
  rope["llama_4_scaling_beta"] = factor.value_or(0);
  ASSIGN_OR_RETURN(const auto mscale, in.file().number(in.key("rope.scaling.yarn_log_multiplier")));
  if (mscale.value_or(0) == 0) return Status::ok();
  rope["mscale"] = 1.0;
  rope["mscale_all_dim"] = *mscale;
  return Status::ok();
}

// One window for all layers, unless a file lists them.
bool slides(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value());
}

}  // namespace

const ModelSpec kMistral{
    .family = {.architecture = "MistralForCausalLM",
               .other_architecture = "MistralModel",
               .model_type = "mistral",
               .other_model_type = "ministral",
               .sizes = {.vocab = 32000,
                         .hidden = 4096,
                         .intermediate = 14336,
                         .layers = 32,
                         .heads = 32,
                         .kv_heads = 8,
                         .positions = 131072,
                         .window = 4096},
               .fields = kFields,
               .read = checkpoint::read_causal,
               .slides = slides,
               .gguf = {.name = "mistral", .other_name = "mistral3", .windows = true, .interleaved_heads = true},
               .wrapper = "Mistral3ForConditionalGeneration"},
    .forward = forward};

const ModelSpec kMinistral3{.family = {.architecture = "Ministral3ForCausalLM",
                                       .model_type = "ministral3",
                                       .sizes = {.vocab = 131072,
                                                 .hidden = 4096,
                                                 .intermediate = 14336,
                                                 .layers = 34,
                                                 .heads = 32,
                                                 .kv_heads = 8,
                                                 .head_dim = 128,
                                                 .positions = 262144,
                                                 .eps = 1e-5},
                                       .read = read_ministral3,
                                       .gguf = {.name = "mistral3",
                                                .holds = holds_ministral3,
                                                .add = add_ministral3,
                                                .interleaved_heads = true},
                                       .wrapper = "Mistral3ForConditionalGeneration"},
                            .forward = forward_ministral3};

}  // namespace reprise::models::mistral
