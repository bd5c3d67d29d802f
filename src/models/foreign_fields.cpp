#include "models/foreign_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "checkpoint/config_keys.h"

namespace reprise::models {
namespace {

using checkpoint::ModelConfigFields;

// What a field's value must be to change nothing.
enum class Neutral : uint8_t {
  Off,         // null, false, 0, nothing in it
  One,         // null, 1
  OffOrOne,    // null, false, 0, 1
  On,          // null, true, and 1 in a list
  Rope,        // null, a name of rotary embedding
  RmsNorm,     // null, a name of RMS norm
  Silu,        // null, a name of SiLU
  Softmax,     // null, softmax
  Greedy,      // null, greedy
  QkNorm,      // null, or what the family does
  HeadSize,    // null, the size of a head
  HiddenSize,  // null, the hidden size
  ScoreScale,  // null, 1 / sqrt(size of a head)
};

struct Rule {
  std::string_view name;
  Neutral neutral;
};

// Whole names first, then parts of names: families add new spellings of the same things.
constexpr Rule kNames[] = {
    // Scores, logits, embeddings, residuals.
    {"attention_multiplier", Neutral::ScoreScale},
    {"softmax_scale", Neutral::ScoreScale},
    {"query_pre_attn_scalar", Neutral::HeadSize},
    {"qk_scale_factor", Neutral::One},
    {"attention_value_scale", Neutral::One},
    {"scale_attn_weights", Neutral::On},
    {"scale_attn_by_inverse_layer_idx", Neutral::Off},
    {"scale_emb", Neutral::One},
    {"scale_depth", Neutral::Off},
    {"dim_model_base", Neutral::HiddenSize},
    {"log_scaling_alpha", Neutral::Off},
    {"softcap", Neutral::Off},
    // Order and kind of the parts of a layer.
    {"parallel_attn", Neutral::Off},
    {"apply_residual_connection_post_layernorm", Neutral::Off},
    {"do_layer_norm_before", Neutral::On},
    {"norm_type", Neutral::RmsNorm},
    {"normalization_function", Neutral::RmsNorm},
    {"layer_norm_type", Neutral::RmsNorm},
    {"hidden_activation", Neutral::Silu},
    {"activation_function", Neutral::Silu},
    {"use_post_norm", Neutral::Off},
    {"num_kv_shared_layers", Neutral::Off},
    {"hidden_size_per_layer_input", Neutral::Off},
    {"hc_mult", Neutral::OffOrOne},
    {"num_loops", Neutral::OffOrOne},
    {"total_ut_steps", Neutral::OffOrOne},
    {"attn_config", Neutral::Off},
    {"ffn_config", Neutral::Off},
    {"is_encoder_decoder", Neutral::Off},
    {"add_cross_attention", Neutral::Off},
    // Who sees whom.
    {"is_causal", Neutral::On},
    {"causal", Neutral::On},
    {"clip_qkv", Neutral::Off},
    {"attention_chunk_size", Neutral::Off},
    {"sliding_window_pattern", Neutral::Off},
    {"sliding_window_size", Neutral::Off},
    {"global_attn_every_n_layers", Neutral::Off},
    {"full_attention_interval", Neutral::OffOrOne},
    {"local_attention", Neutral::Off},
    {"attention_window", Neutral::Off},
    {"attention_window_size", Neutral::Off},
    {"index_topk", Neutral::Off},
    // Positions.
    {"position_embedding_type", Neutral::Rope},
    {"no_rope_layers", Neutral::On},  // one number a layer, 1: it is rotated
    {"use_rope", Neutral::On},
    {"use_rotary_embedding", Neutral::On},
    {"rotary_dim", Neutral::HeadSize},
    {"rope_local_base_freq", Neutral::Off},
    {"local_rope_theta", Neutral::Off},
    {"global_rope_theta", Neutral::Off},
    {"layer_rope_theta", Neutral::Off},
    {"rope_interleaved", Neutral::Off},
    {"rotary_emb_interleaved", Neutral::Off},
    {"learned_pos_emb", Neutral::Off},
};
constexpr Rule kParts[] = {
    {"softcap", Neutral::Off},
    {"soft_cap", Neutral::Off},
    {"logit_cap", Neutral::Off},
    {"logit_scal", Neutral::One},
    {"logits_scal", Neutral::One},
    {"_multiplier", Neutral::One},
    {"mup_", Neutral::OffOrOne},
    {"residual_scal", Neutral::One},
    {"embedding_scal", Neutral::OffOrOne},
    {"embed_scal", Neutral::OffOrOne},
    {"scale_embed", Neutral::Off},
    {"rescale_", Neutral::Off},
    {"qk_norm", Neutral::QkNorm},
    {"qk_layernorm", Neutral::QkNorm},
    {"qk_layer_norm", Neutral::QkNorm},
    {"qk_ln", Neutral::QkNorm},
    {"parallel_residual", Neutral::Off},
    {"parallel_block", Neutral::Off},
    {"sandwich_norm", Neutral::Off},
    {"zero_centered", Neutral::Off},
    {"unit_offset", Neutral::Off},
    {"output_gate", Neutral::Off},
    {"attention_gate", Neutral::Off},
    {"gated_attention", Neutral::Off},
    {"swiglu_limit", Neutral::Off},
    {"alibi", Neutral::Off},
    {"attention_sink", Neutral::Off},
    {"sink_bias", Neutral::Off},
    {"temperature_tuning", Neutral::Off},
    {"bidirectional", Neutral::Off},
    {"relative_attention", Neutral::Off},
    {"relative_position", Neutral::Off},
    {"no_rope", Neutral::Off},
    {"nope_layer", Neutral::Off},
    {"interleaved_rope", Neutral::Off},
    {"rotary_pct", Neutral::One},
    {"rotary_percent", Neutral::One},
    {"rope_pct", Neutral::One},
    {"rope_percent", Neutral::One},
};

// Fields that some of our families go by, which list them (Family::fields), and the others do not.
constexpr Rule kOfSomeFamilies[] = {
    {"rope_interleave", Neutral::Off},
    {"kv_lora_rank", Neutral::Off},
    {"q_lora_rank", Neutral::Off},
    {"num_experts", Neutral::OffOrOne},
    {"num_local_experts", Neutral::OffOrOne},
    {"n_routed_experts", Neutral::OffOrOne},
};
// The same of models that have experts; without any they mean nothing.
constexpr Rule kOfSomeExperts[] = {
    {"norm_topk_prob", Neutral::On},
    {"n_shared_experts", Neutral::Off},
    {"num_shared_experts", Neutral::Off},
    {"shared_expert_intermediate_size", Neutral::Off},
    {"routed_scaling_factor", Neutral::One},
    {"scoring_func", Neutral::Softmax},
    {"topk_method", Neutral::Greedy},
    {"n_group", Neutral::OffOrOne},
    {"topk_group", Neutral::OffOrOne},
    {"first_k_dense_replace", Neutral::Off},
    {"moe_layer_freq", Neutral::OffOrOne},
    {"mlp_only_layers", Neutral::Off},
    {"decoder_sparse_step", Neutral::OffOrOne},
};
// Biases of projections. Whether there are any is decided by the tensors too, so that the others' value is a notice.
constexpr std::string_view kBiases[] = {"attention_bias", "mlp_bias"};

// What the value of a field says nothing about the maths of one step: training, generation, bookkeeping.
constexpr std::string_view kHarmless[] = {"transformers_version",
                                          "auto_map",
                                          "use_cache",
                                          "pretraining_tp",
                                          "initializer_range",
                                          "output_router_logits",
                                          "router_aux_loss_coef",
                                          "router_jitter_noise",
                                          "aux_loss_alpha",
                                          "seq_aux",
                                          "ep_size",
                                          "is_decoder",
                                          "is_llama_config",
                                          "return_dict",
                                          "output_hidden_states",
                                          "output_attentions",
                                          "id2label",
                                          "label2id",
                                          "num_labels",
                                          "problem_type",
                                          "chunk_size_feed_forward",
                                          "tokenizer_class",
                                          "task_specific_params",
                                          "use_bfloat16",
                                          "torchscript",
                                          "tie_encoder_decoder",
                                          "finetuning_task",
                                          "decoder_start_token_id",
                                          "temperature",
                                          "top_p",
                                          "top_k",
                                          "do_sample",
                                          "max_length",
                                          "min_length",
                                          "num_beams",
                                          "repetition_penalty",
                                          "name_or_path",
                                          "attn_implementation",
                                          "qk_head_dim",
                                          "ffn_dim_multiplier",
                                          "multiple_of",
                                          "prefix",
                                          "pruned_heads",
                                          "typical_p",
                                          "length_penalty",
                                          "no_repeat_ngram_size",
                                          "early_stopping",
                                          "use_return_dict",
                                          "num_return_sequences",
                                          "diversity_penalty",
                                          "bad_words_ids",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "model_max_length"};

bool is_number(const Json& v, double expected) {
  if (!v.is_number()) return false;
  const double d = v.get<double>();
  return std::abs(d - expected) <= 1e-6 * std::max(1.0, std::abs(expected));
}

bool is_name(const Json& v, std::initializer_list<std::string_view> names) {
  return v.is_string() && std::find(names.begin(), names.end(), v.get<std::string>()) != names.end();
}

bool is_off(const Json& v) {
  return v == false || is_number(v, 0) || is_name(v, {""}) || (v.is_structured() && v.empty());
}

double score_scale(const ModelConfigFields& f) {
  const int64_t size = f.latent ? f.latent->qk_nope_head_dim + f.latent->qk_rope_head_dim : f.head_dim;
  return 1.0 / std::sqrt(static_cast<double>(size));
}

bool is_neutral(const Json& v, Neutral neutral, const ModelSpec& spec, const ModelConfigFields& f) {
  if (v.is_null()) return true;
  if (v.is_array() && !v.empty())  // numbers may be of layers, so that 0 is not nothing
    return std::all_of(v.begin(), v.end(), [&](const Json& e) {
      return neutral == Neutral::Off ? e.is_null() || e == false : is_neutral(e, neutral, spec, f);
    });
  switch (neutral) {
    case Neutral::Off: return is_off(v);
    case Neutral::One: return is_number(v, 1);
    case Neutral::OffOrOne: return is_off(v) || is_number(v, 1);
    case Neutral::On: return v == true || is_number(v, 1) || (v.is_array() && v.empty());
    case Neutral::Rope: return is_name(v, {"rope", "rotary", "RoPE"});
    case Neutral::RmsNorm: return is_name(v, {"rms_norm", "rmsnorm", "RMSNorm", "rms"});
    case Neutral::Silu: return is_name(v, {"silu", "swish"});
    case Neutral::Softmax: return is_name(v, {"softmax"});
    case Neutral::Greedy: return is_name(v, {"greedy"});
    case Neutral::QkNorm: return v.is_boolean() && v.get<bool>() == spec.qk_norm;
    case Neutral::HeadSize: return is_number(v, static_cast<double>(f.head_dim));
    case Neutral::HiddenSize: return is_number(v, static_cast<double>(f.hidden_size));
    case Neutral::ScoreScale: return is_number(v, score_scale(f));
  }
  return false;
}

std::string allowed(Neutral neutral, const ModelSpec& spec, const ModelConfigFields& f) {
  switch (neutral) {
    case Neutral::Off: return "null, false, 0";
    case Neutral::One: return "null, 1";
    case Neutral::OffOrOne: return "null, false, 0, 1";
    case Neutral::On: return "null, true, 1";
    case Neutral::Rope: return "null, \"rope\"";
    case Neutral::RmsNorm: return "null, \"rms_norm\"";
    case Neutral::Silu: return "null, \"silu\"";
    case Neutral::Softmax: return "null, \"softmax\"";
    case Neutral::Greedy: return "null, \"greedy\"";
    case Neutral::QkNorm: return spec.qk_norm ? "null, true" : "null, false";
    case Neutral::HeadSize: return fmt::format("null, {}", f.head_dim);
    case Neutral::HiddenSize: return fmt::format("null, {}", f.hidden_size);
    case Neutral::ScoreScale: return fmt::format("null, {}", score_scale(f));
  }
  return "null";
}

bool contains(std::span<const std::string_view> list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_harmless(std::string_view key) {
  return contains(kHarmless, key) || key.starts_with("_") || key.starts_with("gguf_") || key.starts_with("unsloth") ||
         key.find("dropout") != std::string_view::npos || key.ends_with("pdrop");
}

std::optional<Neutral> find_rule(std::span<const Rule> rules, std::string_view key) {
  const auto it = std::find_if(rules.begin(), rules.end(), [&](const Rule& r) { return r.name == key; });
  return it == rules.end() ? std::nullopt : std::optional(it->neutral);
}

// What is to be asked of a field that the family does not go by; none for those without a rule.
std::optional<Neutral> rule_of(std::string_view key, const ModelConfigFields& f) {
  std::optional<Neutral> of_some = find_rule(kOfSomeFamilies, key);
  if (!of_some && f.experts.count > 0) of_some = find_rule(kOfSomeExperts, key);
  if (of_some) return of_some;
  if (contains(checkpoint::known_config_keys(), key) || is_harmless(key)) return std::nullopt;
  if (const auto named = find_rule(kNames, key)) return named;
  for (const Rule& r : kParts)
    if (key.find(r.name) != std::string_view::npos) return r.neutral;
  return std::nullopt;
}

// Not read by this family, or by anything.
bool has_no_effect(std::string_view key, const Json& value) {
  if (contains(kBiases, key)) return value == true;
  return !value.is_null() && !contains(checkpoint::known_config_keys(), key) && !is_harmless(key);
}

}  // namespace

Status check_fields(const ModelSpec& spec, ModelConfigFields& fields) {
  std::vector<std::string> unread;
  for (const auto& [key, value] : fields.raw().items()) {
    if (contains(spec.family.fields, key)) continue;
    if (const auto rule = rule_of(key, fields)) {
      if (is_neutral(value, *rule, spec, fields)) continue;
      std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
      if (text.size() > 60) text = text.substr(0, 60) + "...";
      return error(Code::Unsupported, "{}: {} is {}, and {} does not go by it; allowed: {}", fields.source, key, text,
                   fields.architecture, allowed(*rule, spec, fields));
    }
    if (has_no_effect(key, value)) unread.push_back(key);
  }
  if (unread.empty()) return Status::ok();
  constexpr size_t kShown = 8;
  const size_t more = unread.size() > kShown ? unread.size() - kShown : 0;
  unread.resize(unread.size() - more);
  fields.notices.push_back(fmt::format("fields of the configuration that have no effect: {}{}", fmt::join(unread, ", "),
                                       more ? fmt::format(" and {} more", more) : ""));
  return Status::ok();
}

}  // namespace reprise::models
