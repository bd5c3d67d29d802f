// AnswerPart and Answer: what a call has said so far; AnswerWriter: how the dialect of the call writes it. Plain
// values; a writer belongs to one call, on the HTTP thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sched/request.h"
#include "server/generate_call.h"

namespace reprise::server {

// Why an answer ended, as the API calls it; `called`: with calls of tools.
const char* reason_of(const sched::RequestResult& result, bool called = false);

// Something new of one answer.
struct AnswerPart {
  size_t index = 0;  // prompt * n + which
  std::string text;
  std::string reasoning;  // of a chat: thoughts and calls taken out of the text
  std::vector<ToolCall> calls;
  std::vector<engine::SampledToken> tokens;
  int64_t reasoning_tokens = 0;                // of the tokens, those of thoughts and their marks
  std::vector<engine::SampledToken> prompt;    // echoed with log-probabilities
  std::optional<int64_t> cached_tokens;        // of the prompt: the request was admitted, and nothing else is new
  std::optional<bool> waits;                   // it was preempted, or goes on after that; nothing else is new
  std::optional<sched::RequestResult> result;  // the end
  std::string stop_string;                     // that ended it
};

// All of one answer.
struct Answer {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  std::vector<engine::SampledToken> tokens, prompt;
  int64_t reasoning_tokens = 0;
  std::optional<sched::RequestResult> result;
  std::string stop_string;

  void add(const AnswerPart& part);
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  // Where the call has a prediction: drafts from it that came true, and that did not.
  std::optional<int64_t> accepted_predictions = {};
  int64_t rejected_predictions = 0;
  sched::DraftCounts drafts = {};
  OrderedJson json() const;
};

// Token counts of all answers to a call.
Usage usage_of(const GenerateCall& call, const std::vector<Answer>& answers);

// The log-probabilities of tokens, as OpenAI's chats have them: each {"token", "logprob", "bytes", "top_logprobs"}.
OrderedJson chat_logprobs(const ServedModel& model, const std::vector<engine::SampledToken>& tokens);
std::string text_of_token(const ServedModel& model, int32_t token);

// "data: ...\n\n"; with a name "event: NAME\ndata: ...\n\n".
std::string server_event(const OrderedJson& json, std::string_view name = "");

// Writes the answers to one call: whole() alone, or the pieces of a stream in the order of their declarations. The
// model and the call outlive it.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual OrderedJson whole(const std::vector<Answer>& answers) const = 0;

  virtual std::string_view stream_type() const { return "text/event-stream; charset=utf-8"; }
  // The prompt of an answer is being read; so many of its tokens were cached.
  virtual std::string admitted(size_t index, int64_t cached_tokens) { return {}; }
  virtual std::string first(size_t index) { return {}; }  // before anything of an answer
  virtual std::string part(const AnswerPart& part, const Answer& so_far) = 0;
  virtual std::string error(const ApiError& error) = 0;             // in place of the last part of an answer
  virtual std::string end(const std::vector<Answer>& answers) = 0;  // after the last part of all
  // What is sent after a while of silence, so that no proxy takes the connection for dead; "": nothing.
  virtual std::string ping() const { return {}; }
};

}  // namespace reprise::server
