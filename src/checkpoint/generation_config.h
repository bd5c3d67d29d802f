// GenerationDefaults: how a model's publisher wants it sampled (generation_config.json, or general.sampling.* of GGUF).
// Everything is optional; absent means that the file did not say. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/gguf.h"

namespace reprise::checkpoint {

struct GenerationDefaults {
  std::vector<int64_t> eos_token_ids;  // empty when not given
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
};

// How text is drawn when neither a flag nor a field of a request says so; the same for every command and the server.
// What the publisher left open has the values of vLLM, SGLang and OpenAI. do_sample false is temperature 0.
struct SamplingDefaults {
  double temperature = 1;
  double top_p = 1;
  int64_t top_k = 0;  // all
  double min_p = 0;
  double repetition_penalty = 1;
};
SamplingDefaults sampling_defaults(const GenerationDefaults& published);

Result<GenerationDefaults> parse_generation_config(const Json& config, std::string_view source);
// From a model folder or GGUF file; a folder without generation_config.json gives an empty answer.
Result<GenerationDefaults> read_generation_config(const std::string& path);
Result<GenerationDefaults> read_generation_config(const GgufFile& file);

}  // namespace reprise::checkpoint
