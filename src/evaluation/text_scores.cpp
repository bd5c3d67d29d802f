#include "evaluation/text_scores.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace reprise::evaluation {
namespace {

// log p of `token` under softmax(logits), in double: 150,000 small terms are summed.
double log_probability(std::span<const float> logits, int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - top - std::log(sum);
}

// One text on its way through the engine; its pages go back to the pool with it.
class Reading {
 public:
  Reading(engine::Engine& engine, TextToScore text, TextScore& score)
      : engine_(engine), sequence_(std::move(text.tokens)), from_(text.from), score_(score) {
    sequence_.set_adapter(text.adapter);
  }
  ~Reading() { engine_.release(sequence_); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  engine::Sequence& sequence() { return sequence_; }
  // Tokens in front of the first whose logits are wanted.
  int64_t unscored() const { return std::max<int64_t>(from_ - 1 - sequence_.cached(), 0); }
  // The last token is only predicted, never fed.
  int64_t left() const { return sequence_.size() - 1 - sequence_.cached(); }
  void add(double log_p) {
    score_.log_p += log_p;
    score_.squares += log_p * log_p;
    ++score_.tokens;
  }

 private:
  engine::Engine& engine_;
  engine::Sequence sequence_;
  int64_t from_;
  TextScore& score_;
};

class Scorer {
 public:
  Scorer(engine::Engine& engine, const std::function<void(int64_t, int64_t)>& progress, int64_t total)
      : engine_(engine), progress_(progress), total_(total) {}

  Status run(std::vector<TextToScore> texts, std::vector<TextScore>& scores) {
    size_t next = 0;
    while (next < texts.size() || !running_.empty()) {
      while (next < texts.size() && static_cast<int64_t>(running_.size()) < engine_.max_step_rows()) {
        auto r = std::make_unique<Reading>(engine_, texts[next], scores[next]);
        const Status reserved = engine_.reserve(r->sequence(), r->sequence().size());
        if (reserved.code() == Code::OutOfMemory && !running_.empty()) break;
        RETURN_IF_ERROR(reserved);
        running_.push_back(std::move(r));
        ++next;
      }
      RETURN_IF_ERROR(step());
    }
    return Status::ok();
  }

 private:
  // As many tokens and rows of logits as a step takes, from the first texts in line.
  void fill_step() {
    int64_t tokens = engine_.max_step_tokens(), rows = engine_.max_step_rows();
    items_.clear();
    read_.clear();
    for (const auto& r : running_) {
      const int64_t unscored = r->unscored();
      const int64_t count = unscored > 0 ? std::min(tokens, unscored) : std::min({tokens, rows, r->left()});
      if (count <= 0) break;
      items_.push_back({&r->sequence(), count, unscored == 0 ? count : 0});
      read_.push_back(r.get());
      tokens -= count;
      if (unscored == 0) rows -= count;
    }
  }

  Status step() {
    fill_step();
    std::vector<int64_t> begin;
    for (const engine::StepItem& item : items_) begin.push_back(item.sequence->cached());
    ASSIGN_OR_RETURN(const std::span<float> logits, engine_.step(items_));
    const size_t vocab = static_cast<size_t>(engine_.config().vocab_size);
    size_t row = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].logits == 0) continue;
      const auto& tokens = items_[i].sequence->tokens();
      for (int64_t k = 0; k < items_[i].count; ++k, ++row) {
        const double log_p =
            log_probability(logits.subspan(row * vocab, vocab), tokens[static_cast<size_t>(begin[i] + k + 1)]);
        if (!std::isfinite(log_p)) return error(Code::Internal, "the logits of a step are not finite");
        read_[i]->add(log_p);
        ++scored_;
      }
    }
    std::erase_if(running_, [](const auto& r) { return r->left() == 0; });
    if (progress_ && row > 0) progress_(scored_, total_);
    return Status::ok();
  }

  engine::Engine& engine_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<std::unique_ptr<Reading>> running_;
  std::vector<Reading*> read_;  // of items_
  std::vector<engine::StepItem> items_;
  int64_t total_ = 0, scored_ = 0;
};

}  // namespace

Result<std::vector<TextScore>> score_texts(engine::Engine& engine, std::vector<TextToScore> texts,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  int64_t total = 0;
  for (const TextToScore& text : texts) {
    const auto size = static_cast<int64_t>(text.tokens.size());
    if (text.from < 1 || text.from >= size)
      return invalid("a text of {} tokens scored from {} on; allowed: 1 to the last", size, text.from);
    if (size > engine.context_length())
      return invalid("a text of {} tokens; allowed: up to the context's {}", size, engine.context_length());
    for (const int32_t id : text.tokens)
      if (id < 0 || id >= engine.config().vocab_size)
        return invalid("token {} is not in the vocabulary (0 to {})", id, engine.config().vocab_size - 1);
    total += size - text.from;
  }
  std::vector<TextScore> scores(texts.size());
  Scorer scorer(engine, progress, total);
  RETURN_IF_ERROR(scorer.run(std::move(texts), scores));
  return scores;
}

}  // namespace reprise::evaluation
