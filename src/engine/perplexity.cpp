#include "engine/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "base/elapsed.h"

namespace reprise::engine {
namespace {

// log p of `token` under softmax(logits), in double: 150,000 small terms are summed.
double log_probability(std::span<const float> logits, int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - top - std::log(sum);
}

// One window on its way through the engine; its pages go back to the pool with it.
class Window {
 public:
  Window(Engine& engine, std::vector<int32_t> tokens) : engine_(engine), sequence_(std::move(tokens)) {}
  ~Window() { engine_.release(sequence_); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  Sequence& sequence() { return sequence_; }
  // The last token is only predicted, never fed.
  int64_t left() const { return sequence_.size() - 1 - sequence_.cached(); }

 private:
  Engine& engine_;
  Sequence sequence_;
};

class Scorer {
 public:
  Scorer(Engine& engine, const std::function<void(int64_t, int64_t)>& progress, int64_t total)
      : engine_(engine), progress_(progress), total_(total) {}

  Status run(std::vector<std::vector<int32_t>> windows) {
    size_t next = 0;
    while (next < windows.size() || !running_.empty()) {
      while (next < windows.size() && static_cast<int64_t>(running_.size()) < engine_.max_step_rows()) {
        auto w = std::make_unique<Window>(engine_, windows[next]);
        const Status reserved = engine_.reserve(w->sequence(), w->sequence().size());
        if (reserved.code() == Code::OutOfMemory && !running_.empty()) break;
        RETURN_IF_ERROR(reserved);
        running_.push_back(std::move(w));
        ++next;
      }
      RETURN_IF_ERROR(step());
    }
    return Status::ok();
  }

  double sum() const { return sum_; }
  double squares() const { return squares_; }
  int64_t scored() const { return scored_; }

 private:
  // As many rows as a step gives logits for, from the first windows in line.
  Status step() {
    int64_t room = std::min(engine_.max_step_rows(), engine_.max_step_tokens());
    items_.clear();
    for (const auto& w : running_) {
      const int64_t count = std::min(room, w->left());
      if (count <= 0) break;
      items_.push_back({&w->sequence(), count, false, true});
      room -= count;
    }
    std::vector<int64_t> begin;
    for (const StepItem& item : items_) begin.push_back(item.sequence->cached());
    ASSIGN_OR_RETURN(const std::span<float> logits, engine_.step(items_));
    const size_t vocab = static_cast<size_t>(engine_.config().vocab_size);
    size_t row = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      const auto& tokens = items_[i].sequence->tokens();
      for (int64_t k = 0; k < items_[i].count; ++k, ++row) {
        const double nll =
            -log_probability(logits.subspan(row * vocab, vocab), tokens[static_cast<size_t>(begin[i] + k + 1)]);
        if (!std::isfinite(nll)) return error(Code::Internal, "the logits of a step are not finite");
        sum_ += nll;
        squares_ += nll * nll;
        ++scored_;
      }
    }
    std::erase_if(running_, [](const auto& w) { return w->left() == 0; });
    if (progress_) progress_(scored_, total_);
    return Status::ok();
  }

  Engine& engine_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<std::unique_ptr<Window>> running_;
  std::vector<StepItem> items_;
  int64_t total_ = 0, scored_ = 0;
  double sum_ = 0, squares_ = 0;
};

}  // namespace

Result<Perplexity> perplexity(Engine& engine, std::span<const int32_t> tokens, const PerplexityOptions& options,
                              const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t head = options.bos ? 1 : 0;
  if (options.window < 2 || options.window > engine.context_length())
    return invalid("a window of {} tokens; allowed: 2 to the context's {}", options.window, engine.context_length());
  for (const int32_t id : tokens)
    if (id < 0 || id >= engine.config().vocab_size)
      return invalid("token {} is not in the vocabulary (0 to {})", id, engine.config().vocab_size - 1);
  const auto body = static_cast<size_t>(options.window - head);
  std::vector<std::vector<int32_t>> windows;
  int64_t total = 0;
  for (size_t at = 0; at < tokens.size(); at += body) {
    if (options.max_windows > 0 && static_cast<int64_t>(windows.size()) == options.max_windows) break;
    std::vector<int32_t> window;
    if (options.bos) window.push_back(*options.bos);
    const auto part = tokens.subspan(at, std::min(body, tokens.size() - at));
    window.insert(window.end(), part.begin(), part.end());
    if (window.size() < 2) break;  // a last single token has nothing before it
    total += static_cast<int64_t>(window.size()) - 1;
    windows.push_back(std::move(window));
  }
  if (windows.empty()) return invalid("the text has {} tokens; at least 2 are needed", tokens.size());

  const auto begin = std::chrono::steady_clock::now();
  Perplexity result;
  result.windows = static_cast<int64_t>(windows.size());
  Scorer scorer(engine, progress, total);
  RETURN_IF_ERROR(scorer.run(std::move(windows)));
  const auto n = static_cast<double>(scorer.scored());
  result.tokens = scorer.scored();
  result.mean_nll = scorer.sum() / n;
  result.perplexity = std::exp(result.mean_nll);
  const double variance = std::max(0.0, scorer.squares() / n - result.mean_nll * result.mean_nll);
  result.standard_error = std::sqrt(variance / n);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace reprise::engine
