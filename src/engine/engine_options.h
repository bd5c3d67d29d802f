// EngineOptions: what an engine is opened with: where its files are, in which numbers it computes, how large its steps
// and its cache may be, and its place in a world of ranks.
//
// A plain value. Where a member says so, 0 or nullopt stand for a rule; the engine fills in what is in effect
// (memory_rules.h, model_files.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/quantisation.h"
#include "engine/graph_options.h"
#include "models/model.h"
#include "ranks/member.h"

namespace reprise::engine {

enum class LoadFormat : uint8_t { Auto, Safetensors, Gguf, Dummy };
Result<LoadFormat> parse_load_format(std::string_view name);

// Whether rows are counted by the expert that they went to (engine/expert_use.h).
enum class CountExperts : uint8_t { Off, WhereFree, On };  // WhereFree: where the host sees the device's memory

// Hidden states that a model keeps in its pages for a head that drafts from them (models/draft_head.h).
enum class KeptRows : uint8_t {
  None,
  Last,    // what its own head reads
  Layers,  // the inputs of three layers, or of those that `kept_layers` names
};

class Engine;

// For an engine that shares the device, and has a page for each page of this one.
struct Beside {
  size_t bytes = 0;       // weights and activations
  size_t page_bytes = 0;  // of its KV pool
};

struct EngineOptions {
  std::string model_path;         // GGUF file, or folder with config.json
  std::string mmproj_path;        // GGUF file of the vision tower beside that of the model; empty: there is none
  std::optional<DType> dtype;     // nullopt = auto: usual_dtype() of memory_rules.h
  std::optional<DType> kv_dtype;  // nullopt = auto: the model's dtype; I8: a scale per row
  LoadFormat load_format = LoadFormat::Auto;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;  // afterwards: what the weights are
  // Of weights in blocks: QuantPlan::int8_activations. nullopt: usual_int8_activations() of memory_rules.h.
  std::optional<bool> int8_activations = false;
  int64_t context_length = 0;          // 0: the model's
  int64_t max_running_requests = 0;    // 0: by the device's memory (memory_rules.h); so the next one
  int64_t chunked_prefill_size = 0;    // most tokens of one step
  int64_t max_total_tokens = 0;        // KV capacity in tokens; 0: from memory
  double mem_fraction_static = 0;      // of the device's memory, for weights and KV together; 0: by rule
  double memory_share = 1;             // of the device's memory, which other engines use as well
  Beside beside;                       // what a second model on the device takes of that share
  uint64_t random_seed = 0;            // of dummy weights
  std::vector<std::string> overrides;  // "key=value" into config.json
  // What the model gives in place of tokens; nullopt: as its files say. None: it generates, against what they say.
  std::optional<checkpoint::PoolKind> pooling = std::nullopt;
  // Families besides those of models/list.h, of which the first fits that has the checkpoint's architecture.
  std::vector<const models::ModelSpec*> families;
  std::string weight_cache;  // folder of packed weights; empty: none are kept
  GraphOptions graph;
  CountExperts count_experts = CountExperts::Off;
  bool progress = false;  // bars on standard error
  KeptRows kept_rows = KeptRows::None;
  std::vector<int64_t> kept_layers = {};
  // Drafts that one sequence may have in a step. A model with states has that much more in each of them, and none
  // without; the others may have any number.
  int64_t most_drafts = 0;
  // The layer behind the checkpoint's last one that predicts a further token, in place of the model.
  bool prediction = false;
  bool prediction_beside = false;  // another engine is that layer, and drafts for this one
  // Graphs are captured by set_draft() of the engine that this one drafts for: where the device has little room for
  // graphs, that one comes first. No step runs before.
  bool captures_later = false;
  // Steps that may be in the device's queue behind the one that runs, where it computes by itself.
  int64_t steps_ahead = 1;
  // The head that drafts for this model: where its checkpoint says that it has the model's embedding and logits' head,
  // it lends them. On the same device; it outlives the model.
  const Engine* lender = nullptr;
  // The checkpoint whose embedding and head an EAGLE head reads; empty: it has its own.
  std::string borrows_from = {};
  // The seat in a world of several ranks, which the device of the platform has too; null: the model is on one device.
  std::shared_ptr<ranks::Member> member = nullptr;
  bool reduce_over_ranks = false;  // RankShare::reduce: less is exchanged, and bits are those of so many ranks
  int64_t ep_size = 1;             // over so many parts of that world whole experts are shared out
  // Over so many parts of it sequences are shared out: each has a cache of its own (StepItem::part).
  int64_t sequence_parts = 1;
  // Rows are sent to the ranks of their experts, where the device was made for that and the shapes allow it.
  bool dispatch = false;
  // LoRA adapters that may be loaded at once (engine/adapter_slots.h), and the rank that each may have; 0: none, and
  // the graphs are those of the model alone.
  int64_t max_loras = 0;
  int64_t max_lora_rank = 16;
};

// Whether the numbers are in range; an error names the setting and what is allowed.
Status check_options(const EngineOptions& options);

}  // namespace reprise::engine
