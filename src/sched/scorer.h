// Scorer: log-probabilities that a model gives to given tokens, by teacher forcing, on the calling thread: a scheduler
// whose requests ask for scores and no answers (Request::score_from).
//
// Each text is read once; its tokens from `from` on are scored, those before are its context. Several texts are read at
// once, in chunks no larger than a step's tokens and logit rows; by the engine's rule of same bits the scores do not
// depend on how many. One thread at a time; the executor outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sched/scheduler.h"

namespace reprise::sched {

struct TextToScore {
  std::vector<int32_t> tokens;
  int64_t from = 1;              // the first token that is scored; the one at 0 has nothing before it
  AdapterPtr adapter = nullptr;  // the LoRA adapter it is read through; null: the model alone
};

struct TextScore {
  double log_p = 0;    // sum over the scored tokens, in nats
  double squares = 0;  // of each token's
  int64_t tokens = 0;
};

// In scored tokens.
using ScoreProgress = std::function<void(int64_t done, int64_t total)>;

class Scorer {
 public:
  explicit Scorer(engine::Executor& executor);
  // One score per text, in their order. Errors are said before anything runs, but for those of steps. `progress` may be
  // empty.
  Result<std::vector<TextScore>> run(std::vector<TextToScore> texts, const ScoreProgress& progress = {});

 private:
  Status check(const TextToScore& text) const;

  engine::Executor& executor_;
  Scheduler scheduler_;
};

}  // namespace reprise::sched
