// perplexity(): how well a model predicts a text, by teacher forcing.
//
// The tokens are cut into windows that do not overlap; each window is read from its own beginning (with `bos` in front
// when the model has one), and every token but a window's first is scored by the probability the model gave it:
// perplexity = exp(-mean log p). Windows run through Engine::step as several sequences at once, in chunks no larger
// than the logit rows of a step; by the engine's rule of same bits the result does not depend on how many. The engine
// must be idle; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "engine/engine.h"

namespace reprise::evaluation {

struct PerplexityOptions {
  int64_t window = 512;        // tokens of a window, `bos` included
  int64_t max_windows = 0;     // 0: all of them
  std::optional<int32_t> bos;  // put in front of every window; never scored
  int32_t adapter = 0;         // the LoRA slot it is read through (engine/adapter_slots.h); 0: none
};

struct Perplexity {
  double perplexity = 0;
  double mean_nll = 0;        // nats per token
  double standard_error = 0;  // of mean_nll, tokens taken as independent
  int64_t tokens = 0;         // scored
  int64_t windows = 0;
  double seconds = 0;
};

// `progress(done, total)` in scored tokens; may be empty. Fewer than two tokens are an error.
Result<Perplexity> perplexity(engine::Engine& engine, std::span<const int32_t> tokens, const PerplexityOptions& options,
                              const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace reprise::evaluation
