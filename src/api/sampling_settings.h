// SamplingSettings: how to draw tokens, in the words of the settings. What they leave open is taken from the model's
// own generation_config.json. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/generation_config.h"
#include "engine/sampling.h"
#include "settings/binding.h"

namespace reprise::api {

struct SamplingSettings {
  int64_t max_new_tokens, min_new_tokens;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, seed;
  double presence_penalty, frequency_penalty;
  std::vector<std::string> stop;
  bool ignore_eos;
  int64_t logprobs = -1;  // no setting: that many of the likeliest tokens are told; -1: none

  SamplingSettings();  // the table's initial values
  SamplingSettings(const SamplingSettings&) = default;
  SamplingSettings& operator=(const SamplingSettings&) = default;
  // Where the values of the group Sampling lie.
  std::vector<settings::Binding> bindings();
  Status check() const;
  // End tokens that only the defaults know become stop tokens, unless `ignore_eos` is set.
  engine::SamplingParams params(const checkpoint::GenerationDefaults& defaults, int64_t random_seed) const;
};

}  // namespace reprise::api
