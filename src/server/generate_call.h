// GenerateCall: one call of a route that generates, read from its JSON: completions, chat, and SGLang's native form.
// The parsers check every field; what they give can be handed to the scheduler. Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/image.h"
#include "engine/sampling.h"
#include "images/decode.h"
#include "server/answer_splitter.h"
#include "server/api_error.h"
#include "server/known_fields.h"
#include "server/served_model.h"

namespace reprise::server {

enum class CallKind : uint8_t { Completion, Chat, Native };

struct GenerateCall {
  CallKind kind = CallKind::Completion;
  std::string id;                       // "cmpl-...", or what the client gave
  std::vector<std::string> prompt_ids;  // of SGLang's form with several prompts: by prompt; otherwise empty
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> prompt_texts;      // what echo shows; decoded where the client gave ids
  std::vector<engine::SequenceImage> images;  // of the only prompt, in their places
  bool several_prompts = false;               // the client gave a list
  engine::SamplingParams sampling;            // logprobs: how many are wanted, or -1
  AnswerGrammars::Masks grammar;              // what the answers may be; null: anything
  SplitOptions split;                         // of a chat's answers
  int64_t n = 1;                              // answers to each prompt
  int64_t priority = 0;
  std::optional<double> timeout_s;  // from the request's arrival on
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::string cache_salt;
  std::vector<int32_t> prediction;      // what the client expects as the answer
  bool predicts = false;                // it said so
  std::optional<int64_t> draft_tokens;  // rows of an answer in one step at most; 1: no drafts
  bool no_answer = false;               // max_tokens is 0: the prompt is read, nothing is said
  bool echo = false;
  bool stream = false, include_usage = false, continuous_usage = false;
  bool skip_special_tokens = true, include_stop = false;
  bool token_ids = false;     // are told with the text
  bool nothing = false;       // is asked for, and the answer comes at once: Ollama's way to load a model
  OrderedJson repeated;       // fields of the request that the answer repeats
  sched::AdapterPtr adapter;  // that the request chose; null: the model alone
  std::string model_name;     // as the client says it, where the answer repeats that
  std::vector<FieldWarning> warnings;
};

// What answers call the model.
inline const std::string& name_in_answers(const ServedModel& model, const GenerateCall& call) {
  return call.adapter ? call.adapter->name : model.name;
}

struct CallLimits {
  int64_t most_answers = 128;      // prompts times n
  int64_t token_budget = 1 << 20;  // answers times tokens of each, prompt included; what one call can ask for
  int64_t default_priority = 0;    // where a request names none
  size_t most_stops = 16, most_biases = 1024;
  int most_logprobs = 20;
  int64_t most_images = 8;
  images::DecodeLimits image{.bytes_by = " (--max-image-bytes)", .pixels_by = " (--max-image-pixels)"};
  int64_t most_frames = 768, video_pixels = int64_t{1} << 29;  // of one video
  // The bytes at a URL that the server may fetch; null: it fetches none.
  std::function<Result<std::string>(const std::string& url)> fetch_image;
  bool strict_fields = false;     // fields that are unknown or not honoured are errors
  bool keep_attribution = false;  // what Claude Code says of itself stays in the prompt
};

// The bounds of a request's timeout, in seconds.
constexpr double kShortestTimeout = 0.001, kLongestTimeout = 1e6;

using ParsedCall = std::variant<GenerateCall, ApiError>;
ParsedCall parse_completion(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);
ParsedCall parse_chat(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);
ParsedCall parse_native(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);

}  // namespace reprise::server
