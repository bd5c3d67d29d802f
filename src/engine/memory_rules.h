// Defaults that follow from a device's memory: the largest batch, the chunk of a prefill, the fraction of memory that
// weights and KV cache may take, and the KV pages that fit.
//
// The rules for accelerators are those of the system this engine follows (2025-12), so that a deployment behaves alike;
// memory counts in MB of 2^20 bytes. The CPU has fixed defaults: its memory is everybody's. Pure functions.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "engine/engine_options.h"

namespace reprise::engine {

struct StepDefaults {
  int64_t largest_batch = 0;
  int64_t chunk = 0;  // most tokens of one step
  bool operator==(const StepDefaults&) const = default;
};

// `memory_mb` 0: unknown. `tp` is the number of tensor-parallel ranks.
StepDefaults step_defaults(DeviceKind kind, int64_t memory_mb, int64_t tp);

enum class Draft : uint8_t { None, Eagle, Standalone };  // a second model for speculation

struct FractionInputs {
  int64_t memory_mb = 0;  // 0: unknown
  int64_t chunk = 0;
  int64_t largest_batch = 0;
  int64_t tp = 1, pp = 1;  // tensor and pipeline ranks
  int64_t dp = 0;          // ranks of data-parallel attention; 0: there is none
  Draft draft = Draft::None;
};

// What steps and graphs need besides weights and KV cache.
double reserved_mb(const FractionInputs& in);
// To three digits. An error when nothing would be left; it names the flags to set.
Result<double> mem_fraction(const FractionInputs& in);

// What weights and activations become when no option says it, and why where the checkpoint does not say it either.
struct UsualDtype {
  DType dtype = DType::BF16;
  std::string why = {};
};
// What the checkpoint says. GGUF does not say: there fp32 up to a gigabyte of weights, because rounding shows most in
// small models and they are fast all the same; bf16 above. Weights that stay packed are not rounded, so where nine
// tenths do, small models are bf16 too if the CPU's bf16 dot product is a fast one. `checkpoint` is null for
// dummy weights.
UsualDtype usual_dtype(const checkpoint::ModelConfigFields& fields, const checkpoint::Checkpoint* checkpoint,
                       const checkpoint::QuantPlan& plan, const DeviceInfo& device);

struct WeightCount {
  int64_t all = 0, packed = 0;  // numbers; of them, in blocks that stay packed
};
WeightCount count_weights(const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantPlan& plan);
// Whether activations are rounded to int8 when no option says it (QuantPlan::int8_activations): of weights in blocks,
// where the device is faster so, but for small models, which show each rounding.
bool usual_int8_activations(const WeightCount& weights, const DeviceInfo& device);

// Settings that are 0 get their defaults; lists of sizes lose what cannot occur. Says which values are in effect.
Status fill_defaults(EngineOptions& options, const DeviceInfo& device);

// What weights, KV cache and activations share: the memory that was free when the device was opened, where it tells, as
// in the original. Defaults follow from all of it, so that they do not depend on other processes. 0: unknown.
double usable_bytes(const DeviceInfo& device);

struct KvBudget {
  double memory_bytes = 0;  // usable
  double fraction = 0;
  double weight_bytes = 0;
  double page_bytes = 0;
  int64_t scratch = 1;  // pages for rows of no sequence
};

// Pages for the KV cache, at most `wanted`, besides the scratch pages. The error names the fraction to set, or says
// that none helps.
Result<int64_t> kv_pages_that_fit(const KvBudget& budget, int64_t wanted);

}  // namespace reprise::engine
