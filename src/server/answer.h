// AnswerPart and Answer: what a call has said so far, and how the three forms of the API write it. Plain values.
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
  std::optional<sched::RequestResult> result;
  std::string stop_string;

  void add(const AnswerPart& part);
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  OrderedJson json() const;
};

// Writes the answers to one call.
class AnswerWriter {
 public:
  AnswerWriter(const ServedModel& model, const GenerateCall& call);

  // All answers at once.
  OrderedJson whole(const std::vector<Answer>& answers) const;
  // The events of a stream, each "data: ...\n\n".
  std::string first(size_t index);  // before anything of an answer
  std::string part(const AnswerPart& part, const Answer& so_far);
  std::string usage(const Usage& usage) const;  // "" when it was not asked for
  static std::string done() { return "data: [DONE]\n\n"; }
  static std::string event(const OrderedJson& json);

  Usage sum(const std::vector<Answer>& answers) const;

 private:
  OrderedJson base(const char* object) const;
  OrderedJson token_logprobs(const std::vector<engine::SampledToken>& prompt,
                             const std::vector<engine::SampledToken>& tokens, size_t offset) const;
  OrderedJson calls(const std::vector<ToolCall>& calls, size_t first, bool indexed) const;
  OrderedJson chat_logprobs(const std::vector<engine::SampledToken>& tokens) const;
  void warn(OrderedJson& out) const;
  OrderedJson native(const Answer& answer, size_t index) const;
  OrderedJson finish_of(const sched::RequestResult& result, const std::string& stop_string) const;
  std::string text_of(int32_t token) const;

  const ServedModel& model_;
  const GenerateCall& call_;
  int64_t created_;
  std::vector<size_t> offsets_;  // characters of text before the next token, by answer
  std::vector<bool> echoed_;     // the prompt was sent, by answer
};

}  // namespace reprise::server
