#include "api/sampling_settings.h"

namespace reprise::api {

SamplingSettings::SamplingSettings() { settings::reset(bindings()); }

std::vector<settings::Binding> SamplingSettings::bindings() {
  return {{"max_new_tokens", &max_new_tokens},
          {"min_new_tokens", &min_new_tokens},
          {"temperature", &temperature},
          {"top_p", &top_p},
          {"top_k", &top_k},
          {"min_p", &min_p},
          {"repetition_penalty", &repetition_penalty},
          {"presence_penalty", &presence_penalty},
          {"frequency_penalty", &frequency_penalty},
          {"stop", &stop},
          {"seed", &seed},
          {"ignore_eos", &ignore_eos}};
}

Status SamplingSettings::check() const {
  if (min_new_tokens > max_new_tokens)
    return invalid("`min_new_tokens` {} is out of range; allowed: 0 to `max_new_tokens`, which is {}", min_new_tokens,
                   max_new_tokens);
  for (const std::string& s : stop)
    if (s.empty()) return invalid("`stop` is an empty text; allowed: one character or more");
  return Status::ok();
}

engine::SamplingParams SamplingSettings::params(const checkpoint::GenerationDefaults& defaults,
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

}  // namespace reprise::api
