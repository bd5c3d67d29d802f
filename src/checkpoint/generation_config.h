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

Result<GenerationDefaults> parse_generation_config(const Json& config, std::string_view source);
// From a model folder or GGUF file; a folder without generation_config.json gives an empty answer.
Result<GenerationDefaults> read_generation_config(const std::string& path);
Result<GenerationDefaults> read_generation_config(const GgufFile& file);

}  // namespace reprise::checkpoint
