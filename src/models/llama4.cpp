// Llama 4's text model. Layers that turn attend within chunks of positions, and norm queries and keys behind the
// rotation without weights; the others see everything, and their queries grow with their positions. Most layers have
// experts, of which a token goes to one, and a shared one.
#include <algorithm>
#include <cmath>

#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/limits.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::llama4 {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

// Behind every "floor_scale" positions, counted from 1, a further factor.
Tensor query_factor(const ModelConfigFields& f, Tensor positions) {
  const double scale = f.number("attn_scale");
  if (scale == 0) return {};
  const auto period = static_cast<int64_t>(f.number("floor_scale"));
  std::vector<double> factors;
  for (int64_t k = 0; k <= f.max_position_embeddings / period; ++k)
    factors.push_back(1 + scale * std::log1p(static_cast<double>(k)));
  return nn::position_scale(positions, factors, period, 1);
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  nn::ExpertSpec experts = expert_spec(f.experts);
  experts.weighs_input = true;
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    if (!f.experts.at_layer(layer)) return nn::gated_mlp(x, f.intermediate_size, false, p / "mlp");
    const Tensor y = nn::moe(x, experts, in, p / "mlp");
    return nn::add(y, nn::gated_mlp(x, experts.intermediate, false, p / "mlp" / "shared_expert"));
  };
  DecoderTraits traits{.qkv_bias = f.attention_bias, .output_bias = f.attention_bias};
  traits.rotation = nn::Rotation::Neighbours;
  traits.query_factor = query_factor(f, in.positions);
  const LayerAttention still = grouped_attention(config, traits, in);
  traits.query_factor = {};
  traits.qk_norm = f.number("use_qk_norm") != 0;
  traits.qk_norm_place = nn::QkNorm::Rotated;
  traits.qk_norm_kind = nn::unit_rms_norm;
  const LayerAttention turning = grouped_attention(config, traits, in);
  const auto attention = [&](Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p) {
    const auto& list = f.unrotated_layers;
    return (std::find(list.begin(), list.end(), layer) == list.end() ? turning : still)(x, rope, layer, p);
  };
  return decoder(config, attention, mlp, in, root);
}

constexpr std::string_view kFields[] = {
    "attention_bias",        "attention_chunk_size",      "attn_scale",        "attn_temperature_tuning",
    "floor_scale",           "interleave_moe_layer_step", "moe_layers",        "no_rope_layers",
    "intermediate_size_mlp", "no_rope_layer_interval",    "num_local_experts", "use_qk_norm"};

// A switch, which older files have as a number.
Status read_temperature(const FieldReader& in, ModelConfigFields& out) {
  const Json* on = in.find("attn_temperature_tuning");
  if (on && !on->is_boolean() && !on->is_number_unsigned())
    return in.wrong("attn_temperature_tuning", *on, "true, false, a number from 0 on");
  double& scale = out.numbers["attn_scale"];
  RETURN_IF_ERROR(in.number("attn_scale", 0.0, 100.0, 0.1, scale));
  if (on && (*on == false || *on == 0)) scale = 0;
  int64_t period = 0;
  RETURN_IF_ERROR(in.integer("floor_scale", 1, checkpoint::kMaxPositions, 8192, period));
  out.numbers["floor_scale"] = static_cast<double>(period);
  const int64_t most = checkpoint::kMaxScaleFactors * period - 1;
  if (scale == 0 || out.max_position_embeddings <= most) return Status::ok();
  out.notices.push_back(fmt::format("max_position_embeddings {} counts as {}: queries have {} factors of {} positions",
                                    out.max_position_embeddings, most, checkpoint::kMaxScaleFactors, period));
  out.max_position_embeddings = most;
  return Status::ok();
}

// Layers that turn stay in chunks where the file does not list them.
Status read_chunks(const FieldReader& in, ModelConfigFields& out) {
  std::optional<int64_t> size = 8192;
  if (out.raw().contains("attention_chunk_size")) size.reset();
  RETURN_IF_ERROR(in.integer("attention_chunk_size", 1, checkpoint::kMaxPositions, size));
  out.attention_chunk = size.value_or(0);
  if (!size || in.find("layer_types")) return Status::ok();
  const auto& still = out.unrotated_layers;
  for (int64_t l = 0; l < out.num_hidden_layers; ++l)
    out.layer_types.emplace_back(std::find(still.begin(), still.end(), l) == still.end() ? "chunked_attention"
                                                                                         : "full_attention");
  return Status::ok();
}

// Which layers have experts: a list, or every so many.
Status read_expert_layers(const FieldReader& in, ModelConfigFields& out) {
  checkpoint::ExpertFields& e = out.experts;
  const Json* list = in.find("moe_layers");
  if (!list) return in.integer("interleave_moe_layer_step", 1, checkpoint::kMaxLayers, 1, e.step);
  const std::string allowed = fmt::format("a list of layers from 0 to {}", out.num_hidden_layers - 1);
  if (!list->is_array()) return in.wrong("moe_layers", *list, allowed);
  for (const Json& l : *list)
    if (!l.is_number_unsigned() || l.get<uint64_t>() >= static_cast<uint64_t>(out.num_hidden_layers))
      return in.wrong("moe_layers", *list, allowed);
  for (int64_t l = 0; l < out.num_hidden_layers; ++l)
    if (std::find(list->begin(), list->end(), Json(l)) == list->end()) e.dense_layers.push_back(l);
  return Status::ok();
}

Status read(const FieldReader& in, ModelConfigFields& out) {
  checkpoint::ExpertFields& e = out.experts;
  RETURN_IF_ERROR(in.integer("num_local_experts", 1, checkpoint::kMaxExperts, 16, e.count));
  RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, 1, 1, e.per_token));
  e.score = "sigmoid";
  e.intermediate = out.intermediate_size;
  RETURN_IF_ERROR(in.integer("intermediate_size_mlp", 1, checkpoint::kMaxIntermediate, 16384, out.intermediate_size));
  RETURN_IF_ERROR(read_expert_layers(in, out));
  RETURN_IF_ERROR(checkpoint::read_unrotated_layers(in, out));
  RETURN_IF_ERROR(read_temperature(in, out));
  bool norm = true;
  RETURN_IF_ERROR(in.boolean("use_qk_norm", true, norm));
  out.numbers["use_qk_norm"] = norm ? 1 : 0;
  return read_chunks(in, out);
}

// Files do not say whether queries and keys are normed, nor the size of chunks and the factors of queries: llama.cpp
// goes by the number of experts and by what the published models have. A window of 0 says that all layers turn.
Status add(checkpoint::GgufFields& in) {
  Json& out = in.out();
  out["intermediate_size_mlp"] = out["intermediate_size"];
  RETURN_IF_ERROR(in.copy("expert_feed_forward_length", "intermediate_size"));
  RETURN_IF_ERROR(in.copy("interleave_moe_layer_step", "interleave_moe_layer_step"));
  ASSIGN_OR_RETURN(const auto experts, in.get("expert_count"));
  out["use_qk_norm"] = experts.value_or(0) != 128;
  ASSIGN_OR_RETURN(const auto pattern, in.get("attention.sliding_window_pattern"));
  if (pattern.value_or(4) != 4)
    return invalid("{}: metadata \"{}\" is {}; allowed: 4", in.file().source(),
                   in.key("attention.sliding_window_pattern"), *pattern);
  ASSIGN_OR_RETURN(const auto window, in.get("attention.sliding_window"));
  if (window.value_or(1) != 0) return Status::ok();
  out["no_rope_layer_interval"] = checkpoint::kMaxLayers;
  out["attention_chunk_size"] = nullptr;
  out["attn_temperature_tuning"] = false;
  return Status::ok();
}

constexpr checkpoint::NameRule kNames[] = {{checkpoint::NameRule::At::InLayer, ".feed_forward.", ".mlp."},
                                           {checkpoint::NameRule::At::End, ".mlp.router.weight", ".mlp.gate.weight"}};

}  // namespace

const ModelSpec kLlama4{.family = {.architecture = "Llama4ForCausalLM",
                                   .model_type = "llama4_text",
                                   .sizes = {.vocab = 202048,
                                             .hidden = 5120,
                                             .intermediate = 8192,
                                             .layers = 48,
                                             .heads = 40,
                                             .kv_heads = 8,
                                             .head_dim = 128,
                                             .positions = 131072,
                                             .eps = 1e-5,
                                             .theta = 5e5},
                                   .fields = kFields,
                                   .read = read,
                                   .gguf = {.name = "llama4", .experts = "num_local_experts", .add = add},
                                   .names = kNames,
                                   .wrapper = "Llama4ForConditionalGeneration"},
                        .forward = forward};

}  // namespace reprise::models::llama4
