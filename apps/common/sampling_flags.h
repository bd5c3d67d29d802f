// SamplingFlags: how to draw tokens, as the command line says it. What it leaves open is taken from the model's own
// generation_config.json. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/generation_config.h"
#include "engine/sampling.h"

namespace CLI {
class App;
}

namespace reprise::apps {

struct SamplingFlags {
  int64_t max_new_tokens = 128;
  int64_t min_new_tokens = 0;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, seed;
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int64_t logprobs = -1;

  void add_to(CLI::App& app);
  Status check() const;
  // End tokens that only the defaults know become stop tokens, unless --ignore-eos is given.
  engine::SamplingParams params(const checkpoint::GenerationDefaults& defaults, int64_t random_seed) const;
};

}  // namespace reprise::apps
