// ModelFiles: what the files of a model say, with the settings that change it: the family, the configuration, the
// tensors, and how rows become a vector or a score.
//
// Engine owns one, and opens it before anything is traced. Errors name the file or the setting, and what is allowed;
// nothing is read of the weights but what the configuration needs. A head that drafts for a model is one of these as
// well: with tensors of its own, and the embedding and the logits' head of that model. Only the thread that opens the
// engine changes it; afterwards any thread reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "models/model.h"

namespace reprise::engine {

struct EngineOptions;

// What a head that drafts may share with its model.
constexpr std::string_view kEmbeddingWeight = "model.embed_tokens.weight", kHeadWeight = "lm_head.weight";

class ModelFiles {
 public:
  static Result<ModelFiles> open(const EngineOptions& options);

  // Tokens of the longest sequence; `asked` 0: as the files say. Which rotary factors a model takes may follow from it.
  Result<int64_t> choose_context(int64_t asked);
  // Layers whose inputs the model keeps for a head that drafts; the number of layers stands for what its own head
  // reads.
  Result<std::vector<int64_t>> kept_rows(const EngineOptions& options) const;

  const models::ModelSpec* spec = nullptr;
  models::ModelConfig config;
  std::optional<checkpoint::Checkpoint> checkpoint;  // empty: weights are dummies
  std::vector<int32_t> target_ids;                   // Executor::target_ids()
  bool own_logits_head = false;                      // of a head: "lm_head.weight" is not the model's

 private:
  Status open_checkpoint(const EngineOptions& options);
  Status read_config(const EngineOptions& options);
  Status read_pooling(const EngineOptions& options);
  // The family's layer behind the last one stands for the model.
  Status find_prediction();
  Status open_prediction(const EngineOptions& options);
  Status open_trained_head(const EngineOptions& options);
};

}  // namespace reprise::engine
