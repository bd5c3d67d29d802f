#include "server/answer.h"

#include "server/fields.h"

namespace reprise::server {

using engine::SampledToken;
using sched::FinishReason;
using sched::RequestResult;

namespace {

OrderedJson bytes_of(std::string_view text) {
  OrderedJson out = OrderedJson::array();
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

}  // namespace

const char* reason_of(const RequestResult& result, bool called) {
  if (called && result.finish == FinishReason::Stop) return "tool_calls";
  switch (result.finish) {
    case FinishReason::Length: return "length";
    case FinishReason::Cancelled: return "abort";
    default: return "stop";
  }
}

void Answer::add(const AnswerPart& part) {
  text += part.text;
  reasoning += part.reasoning;
  calls.insert(calls.end(), part.calls.begin(), part.calls.end());
  tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  reasoning_tokens += part.reasoning_tokens;
  prompt.insert(prompt.end(), part.prompt.begin(), part.prompt.end());
  if (part.result) result = part.result;
  if (!part.stop_string.empty()) stop_string = part.stop_string;
}

OrderedJson Usage::json() const {
  OrderedJson out = {{"prompt_tokens", prompt_tokens},
                     {"total_tokens", prompt_tokens + completion_tokens},
                     {"completion_tokens", completion_tokens},
                     {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
  if (accepted_predictions)
    out["completion_tokens_details"] = {{"accepted_prediction_tokens", *accepted_predictions},
                                        {"rejected_prediction_tokens", rejected_predictions}};
  if (drafts.steps > 0)
    out["speculative"] = {{"drafts", drafts.steps},
                          {"draft_tokens", drafts.drafted},
                          {"accepted_tokens", drafts.accepted},
                          {"drafted_per_position", drafts.places.drafted},
                          {"accepted_per_position", drafts.places.accepted}};
  return out;
}

Usage usage_of(const GenerateCall& call, const std::vector<Answer>& answers) {
  Usage u;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].result) {
      u.completion_tokens += static_cast<int64_t>(answers[i].tokens.size());
      if (i % static_cast<size_t>(call.n) == 0)
        u.prompt_tokens += static_cast<int64_t>(call.prompts[i / static_cast<size_t>(call.n)].size());
      continue;
    }
    const RequestResult& r = *answers[i].result;
    u.completion_tokens += r.completion_tokens;
    u.drafts += r.drafts;
    if (call.predicts) {
      u.accepted_predictions = u.accepted_predictions.value_or(0) + r.drafts.predicted_accepted;
      u.rejected_predictions += r.drafts.predicted - r.drafts.predicted_accepted;
    }
    // A prompt counts once, however many answers it has.
    if (i % static_cast<size_t>(call.n) != 0) continue;
    u.prompt_tokens += r.prompt_tokens;
    u.cached_tokens += r.cached_tokens;
  }
  return u;
}

std::string text_of_token(const ServedModel& model, int32_t token) {
  if (!model.tokenizer) return fmt::format("token_id:{}", token);
  auto text = model.tokenizer->decode(std::span(&token, 1));
  return text ? *text : fmt::format("token_id:{}", token);
}

OrderedJson chat_logprobs(const ServedModel& model, const std::vector<SampledToken>& tokens) {
  OrderedJson content = OrderedJson::array();
  for (const SampledToken& t : tokens) {
    const std::string text = text_of_token(model, t.token);
    OrderedJson top = OrderedJson::array();
    for (const auto& e : t.top) {
      const std::string name = text_of_token(model, e.token);
      top.push_back({{"token", name}, {"logprob", e.logprob}, {"bytes", bytes_of(name)}});
    }
    content.push_back({{"token", text},
                       {"logprob", t.logprob ? OrderedJson(*t.logprob) : OrderedJson(nullptr)},
                       {"bytes", bytes_of(text)},
                       {"top_logprobs", std::move(top)}});
  }
  return content;
}

std::string server_event(const OrderedJson& json, std::string_view name) {
  std::string out;
  if (!name.empty()) out = fmt::format("event: {}\n", name);
  return out + "data: " + dumped(json) + "\n\n";
}

}  // namespace reprise::server
