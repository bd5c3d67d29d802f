// perplexity(): how well a model predicts a text, by teacher forcing.
//
// The tokens are cut into windows that do not overlap; each window is read from its own beginning (with `bos` in front
// when the model has one), and every token but a window's first is scored by the probability the model gave it:
// perplexity = exp(-mean log p). A Scorer reads the windows (sched/scorer.h), several at once; by the engine's rule of
// same bits the result does not depend on how many. The executor must be idle; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sched/scorer.h"

namespace reprise::evaluation {

struct PerplexityOptions {
  int64_t window = 512;                 // tokens of a window, `bos` included
  int64_t max_windows = 0;              // 0: all of them
  std::optional<int32_t> bos;           // put in front of every window; never scored
  sched::AdapterPtr adapter = nullptr;  // the LoRA adapter it is read through; null: the model alone
};

struct Perplexity {
  double perplexity = 0;
  double mean_nll = 0;        // nats per token
  double standard_error = 0;  // of mean_nll, tokens taken as independent
  int64_t tokens = 0;         // scored
  int64_t windows = 0;
  double seconds = 0;
};

// `progress` may be empty. Fewer than two tokens are an error.
Result<Perplexity> perplexity(engine::Executor& executor, std::span<const int32_t> tokens,
                              const PerplexityOptions& options, const sched::ScoreProgress& progress = {});

}  // namespace reprise::evaluation
