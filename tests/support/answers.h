// Answers: sinks that keep what a scheduler gives, and the answer that a request has by itself.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "sched/request.h"
#include "support/fake_executor.h"

namespace reprise::sched {

using Tokens = std::vector<int32_t>;

// What arrived for one request; it outlives the request.
struct Answer {
  Tokens tokens;
  std::vector<SampledToken> sampled, prompt;
  std::optional<RequestResult> result;
  int64_t stop_after = -1;  // the sink says stop after so many tokens
  int64_t times_finished = 0;
};

class KeepingSink final : public RequestSink {
 public:
  explicit KeepingSink(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  void prompt(std::vector<SampledToken> tokens) override { answer_->prompt = std::move(tokens); }
  bool token(const SampledToken& token, FinishReason) override {
    answer_->tokens.push_back(token.token);
    answer_->sampled.push_back(token);
    return static_cast<int64_t>(answer_->tokens.size()) != answer_->stop_after;
  }
  void finished(const RequestResult& result) override {
    answer_->result = result;
    ++answer_->times_finished;
  }

 private:
  std::shared_ptr<Answer> answer_;
};

struct Asked {
  Request request;
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
};

inline Asked ask(Tokens prompt, int64_t most = 8) {
  Asked a;
  a.request.prompt = std::move(prompt);
  a.request.sampling.max_new_tokens = most;
  a.request.sink = std::make_unique<KeepingSink>(a.answer);
  return a;
}

inline Tokens count_up(int64_t n, int32_t first = 2) {
  Tokens t(static_cast<size_t>(n));
  for (size_t i = 0; i < t.size(); ++i) t[i] = 2 + static_cast<int32_t>((static_cast<size_t>(first) + i * i) % 27);
  return t;
}

// Greedy, from the model itself.
inline Tokens expected(Tokens history, int64_t most, bool ignore_eos = false) {
  Tokens out;
  while (static_cast<int64_t>(out.size()) < most) {
    const auto row = FakeExecutor::logits_of(history);
    out.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    history.push_back(out.back());
    if (!ignore_eos && out.back() == FakeExecutor::kEos) break;
  }
  return out;
}

}  // namespace reprise::sched
