// KeptModel lists for `reprise models`: what lies in the hubs' caches and in $REPRISE_CACHE, what each model is, and
// whether it fits this machine. Files are opened and their heads read, no weights. Plain functions on plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/model_source.h"
#include "base/json.h"
#include "base/status.h"

namespace reprise::api {

// What a model needs compared with what the machine has; by the engine's own rules (engine/memory_rules.h).
struct MemoryNeed {
  uint64_t weight_bytes = 0;    // in memory, not in the file
  uint64_t kv_token_bytes = 0;  // of the KV cache, each token
  int64_t context_length = 0;   // the model's own
  int64_t cache_tokens = 0;     // of one sequence, that fit next to the weights; 0: the model does not fit
};

struct ListedModel {
  std::string name;    // for --model-path
  std::string source;  // "huggingface", "modelscope", "reprise"
  std::string path;
  uint64_t bytes = 0;  // on disk
  std::string architecture;
  std::string weights;  // "bfloat16", "gguf Q4_K_M", "w8a8_int8 (modelslim)"
  std::optional<MemoryNeed> need;
  bool complete = true;
  std::string problem;  // why it cannot be run: incomplete, broken, or of an unknown kind; "": it can
};

// In the order of their names. A cache that is not there has none.
Result<std::vector<ListedModel>> listed_models(const api::HubOptions& flags);
// Opens the model and fills what follows from it; what cannot be read becomes its problem.
void describe(ListedModel& model);

OrderedJson models_json(const std::vector<ListedModel>& models);
// A table for people; without models, how to fetch one.
std::string models_table(const std::vector<ListedModel>& models);

}  // namespace reprise::api
