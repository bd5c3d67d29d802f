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
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/logit_edit.h"

namespace reprise::models {

struct ModelConfig {
  checkpoint::ModelConfigFields fields;
  std::vector<double> rope_divisors;  // GGUF's rope_freqs.weight: divides each rotary frequency; usually empty
};

// Both of the rows in.last_rows.
struct ModelOutputs {
  Tensor hidden;  // [L, hidden size]: what the head reads
  Tensor logits;  // [L, vocabulary] fp32
};

struct ModelSpec {
  checkpoint::Family family;
  ModelOutputs (*forward)(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root);
  bool qk_norm = false;  // RMS norm of every query and key head
};

const std::vector<const ModelSpec*>& all_models();
std::vector<std::string_view> architectures();  // of all models
// For the readers of checkpoint/config.h. With `others`, files of families that are not here may be read as well.
checkpoint::Families families(bool others = false);
// An unknown architecture is an error that lists the known ones.
Result<const ModelSpec*> find_model(std::string_view architecture);

struct TraceOptions {
  DType dtype = DType::BF16;       // of parameters and activations
  DType kv_dtype = DType::BF16;    // of the cache
  DType index_dtype = DType::I32;  // of token ids, positions, slots and tables (DeviceInfo::index_dtype)
  int64_t max_tokens = 2048;       // bound of T
  int64_t max_sequences = 64;      // bound of R and L
  int64_t max_pages = 64;          // C: page-table columns, pages one sequence may have
  int64_t pool_pages = 4096;       // bound of P
  bool sampling = false;           // "sampled" and what belongs to it besides the logits

  // W: words for the changes of logits in one step: a mask for every sequence, and so many more for biases and
  // penalties of each on average.
  static constexpr int64_t kListWords = 4096;
  int64_t edit_words(int64_t vocabulary) const { return max_sequences * (mask_words(vocabulary) + kListWords); }
};

// Names of the symbols, in the order of their ids.
// T tokens, R sequences, Q = R + 1, L rows with logits, P pages of the pool, E rows whose logits are changed (with
// sampling)
enum StepSymbol : SymbolId { kTokens = 1, kSequences, kQueryBorders, kLogitRows, kPoolPages, kEditedRows };

// Inputs are named as in nn::StepInputs, caches "kv.<layer>", or "c_kv.<layer>" and "k_pe.<layer>"; the outputs are
// "hidden", "logits" and, with sampling, the results of op sample: "sampled", "sampled.logprob", "sampled.top_tokens",
// "sampled.top_logprobs".
Result<Graph> trace_model(const ModelSpec& spec, const ModelConfig& config, const TraceOptions& options,
                          const OpRegistry& ops);

}  // namespace reprise::models
