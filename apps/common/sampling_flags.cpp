#include "common/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "common/flags.h"

namespace reprise::apps {

void SamplingFlags::add_to(CLI::App& app) {
  constexpr int64_t kMany = INT64_MAX;
  app.option_defaults()->group("Sampling");
  add_integer(app, "-n,--max-new-tokens,--max-tokens,--predict,--n-predict", max_new_tokens, {1, kMany},
              "most tokens of an answer");
  add_integer(app, "--min-new-tokens", min_new_tokens, {0, kMany}, "end tokens are not drawn before that many");
  add_real(app, "--temperature,--temp", temperature, {0, HUGE_VAL},
           "0: always the likeliest token; default: the model's own, else 1");
  add_real(app, "--top-p", top_p, {0, 1, true},
           "draw among the likeliest tokens that make up this share; default: the model's own, else 1");
  add_integer(app, "--top-k", top_k, {-1, kMany},
              "draw among that many; 0 or -1: all; default: the model's own, else 0");
  add_real(app, "--min-p", min_p, {0, 1},
           "drop tokens less likely than this share of the likeliest; default: the model's own, else 0");
  add_real(app, "--repetition-penalty,--repeat-penalty", repetition_penalty, {0, HUGE_VAL, true},
           "of tokens in prompt and answer; default: the model's own, else 1");
  add_real(app, "--presence-penalty", presence_penalty, {-2, 2}, "of tokens in the answer");
  add_real(app, "--frequency-penalty", frequency_penalty, {-2, 2}, "of tokens in the answer, for each time");
  add_texts(app, "--stop", stop, "text that ends the answer and is not shown; repeatable");
  add_integer(app, "-s,--seed", seed, {0, kMany}, "the same seed draws the same answer; default: --random-seed");
  add_switch(app, "--ignore-eos", ignore_eos, "go on after an end token");
  app.option_defaults()->group("Options");
}

Status SamplingFlags::check() const {
  if (min_new_tokens > max_new_tokens)
    return invalid("--min-new-tokens {} is out of range; allowed: 0 to --max-new-tokens, which is {}", min_new_tokens,
                   max_new_tokens);
  for (const std::string& s : stop)
    if (s.empty()) return invalid("--stop is an empty text; allowed: one character or more");
  return Status::ok();
}

engine::SamplingParams SamplingFlags::params(const checkpoint::GenerationDefaults& defaults,
                                             int64_t random_seed) const {
  const checkpoint::SamplingDefaults d = checkpoint::sampling_defaults(defaults);
  engine::SamplingParams p;
  p.temperature = temperature.value_or(d.temperature);
  p.top_p = top_p.value_or(d.top_p);
  p.top_k = top_k.value_or(d.top_k);
  p.min_p = min_p.value_or(d.min_p);
  p.repetition_penalty = repetition_penalty.value_or(d.repetition_penalty);
  p.presence_penalty = presence_penalty;
  p.frequency_penalty = frequency_penalty;
  p.seed = static_cast<uint64_t>(seed.value_or(random_seed));
  p.max_new_tokens = max_new_tokens;
  p.min_new_tokens = min_new_tokens;
  p.ignore_eos = ignore_eos;
  p.stop = stop;
  p.logprobs = static_cast<int>(logprobs);
  if (!ignore_eos)
    for (int64_t id : defaults.eos_token_ids) p.stop_token_ids.push_back(static_cast<int32_t>(id));
  return p;
}

}  // namespace reprise::apps
