#include "api/speculation_settings.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/log.h"

namespace reprise::api {
namespace {

constexpr int64_t kModelDraftTokens = 4;  // each costs a step of the draft model

constexpr std::string_view kConfig = "`speculative_config`";

Status read_integer(const Json& v, std::string_view key, int64_t low, int64_t high, int64_t& out) {
  if (!v.is_number_integer() || v.get<double>() < static_cast<double>(low) ||
      v.get<double>() > static_cast<double>(high))
    return invalid("{}: {} must be a whole number from {} to {}", kConfig, key, low, high);
  out = v.get<int64_t>();
  return Status::ok();
}

Status read_real(const Json& v, std::string_view key, double& out) {
  if (!v.is_number()) return invalid("{}: {} must be a number", kConfig, key);
  out = v.get<double>();
  return Status::ok();
}

Status read_method(const Json& v, spec::SpecOptions& o) {
  const std::string* name = v.get_ptr<const std::string*>();
  for (const auto& [method, algorithm] :
       {std::pair("ngram", spec::Algorithm::Ngram), std::pair("suffix", spec::Algorithm::Suffix),
        std::pair("draft_model", spec::Algorithm::Model), std::pair("mtp", spec::Algorithm::Prediction),
        std::pair("deepseek_mtp", spec::Algorithm::Prediction), std::pair("glm4_moe_mtp", spec::Algorithm::Prediction),
        std::pair("qwen3_next_mtp", spec::Algorithm::Prediction), std::pair("qwen3_5_mtp", spec::Algorithm::Prediction),
        std::pair("eagle", spec::Algorithm::Eagle), std::pair("eagle3", spec::Algorithm::Eagle3)})
    if (name && *name == method) {
      o.algorithm = algorithm;
      return Status::ok();
    }
  return invalid(
      "{}: method {} is not there; allowed: ngram, suffix, draft_model, mtp, deepseek_mtp, glm4_moe_mtp, "
      "qwen3_next_mtp, qwen3_5_mtp, eagle, eagle3",
      kConfig, name ? *name : v.dump());
}

Status read_key(std::string_view key, const Json& v, spec::SpecOptions& o, std::string& model) {
  using O = spec::SpecOptions;
  if (key == "method") return read_method(v, o);
  if (key == "model") {
    if (!v.is_string()) return invalid("{}: model must be a path or a name", kConfig);
    model = v.get<std::string>();
    return Status::ok();
  }
  if (key == "num_speculative_tokens") {
    RETURN_IF_ERROR(read_integer(v, key, 1, O::kMostDraftTokens - 1, o.draft_tokens));
    ++o.draft_tokens;
    return Status::ok();
  }
  if (key == "prompt_lookup_min") return read_integer(v, key, 1, O::kLongestMatch, o.shortest_match);
  if (key == "prompt_lookup_max") return read_integer(v, key, 1, O::kLongestMatch, o.longest_match);
  if (key == "suffix_decoding_max_tree_depth") return read_integer(v, key, 1, O::kLongestMatch, o.suffix_depth);
  if (key == "suffix_decoding_max_cached_requests") return read_integer(v, key, 0, 1 << 30, o.suffix_answers);
  if (key == "suffix_decoding_max_spec_factor") return read_real(v, key, o.suffix_factor);
  if (key == "suffix_decoding_min_token_prob") return read_real(v, key, o.suffix_least_chance);
  return invalid(
      "{}: key \"{}\" is not known; allowed: method, model, num_speculative_tokens, prompt_lookup_min, "
      "prompt_lookup_max, "
      "suffix_decoding_max_tree_depth, suffix_decoding_max_cached_requests, suffix_decoding_max_spec_factor, "
      "suffix_decoding_min_token_prob",
      kConfig, key);
}

}  // namespace

Status read_speculative_config(std::string_view text, spec::SpecOptions& o, std::string& model) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, kConfig));
  if (!json.is_object() || !json.contains("method"))
    return invalid("{}: an object with a method was expected, like {{\"method\": \"ngram\"}}", kConfig);
  for (const auto& [key, v] : json.items()) RETURN_IF_ERROR(read_key(key, v, o, model));
  if (spec::drafts_by_model(o.algorithm) && o.draft_tokens == spec::SpecOptions().draft_tokens &&
      !json.contains("num_speculative_tokens"))
    o.draft_tokens = kModelDraftTokens;
  // One bound alone moves the other one along.
  if (json.contains("prompt_lookup_min") && !json.contains("prompt_lookup_max"))
    o.longest_match = std::max(o.longest_match, o.shortest_match);
  if (json.contains("prompt_lookup_max") && !json.contains("prompt_lookup_min"))
    o.shortest_match = std::min(o.shortest_match, o.longest_match);
  return Status::ok();
}

SpeculationSettings::SpeculationSettings() { settings::reset(bindings()); }

std::vector<settings::Binding> SpeculationSettings::bindings() {
  return {{"speculative_algorithm", &algorithm},
          {"speculative_num_draft_tokens", &draft_tokens},
          {"speculative_num_steps", &steps},
          {"speculative_adaptive", &adaptive},
          {"speculative_max_rows", &max_rows},
          {"speculative_exact", &exact},
          {"speculative_ngram_min_match_window_size", &shortest_match},
          {"speculative_ngram_max_match_window_size", &longest_match},
          {"speculative_ngram_max_trie_depth", &depth},
          {"speculative_ngram_capacity", &capacity},
          {"speculative_accept_threshold_single", &threshold_single},
          {"speculative_accept_threshold_acc", &threshold_acc},
          {"speculative_config", &config},
          {"speculative_draft_model_path", &draft_model_path},
          {"speculative_draft_model_quantization", &draft_quantization},
          {"speculative_draft_load_format", &draft_load_format}};
}

Result<std::string> SpeculationSettings::draft_model() const {
  ASSIGN_OR_RETURN(spec::SpecOptions o, options());
  std::string model = draft_model_path.value_or("");
  if (config) RETURN_IF_ERROR(read_speculative_config(*config, o, model));
  return spec::needs_draft_path(o.algorithm) ? model : std::string();
}

// The model that drafts is named exactly where one is to.
Status SpeculationSettings::check_draft_model(spec::Algorithm algorithm, const std::string& model) const {
  if (spec::needs_draft_path(algorithm))
    return model.empty() ? invalid("`speculative_draft_model_path` is missing: `speculative_algorithm` {} needs a {}",
                                   spec::algorithm_name(algorithm),
                                   algorithm == spec::Algorithm::Model ? "second model" : "head of that kind")
                         : Status::ok();
  if (model.empty()) return Status::ok();
  return invalid(
      "`speculative_draft_model_path` {} with `speculative_algorithm` {}, which needs no second model; "
      "allowed with it: STANDALONE, EAGLE, EAGLE3",
      model, spec::algorithm_name(algorithm));
}

Result<spec::SpecOptions> SpeculationSettings::options() const {
  spec::SpecOptions o;
  std::string model = draft_model_path.value_or("");
  ASSIGN_OR_RETURN(o.algorithm, spec::parse_algorithm(algorithm));
  for (const auto& [key, value] : {std::pair("single", threshold_single), std::pair("acc", threshold_acc)})
    if (value.value_or(1) != 1)
      return invalid("`speculative_accept_threshold_{}` {} would change answers; allowed: 1", key, *value);
  if (steps)
    o.draft_tokens = *steps + 1;
  else if (draft_tokens)
    o.draft_tokens = *draft_tokens;
  else if (spec::drafts_by_model(o.algorithm))
    o.draft_tokens = kModelDraftTokens;
  o.adaptive = adaptive == "on";
  o.max_rows = max_rows.value_or(0);
  o.shortest_match = shortest_match;
  o.longest_match = longest_match;
  o.suffix_depth = depth;
  o.suffix_tokens = capacity;
  if (config) {
    if (o.algorithm != spec::Algorithm::None)
      return invalid("`speculative_config` and `speculative_algorithm` {} say the same thing; give one of them",
                     algorithm);
    RETURN_IF_ERROR(read_speculative_config(*config, o, model));
  }
  // As in the original: without a head of its own, the layer of the checkpoint.
  if (o.algorithm == spec::Algorithm::Eagle && model.empty()) o.algorithm = spec::Algorithm::Prediction;
  RETURN_IF_ERROR(check_draft_model(o.algorithm, model));
  RETURN_IF_ERROR(o.check());
  return o;
}

std::vector<std::string> SpeculationSettings::notices() const {
  std::vector<std::string> out;
  if (steps && draft_tokens && *draft_tokens != *steps + 1)
    out.push_back(
        fmt::format("`speculative_num_draft_tokens` {} with `speculative_num_steps` {}: a step has the last "
                    "token and its drafts; effective: {}",
                    *draft_tokens, *steps, *steps + 1));
  return out;
}

Status SpeculationSettings::check_engine(std::string_view refusal, const DeviceInfo& device) const {
  ASSIGN_OR_RETURN(const spec::SpecOptions o, options());
  if (o.algorithm == spec::Algorithm::None) return Status::ok();
  const bool required = exact == "required";
  if (!refusal.empty())
    return required ? invalid("`speculative_exact` required: no drafts can be verified here: {}", refusal)
                    : Status::ok();
  if (device.row_invariant) return Status::ok();
  constexpr std::string_view kWhy = "one token and several are attended by two kernels";
  if (required) return invalid("`speculative_exact` required: {}: {}; allowed: auto", device.name, kWhy);
  log::notice("on this device speculation may change text: {}", kWhy);
  return Status::ok();
}

}  // namespace reprise::api
