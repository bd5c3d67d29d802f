#include "sched/scorer.h"

#include <limits>
#include <memory>
#include <utility>

namespace reprise::sched {
namespace {

// No text begins with what another one had: nothing would be scored twice, and few texts are as long as a page.
SchedulerOptions for_scores(const engine::Executor& executor) {
  SchedulerOptions o;
  o.max_queued = std::numeric_limits<int64_t>::max() / 2;
  o.mixed_prefill_tokens = o.max_prefill_tokens = executor.max_step_tokens();
  o.prefix_cache = false;
  o.log_failures = false;
  return o;
}

// State of one run().
struct Scored {
  std::vector<TextScore> scores;
  const ScoreProgress& progress;
  int64_t total = 0, done = 0;  // tokens
  int64_t unfinished = 0;       // texts that the scheduler has
  Status failed = {};           // the first failure
};

class ScoreSink final : public RequestSink {
 public:
  ScoreSink(Scored& all, size_t index) : all_(all), index_(index) {}

  void scored(std::span<const double> log_p) override {
    TextScore& score = all_.scores[index_];
    for (const double p : log_p) {
      score.log_p += p;
      score.squares += p * p;
    }
    score.tokens += static_cast<int64_t>(log_p.size());
    all_.done += static_cast<int64_t>(log_p.size());
    if (all_.progress) all_.progress(all_.done, all_.total);
  }
  bool token(const SampledToken&, FinishReason) override { return false; }
  void finished(const RequestResult& result) override {
    --all_.unfinished;
    if (all_.failed.is_ok()) all_.failed = result.status;
  }

 private:
  Scored& all_;
  size_t index_;
};

}  // namespace

Scorer::Scorer(engine::Executor& executor) : executor_(executor), scheduler_(executor, for_scores(executor)) {}

Status Scorer::check(const TextToScore& text) const {
  const auto size = static_cast<int64_t>(text.tokens.size());
  if (text.from < 1 || text.from >= size)
    return invalid("a text of {} tokens scored from {} on; allowed: 1 to the last", size, text.from);
  if (size > executor_.context_length())
    return invalid("a text of {} tokens; allowed: up to the context's {}", size, executor_.context_length());
  for (const int32_t id : text.tokens)
    if (id < 0 || id >= executor_.vocab_size())
      return invalid("token {} is not in the vocabulary (0 to {})", id, executor_.vocab_size() - 1);
  return Status::ok();
}

Result<std::vector<TextScore>> Scorer::run(std::vector<TextToScore> texts, const ScoreProgress& progress) {
  Scored all{std::vector<TextScore>(texts.size()), progress};
  std::vector<Request> made;
  for (size_t i = 0; i < texts.size(); ++i) {
    TextToScore& text = texts[i];
    RETURN_IF_ERROR(check(text));
    all.total += static_cast<int64_t>(text.tokens.size()) - text.from;
    Request r;
    r.prompt = std::move(text.tokens);
    r.score_from = text.from;
    r.adapter = std::move(text.adapter);
    r.sink = std::make_unique<ScoreSink>(all, i);
    RETURN_IF_ERROR(scheduler_.check(r));
    made.push_back(std::move(r));
  }
  // Admission looks at all requests that wait, so only as many wait as the next step may take.
  const int64_t most = 2 * executor_.max_step_rows();
  for (size_t next = 0; next < made.size() || !scheduler_.idle();) {
    for (; next < made.size() && all.unfinished < most && all.failed.is_ok(); ++next) {
      RETURN_IF_ERROR(scheduler_.add(std::move(made[next])).status());
      ++all.unfinished;
    }
    if (!all.failed.is_ok()) {
      next = made.size();
      scheduler_.cancel_all();
    }
    scheduler_.step();
  }
  scheduler_.complete_in_flight();
  RETURN_IF_ERROR(all.failed);
  return std::move(all.scores);
}

}  // namespace reprise::sched
