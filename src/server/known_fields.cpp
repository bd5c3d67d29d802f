#include "server/known_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/lower_case.h"

namespace reprise::server {
namespace {

constexpr unsigned bit(FieldForm f) { return 1u << static_cast<unsigned>(f); }
constexpr unsigned kText = bit(FieldForm::Completion), kChat = bit(FieldForm::Chat), kNative = bit(FieldForm::Native),
                   kSampling = bit(FieldForm::NativeSampling), kOpenAi = kText | kChat, kEither = kOpenAi | kSampling,
                   kAny = kOpenAi | kNative | kSampling;

// The parsers' own names; tests hold the list to docs/openapi.json.
constexpr std::pair<const char*, unsigned> kRead[] = {
    {"model", kOpenAi},
    {"prompt", kText},
    {"messages", kChat},
    {"text", kNative},
    {"input_ids", kNative},
    {"sampling_params", kNative},
    {"rid", kOpenAi | kNative},
    {"lora_path", kOpenAi | kNative},
    {"request_id", kOpenAi},
    {"stream", kAny},
    {"stream_options", kOpenAi},
    {"max_tokens", kOpenAi},
    {"max_completion_tokens", kChat},
    {"max_new_tokens", kSampling},
    {"min_tokens", kEither},
    {"min_new_tokens", kEither},
    {"temperature", kEither},
    {"top_p", kEither},
    {"top_k", kEither},
    {"min_p", kEither},
    {"repetition_penalty", kEither},
    {"presence_penalty", kEither},
    {"frequency_penalty", kEither},
    {"seed", kEither},
    {"sampling_seed", kEither},
    {"ignore_eos", kEither},
    {"stop", kEither},
    {"stop_token_ids", kEither},
    {"logit_bias", kEither},
    {"n", kEither},
    {"best_of", kEither},
    {"skip_special_tokens", kEither},
    {"include_stop_str_in_output", kEither},
    {"no_stop_trim", kEither},
    {"priority", kAny},
    {"timeout", kOpenAi | kNative},
    {"cache_salt", kEither},
    {"speculative", kEither},
    {"prediction", kChat},
    {"logprobs", kOpenAi},
    {"top_logprobs", kChat},
    {"return_logprob", kNative},
    {"top_logprobs_num", kNative},
    {"echo", kText},
    {"suffix", kText},
    {"return_token_ids", kOpenAi},
    {"response_format", kEither},
    {"json_schema", kEither},
    {"regex", kEither},
    {"ebnf", kEither},
    {"guided_json", kEither},
    {"guided_regex", kEither},
    {"guided_choice", kEither},
    {"guided_grammar", kEither},
    {"structured_outputs", kEither},
    {"tools", kChat},
    {"tool_choice", kChat},
    {"parallel_tool_calls", kChat},
    {"chat_template", kChat},
    {"chat_template_kwargs", kChat},
    {"add_generation_prompt", kChat},
    {"separate_reasoning", kChat},
    {"reasoning_effort", kChat},
};

constexpr std::pair<const char*, unsigned> kHarmless[] = {
    // OpenAI
    {"user", kOpenAi | kNative},
    {"store", kChat},
    {"metadata", kOpenAi},
    {"service_tier", kOpenAi},
    {"safety_identifier", kOpenAi},
    {"prompt_cache_key", kOpenAi},
    {"prompt_cache_retention", kOpenAi},
    {"prompt_cache_options", kOpenAi},
    // vLLM
    {"guided_decoding_backend", kEither},
    {"session_id", kOpenAi | kNative},
    {"stream_interval", kEither},
    {"return_mm_kwargs", kChat},
    {"media_io_kwargs", kChat},
    {"mm_processor_kwargs", kChat},
    // SGLang
    {"model", kNative},
    {"log_metrics", kNative},
    {"no_logs", kNative},
    {"custom_labels", kOpenAi | kNative},
    {"extra_key", kOpenAi | kNative},
    {"conversation_id", kNative},
    {"routing_key", kNative},
    {"modalities", kNative},
    {"data_parallel_rank", kOpenAi | kNative},
    {"routed_dp_rank", kOpenAi | kNative},
    {"external_trace_header", kNative},
    {"received_time", kNative},
    {"stream_reasoning", kChat},
    {"ngram_corpus_id", kOpenAi},
    {"routed_experts_start_len", kOpenAi | kNative},
    {"use_audio_in_video", kChat | kNative},
    // llama.cpp
    {"cache_prompt", kOpenAi},
    {"id_slot", kOpenAi},
    {"n_cache_reuse", kOpenAi},
    {"timings_per_token", kOpenAi},
    {"return_progress", kOpenAi},
    {"verbose", kOpenAi},
    {"speculative.n_max", kOpenAi},
    {"speculative.n_min", kOpenAi},
    {"speculative.p_min", kOpenAi},
    {"speculative.type", kOpenAi},
    {"backend_sampling", kOpenAi},
};

struct Other {
  const char* name;
  unsigned forms;
  const char* neutral = "";
  const char* instead = "";
};

constexpr Other kNotHonoured[] = {
    // OpenAI
    {"functions", kChat, "", "tools"},
    {"function_call", kChat, R"(["none","auto"])", "tool_choice"},
    {"modalities", kChat, R"([["text"]])"},
    {"audio", kChat},
    {"web_search_options", kChat},
    {"verbosity", kChat, R"(["medium"])"},
    {"moderation", kChat},
    // vLLM
    {"mm_processor_kwargs", kText},
    {"use_beam_search", kEither},
    {"length_penalty", kEither, "[1]"},
    {"early_stopping", kEither},
    {"allowed_token_ids", kEither, "", "logit_bias"},
    {"bad_words", kEither, "", "logit_bias"},
    {"prompt_logprobs", kOpenAi, "", "echo with logprobs, on /v1/completions"},
    {"logprob_token_ids", kOpenAi},
    {"spaces_between_special_tokens", kEither, "[true]"},
    {"truncate_prompt_tokens", kEither},
    {"truncation_side", kOpenAi},
    {"add_special_tokens", kText, "[true]"},
    {"add_special_tokens", kChat},
    {"continue_final_message", kChat},
    {"documents", kChat},
    {"echo", kChat},
    {"return_tokens_as_token_ids", kOpenAi, "", "return_token_ids"},
    {"return_prompt_text", kChat},
    {"return_token_offsets", kOpenAi},
    {"thinking_token_budget", kChat},
    {"include_reasoning", kChat, "[true]", "separate_reasoning"},
    {"reasoning", kChat, "", "reasoning_effort"},
    {"repetition_detection", kOpenAi},
    {"watermarking", kOpenAi},
    {"guided_whitespace_pattern", kEither},
    {"structural_tag", kEither, "", "json_schema"},
    {"logits_processors", kOpenAi, "", "logit_bias"},
    {"prompt_embeds", kText, "", "prompt"},
    {"kv_transfer_params", kOpenAi},
    {"ec_transfer_params", kOpenAi},
    {"vllm_xargs", kOpenAi},
    // SGLang
    {"stop_regex", kEither, "", "stop"},
    {"custom_params", kEither},
    {"custom_logit_processor", kOpenAi | kNative},
    {"return_hidden_states", kOpenAi | kNative},
    {"return_routed_experts", kOpenAi | kNative},
    {"return_indexer_topk", kNative},
    {"return_cached_tokens_details", kOpenAi},
    {"return_meta_info", kChat},
    {"return_prompt_token_ids", kChat | kNative},
    {"return_text_in_logprobs", kNative},
    {"return_flat_raw_top_logprobs", kNative},
    {"return_flat_raw_top_logprobs_b64", kNative},
    {"return_sampling_mask", kNative},
    {"return_entropy", kNative},
    {"return_bytes", kNative},
    {"logprob_start_len", kNative, "[-1]", "echo with logprobs, on /v1/completions"},
    {"token_ids_logprob", kNative},
    {"input_embeds", kNative, "", "input_ids"},
    {"input_ids", kChat, "", "/generate"},
    {"image_data", kNative},
    {"video_data", kNative},
    {"audio_data", kNative},
    {"images_config", kOpenAi | kNative},
    {"video_config", kNative},
    {"positional_embed_overrides", kNative},
    {"multi_item_delimiter_indices", kNative},
    {"lora_id", kNative},
    {"session_params", kOpenAi | kNative},
    {"background", kNative},
    {"require_reasoning", kNative},
    {"max_thinking_tokens", kNative},
    {"task", kChat},
    {"bootstrap_host", kOpenAi | kNative},
    {"bootstrap_port", kOpenAi | kNative},
    {"bootstrap_room", kOpenAi | kNative},
    {"cache_salt", kNative, "", "sampling_params.cache_salt"},
    // llama.cpp
    {"grammar", kEither, "", "regex or json_schema"},
    {"grammar_lazy", kOpenAi},
    {"grammar_triggers", kOpenAi},
    {"n_predict", kOpenAi, "[-1]", "max_tokens"},
    {"n_cmpl", kOpenAi, "[1]", "n"},
    {"n_probs", kOpenAi, "[0]", "logprobs"},
    {"post_sampling_probs", kOpenAi},
    {"n_keep", kOpenAi, "[0]"},
    {"n_discard", kOpenAi, "[0]"},
    {"n_indent", kOpenAi, "[0]"},
    {"t_max_predict_ms", kOpenAi, "[0,-1]"},
    {"samplers", kEither},
    {"sampler_seq", kEither},
    {"min_keep", kEither, "[0,1]"},
    {"repeat_penalty", kEither, "[1]", "repetition_penalty"},
    {"repeat_last_n", kEither, "[0,-1]"},
    {"penalize_nl", kEither},
    {"penalty_prompt", kEither},
    {"typical_p", kEither, "[1]"},
    {"typ_p", kEither, "[1]"},
    {"tfs_z", kEither, "[1]"},
    {"top_a", kEither, "[0]"},
    {"top_n_sigma", kEither, "[0,-1]"},
    {"dynatemp_range", kEither, "[0]"},
    {"dynatemp_exponent", kEither, "[1]"},
    {"xtc_probability", kEither, "[0]"},
    {"xtc_threshold", kEither, "[0.1]"},
    {"dry_multiplier", kEither, "[0]"},
    {"dry_base", kEither, "[1.75]"},
    {"dry_allowed_length", kEither, "[2]"},
    {"dry_penalty_last_n", kEither, "[0,-1]"},
    {"dry_sequence_breakers", kEither},
    {"mirostat", kEither, "[0]"},
    {"mirostat_tau", kEither, "[5]"},
    {"mirostat_eta", kEither, "[0.1]"},
    {"adaptive_target", kEither, "[-1]"},
    {"adaptive_decay", kEither},
    {"lora", kOpenAi},
    {"response_fields", kOpenAi},
    {"return_tokens", kOpenAi, "", "return_token_ids"},
    {"reasoning_format", kChat, R"(["auto","deepseek"])", "separate_reasoning"},
    {"thinking_forced_open", kChat},
    {"reasoning_in_content", kChat, "", "separate_reasoning"},
    {"parse_tool_calls", kChat, "[true]"},
    {"image_data", kOpenAi},
    {"input_prefix", kText},
    {"input_suffix", kText, "", "suffix"},
};

using ByName = std::map<std::string_view, const KnownField*>;

// By form, of the names that it has.
const ByName& by_name(FieldForm form) {
  static const auto maps = [] {
    std::array<ByName, kFieldForms> out;
    for (const KnownField& f : known_fields())
      for (unsigned i = 0; i < out.size(); ++i)
        if (f.forms & (1u << i)) out[i].emplace(f.name, &f);
    return out;
  }();
  return maps[static_cast<size_t>(form)];
}

bool asks_for_nothing(const OrderedJson& value, const KnownField& field) {
  const OrderedJson neutral = *field.neutral ? OrderedJson::parse(field.neutral) : OrderedJson::array();
  const auto listed = [&](const OrderedJson& v) {
    return std::find(neutral.begin(), neutral.end(), v) != neutral.end();
  };
  if (value.is_null() || listed(value)) return true;
  if (value.is_boolean()) return !value.get<bool>() && !listed(true);
  return (value.is_string() && value.get_ref<const std::string&>().empty()) || (value.is_structured() && value.empty());
}

// Insertions, removals, changes and swaps of neighbours between two names; `most` + 1 when it is more than `most`.
size_t distance(std::string_view a, std::string_view b, size_t most) {
  if (a.size() > b.size() + most || b.size() > a.size() + most) return most + 1;
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

// Case and the marks between words do not count.
std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '_' && c != '-' && c != ' ') out += lower_case(c);
  return out;
}

// For a sentence: what a client calls a field may be anything.
std::string shown(std::string_view name) {
  constexpr size_t kMost = 64;
  std::string out;
  for (const char c : name.substr(0, kMost)) out += c > 31 && c < 127 && c != '"' ? c : '?';
  return name.size() > kMost ? out + "..." : out;
}

}  // namespace

const std::vector<KnownField>& known_fields() {
  static const std::vector<KnownField> list = [] {
    std::vector<KnownField> out;
    for (const auto& [name, forms] : kRead) out.push_back({name, forms, FieldFate::Read, "", ""});
    for (const auto& [name, forms] : kHarmless) out.push_back({name, forms, FieldFate::Harmless, "", ""});
    for (const Other& o : kNotHonoured) out.push_back({o.name, o.forms, FieldFate::NotHonoured, o.neutral, o.instead});
    for (const KnownField& f : dialect_fields()) out.push_back(f);
    return out;
  }();
  return list;
}

const KnownField* known_field(std::string_view name, FieldForm form) {
  const auto& fields = by_name(form);
  const auto it = fields.find(name);
  return it == fields.end() ? nullptr : it->second;
}

std::string nearest_field(std::string_view name, FieldForm form) {
  constexpr size_t kLongest = 40;
  if (name.size() > kLongest) return {};
  const std::string wanted = folded(name);
  std::string best;
  size_t least = std::min<size_t>(2, wanted.size() / 3) + 1;
  for (const auto& [candidate, field] : by_name(form)) {
    if (field->fate != FieldFate::Read) continue;
    const size_t d = distance(wanted, folded(candidate), least - 1);
    if (d >= least) continue;
    least = d;
    best = candidate;
    if (d == 0) break;
  }
  return best;
}

std::vector<FieldWarning> field_warnings(const OrderedJson& object, FieldForm form, std::string_view path) {
  constexpr size_t kMost = 16;
  std::vector<FieldWarning> out;
  if (!object.is_object()) return out;
  size_t more = 0;
  for (const auto& [name, value] : object.items()) {
    const KnownField* known = known_field(name, form);
    if (known && (known->fate != FieldFate::NotHonoured || asks_for_nothing(value, *known))) continue;
    if (!known && value.is_null()) continue;
    if (out.size() == kMost) {
      ++more;
      continue;
    }
    const std::string field = std::string(path) + shown(name);
    std::string text = fmt::format("\"{}\" is ", field);
    if (known) {
      text += "not honoured";
      if (*known->instead) text += fmt::format("; there is {}", known->instead);
    } else {
      text += "unknown and ignored";
      if (const std::string near = nearest_field(name, form); !near.empty())
        text += fmt::format("; did you mean \"{}{}\"?", path, near);
    }
    out.push_back({field, std::move(text)});
  }
  if (more > 0) out.push_back({"...", fmt::format("{} more fields are unknown or not honoured", more)});
  return out;
}

}  // namespace reprise::server
