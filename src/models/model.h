// ModelConfig, ModelSpec and the registry: what a family says about its configuration, and its forward function.
//
// A forward function is traced once and describes the whole model for any batch; it names no hardware. Adding a family
// is one file and one entry in list.h (docs/add-a-model.md). Everything here is immutable once made.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/pooling.h"
#include "graph/graph.h"
#include "models/step_spec.h"

namespace reprise::models {

struct ModelConfig {
  checkpoint::ModelConfigFields fields;
  std::vector<double> rope_divisors;  // GGUF's rope_freqs.weight: divides each rotary frequency; usually empty
  checkpoint::PoolingFields pooling;  // what it gives where it does not generate
  bool generates() const { return pooling.kind == checkpoint::PoolKind::None; }
};

// All of the rows in.last_rows. A model gives logits, or pooled rows (models/pooling.h).
struct ModelOutputs {
  Tensor hidden = {};  // [L, hidden size]: what the head reads; absent where a pooled row is of several
  Tensor logits = {};  // [L, vocabulary] fp32
  Tensor pooled = {};  // [L, size] fp32
};

struct ModelSpec {
  checkpoint::Family family;
  ModelOutputs (*forward)(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root);
  bool qk_norm = false;  // RMS norm of every query and key head
  // Rows see the rows behind them, whatever the configuration says: a text is computed in one step, and nothing is
  // cached. Gives pooled rows only; of this kind where no file says another.
  bool encoder = false;
  checkpoint::PoolKind pooling = checkpoint::PoolKind::None;
  std::span<const std::string_view> unread = {};  // tensors whose names begin so are not loaded
  // Vectors that are published of this family may be cut to so many numbers or more; 0: not.
  int64_t least_size = 0;
  std::span<const int64_t> sizes_of_vectors = {};  // or, where rows see both sides, to these alone
  // Adds to what a decoder declares of a step, or takes from it (step_spec.h). Null: nothing.
  void (*declare)(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) = nullptr;
  // The layer behind the last one that predicts a further token, as a model of its own (models/draft_head.h). Null: the
  // family has none, or it is not here.
  const ModelSpec* prediction = nullptr;
  // How the names of such a layer's tensors begin, and the field that counts such layers, 1 where it is missing. Empty:
  // "model.layers.<num_hidden_layers>.", and num_nextn_predict_layers.
  std::string_view own_tensors = {}, count_field = {};
  // How many numbers a row has that a drafting head reads of its source. Null: it is a model.
  int64_t (*source_width)(const checkpoint::ModelConfigFields& fields) = nullptr;
  bool own_head = false;  // and its checkpoint's "lm_head.weight" is its own, not the source's
  // Activations of published models grow beyond the largest float16, 65504.
  bool beyond_float16 = false;
};

// Rows see the rows behind them, by the family or by the configuration (ModelConfigFields::both_sides).
inline bool encodes(const ModelSpec& spec, const checkpoint::ModelConfigFields& f) {
  return spec.encoder || f.both_sides;
}
// How rows of such a model become a vector where no file says it.
inline checkpoint::PoolKind usual_pooling(const ModelSpec& spec) {
  return spec.pooling == checkpoint::PoolKind::None ? checkpoint::PoolKind::Last : spec.pooling;
}

StepSpec step_of(const ModelSpec& spec, const ModelConfig& config, const TraceOptions& trace);

const std::vector<const ModelSpec*>& all_models();
std::vector<std::string_view> architectures();  // of all models
// For the readers of checkpoint/config.h. With `others`, files of families that are not here may be read as well.
checkpoint::Families families(bool others = false);
// An unknown architecture is an error that lists the known ones.
Result<const ModelSpec*> find_model(std::string_view architecture);

// Inputs and caches are those of step_of(); the outputs are "hidden" and "logits", or "pooled", and with sampling the
// results of op sample: "sampled", "sampled.logprob", "sampled.top_tokens", "sampled.top_logprobs".
Result<Graph> trace_model(const ModelSpec& spec, const ModelConfig& config, const TraceOptions& options,
                          const OpRegistry& ops);

}  // namespace reprise::models
