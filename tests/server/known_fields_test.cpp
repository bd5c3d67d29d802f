// The table of fields, held against the fields that vLLM's, SGLang's and llama.cpp's servers declare.
#include "server/known_fields.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace reprise::server::known_fields_test {
namespace {

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// The members of ChatCompletionRequest in vLLM's protocol.py.
constexpr const char* kVllmChat =
    "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n "
    "presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice "
    "reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user use_beam_search top_k min_p "
    "repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens "
    "skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs "
    "logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt continue_final_message "
    "add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs "
    "structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids "
    "return_token_offsets return_prompt_text return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params "
    "vllm_xargs repetition_detection stream_interval";
// CompletionRequest and ChatCompletionRequest in SGLang's protocol.py, what both have.
constexpr const char* kSglangOpenAi =
    "model frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream stream_options "
    "temperature top_p user return_hidden_states return_routed_experts routed_experts_start_len "
    "return_cached_tokens_details return_token_ids top_k min_p min_tokens regex ebnf repetition_penalty stop_token_ids "
    "stop_regex no_stop_trim ignore_eos skip_special_tokens lora_path session_id session_params response_format "
    "custom_params custom_logit_processor images_config bootstrap_host bootstrap_port bootstrap_room routed_dp_rank "
    "data_parallel_rank rid extra_key cache_salt ngram_corpus_id priority";
// SamplingParams of SGLang, what callers set.
constexpr const char* kSglangSampling =
    "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty presence_penalty "
    "repetition_penalty min_new_tokens n json_schema regex ebnf structural_tag ignore_eos skip_special_tokens "
    "spaces_between_special_tokens no_stop_trim custom_params stream_interval logit_bias sampling_seed";
// GenerateReqInput of SGLang.
constexpr const char* kSglangNative =
    "rid session_id text input_ids input_embeds image_data video_data audio_data sampling_params return_logprob "
    "logprob_start_len top_logprobs_num token_ids_logprob return_text_in_logprobs stream log_metrics "
    "return_hidden_states return_routed_experts modalities session_params lora_path lora_id custom_logit_processor "
    "bootstrap_host bootstrap_port bootstrap_room data_parallel_rank routed_dp_rank conversation_id background "
    "priority "
    "extra_key no_logs custom_labels return_bytes return_entropy return_prompt_token_ids require_reasoning";
// What llama.cpp's server reads beside OpenAI's.
constexpr const char* kLlama =
    "grammar grammar_lazy grammar_triggers n_predict n_cmpl n_probs post_sampling_probs n_keep n_discard n_indent "
    "n_cache_reuse t_max_predict_ms min_keep repeat_penalty repeat_last_n typical_p top_n_sigma dynatemp_range "
    "dynatemp_exponent xtc_probability xtc_threshold dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers mirostat mirostat_tau mirostat_eta samplers cache_prompt id_slot timings_per_token "
    "return_tokens return_progress response_fields lora json_schema";

TEST(KnownFields, CoverWhatOtherServersDeclare) {
  for (const auto& [list, form] :
       std::vector<std::pair<const char*, FieldForm>>{{kVllmChat, FieldForm::Chat},
                                                      {kSglangOpenAi, FieldForm::Chat},
                                                      {kSglangOpenAi, FieldForm::Completion},
                                                      {kSglangSampling, FieldForm::NativeSampling},
                                                      {kSglangNative, FieldForm::Native},
                                                      {kLlama, FieldForm::Chat},
                                                      {kLlama, FieldForm::Completion}})
    for (const std::string& name : words(list))
      EXPECT_NE(known_field(name, form), nullptr) << name << " in form " << static_cast<int>(form);
}

TEST(KnownFields, AreOnceInAForm) {
  std::set<std::pair<std::string, unsigned>> seen;
  for (const KnownField& f : known_fields())
    for (unsigned i = 0; i < kFieldForms; ++i)
      if (f.forms & (1u << i)) {
        EXPECT_TRUE(seen.emplace(f.name, i).second) << f.name << " in form " << i;
      }
  for (const KnownField& f : known_fields()) EXPECT_TRUE(!*f.neutral || Json::accept(f.neutral)) << f.name;
}

TEST(KnownFields, WhatAsksForNothingIsNoWarning) {
  for (const char* body :
       {R"({"use_beam_search": false})", R"({"length_penalty": 1.0})", R"({"bad_words": []})", R"({"grammar": ""})",
        R"({"lora_path": null})", R"({"unknown": null})", R"({"logit_bias": {}})",
        R"({"typical_p": 1, "mirostat": 0, "modalities": ["text"], "user": "me", "store": true})",
        R"({"spaces_between_special_tokens": true})"})
    EXPECT_TRUE(field_warnings(OrderedJson::parse(body), FieldForm::Chat).empty()) << body;
  for (const char* body :
       {R"({"use_beam_search": true})", R"({"length_penalty": 1.2})", R"({"bad_words": ["a"]})",
        R"({"grammar": "root"})", R"({"functions": [{"name": "f"}]})", R"({"modalities": ["audio"]})",
        R"({"spaces_between_special_tokens": false})", R"({"mirostat": 2})", R"({"echo": true})"})
    EXPECT_EQ(field_warnings(OrderedJson::parse(body), FieldForm::Chat).size(), 1u) << body;
}

TEST(KnownFields, MisspeltNamesHaveANeighbour) {
  for (const auto& [name, near] :
       std::vector<std::pair<const char*, const char*>>{{"temprature", "temperature"},
                                                        {"Temperature", "temperature"},
                                                        {"topP", "top_p"},
                                                        {"top-k", "top_k"},
                                                        {"max_token", "max_tokens"},
                                                        {"maxTokens", "max_tokens"},
                                                        {"frequencyPenalty", "frequency_penalty"},
                                                        {"repetition_penality", "repetition_penalty"},
                                                        {"sotp", "stop"},
                                                        {"reponse_format", "response_format"},
                                                        {"something_else", ""},
                                                        {"x", ""},
                                                        {"", ""}})
    EXPECT_EQ(nearest_field(name, FieldForm::Chat), near) << name;
  const auto warnings = field_warnings({{"max_new_token", 3}}, FieldForm::NativeSampling, "sampling_params.");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].field, "sampling_params.max_new_token");
  EXPECT_NE(warnings[0].text.find("\"sampling_params.max_new_tokens\""), std::string::npos) << warnings[0].text;
}

TEST(KnownFields, ManyUnknownNamesAreFewWarnings) {
  OrderedJson body = OrderedJson::object();
  for (int i = 0; i < 1000; ++i) body[std::string(100, 'x') + "\r\n" + std::to_string(i)] = 1;
  const auto warnings = field_warnings(body, FieldForm::Chat);
  EXPECT_EQ(warnings.size(), 17u);
  for (const FieldWarning& w : warnings) EXPECT_EQ(w.field.find_first_of("\r\n"), std::string::npos);
  EXPECT_NE(warnings.back().text.find("984"), std::string::npos);
}

}  // namespace
}  // namespace reprise::server::known_fields_test
