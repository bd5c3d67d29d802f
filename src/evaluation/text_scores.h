// score_texts(): log-probabilities that a model gives to given tokens, by teacher forcing.
//
// Each text is read once; its tokens from `from` on are scored, those before are its context. Several texts run through
// Engine::step at once, in chunks no larger than a step's tokens and logit rows; by the engine's rule of same bits the
// scores do not depend on how many. The engine must be idle; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"

namespace reprise::evaluation {

struct TextToScore {
  std::vector<int32_t> tokens;
  int64_t from = 1;     // the first token that is scored; the one at 0 has nothing before it
  int32_t adapter = 0;  // the LoRA slot it is read through (engine/adapter_slots.h); 0: none
};

struct TextScore {
  double log_p = 0;    // sum over the scored tokens, in nats
  double squares = 0;  // of each token's
  int64_t tokens = 0;
};

// One score per text, in their order. `progress(done, total)` in scored tokens; may be empty.
Result<std::vector<TextScore>> score_texts(engine::Engine& engine, std::vector<TextToScore> texts,
                                           const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace reprise::evaluation
