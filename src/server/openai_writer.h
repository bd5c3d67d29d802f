// OpenAiWriter: answers in the forms of OpenAI's completions and chat completions, and in SGLang's native form. Like
// every AnswerWriter it belongs to one call, on the HTTP thread.
#pragma once

#include "server/answer.h"

namespace reprise::server {

class OpenAiWriter final : public AnswerWriter {
 public:
  OpenAiWriter(const ServedModel& model, const GenerateCall& call);

  OrderedJson whole(const std::vector<Answer>& answers) const override;
  std::string first(size_t index) override;
  std::string part(const AnswerPart& part, const Answer& so_far) override;
  std::string error(const ApiError& error) override { return server_event(error.json()); }
  std::string end(const std::vector<Answer>& answers) override;

 private:
  OrderedJson base(const char* object) const;
  OrderedJson token_logprobs(const std::vector<engine::SampledToken>& prompt,
                             const std::vector<engine::SampledToken>& tokens, size_t offset) const;
  OrderedJson calls(const std::vector<ToolCall>& calls, size_t first, bool indexed) const;
  void warn(OrderedJson& out) const;
  OrderedJson native(const Answer& answer, size_t index) const;
  OrderedJson finish_of(const sched::RequestResult& result, const std::string& stop_string) const;

  const ServedModel& model_;
  const GenerateCall& call_;
  int64_t created_;
  std::vector<size_t> offsets_;  // characters of text before the next token, by answer
  std::vector<bool> echoed_;     // the prompt was sent, by answer
};

}  // namespace reprise::server
