// Engine: one loaded model on one device, ready to run steps.
//
// It owns the device, the parameters, the compiled model and the pool of KV pages. A step takes any mix of prefill
// chunks and decode rows and returns the logits of the rows that asked for them. Two engines with different models live
// side by side in one process. One thread drives an engine at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/quantisation.h"
#include "engine/executor.h"
#include "engine/expert_use.h"
#include "engine/graph_options.h"
#include "engine/sequence.h"
#include "engine/step_runner.h"
#include "engine/step_stage.h"
#include "ops/platform.h"
#include "ranks/member.h"

namespace reprise::engine {

enum class LoadFormat : uint8_t { Auto, Safetensors, Gguf, Dummy };
Result<LoadFormat> parse_load_format(std::string_view name);

// Whether rows are counted by the expert that they went to (engine/expert_use.h).
enum class CountExperts : uint8_t { Off, WhereFree, On };  // WhereFree: where the host sees the device's memory

struct EngineOptions {
  std::string model_path;         // GGUF file, or folder with config.json
  std::optional<DType> dtype;     // nullopt = auto: the checkpoint's own; for GGUF fp32 up to 250M weights, else bf16
  std::optional<DType> kv_dtype;  // nullopt = auto: the model's dtype; I8: a scale per row
  LoadFormat load_format = LoadFormat::Auto;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;  // afterwards: what the weights are
  int64_t context_length = 0;                                              // 0: the model's
  int64_t max_running_requests = 0;    // 0: by the device's memory (memory_rules.h); so the next one
  int64_t chunked_prefill_size = 0;    // most tokens of one step
  int64_t max_total_tokens = 0;        // KV capacity in tokens; 0: from memory
  double mem_fraction_static = 0;      // of the device's memory, for weights and KV together; 0: by rule
  double memory_share = 1;             // of the device's memory, which other engines use as well
  uint64_t random_seed = 0;            // of dummy weights
  std::vector<std::string> overrides;  // "key=value" into config.json
  std::string weight_cache;            // folder of packed weights; empty: none are kept
  GraphOptions graph;
  CountExperts count_experts = CountExperts::Off;
  bool progress = false;  // bars on standard error
  // The seat in a world of several ranks, which the device of the platform has too; null: the model is on one device.
  std::shared_ptr<ranks::Member> member = nullptr;
  int64_t ep_size = 1;  // over so many parts of that world whole experts are shared out
};

struct MemoryReport {
  size_t weight_bytes = 0;
  size_t kv_bytes = 0;  // whole pool, touched lazily
  size_t kv_page_bytes = 0;
  int64_t kv_pages = 0;
  size_t activation_bytes = 0;  // arena and staging
  size_t exchange_bytes = 0;    // results of collectives, once for all ranks of a host
};

struct LoadTimes {
  double load_s = 0;
  double compile_s = 0;
  double capture_s = 0;
};

// What steps did besides computing.
struct EngineCounters {
  uint64_t steps = 0;
  double host_s = 0;             // in submit(), outside the device: staging, choosing, launching
  uint64_t captures = 0;         // device graphs recorded; the same at the end as when the engine was ready
  uint64_t checked = 0;          // replays run again by --verify-replay
  uint64_t differences = 0;      // of those, how many differed
  uint64_t rebinds = 0;          // times the KV pool had moved
  std::string last_report = {};  // file written for the last difference
};

// A step whose inputs are staged and which is about to run; for checks, which may change all of it.
struct StagedStep {
  const StepStage& stage;
  std::span<const StepItem> items;
  const LiveSizes& live;
  bool decode;
  std::span<uint8_t> arena;  // addresses of the device, like those of the pool's pages
  const kv::KvPool& pool;
  std::function<void(void* data, uint8_t value, size_t bytes)> fill;  // for both
};
using StepHook = std::function<void(const StagedStep&)>;

class Engine : public Executor {
 public:
  // The platform comes from make_platform() (backends/all.h), which only programs and tests call.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, Platform platform);

  virtual const checkpoint::ModelConfigFields& config() const = 0;
  // The opened checkpoint (tokenizer metadata of a GGUF); null with dummy weights.
  virtual const checkpoint::Checkpoint* checkpoint() const = 0;
  virtual const EngineOptions& options() const = 0;  // with the effective values filled in
  virtual Device& device() = 0;
  virtual StreamStats stream_stats() const { return {}; }  // of all steps so far
  virtual MemoryReport memory() const = 0;
  virtual LoadTimes load_times() const = 0;
  virtual DType dtype() const = 0;
  // What one decode step must read: every weight once, and the KV bytes per cached token.
  virtual size_t weight_bytes_per_step() const = 0;
  virtual size_t expert_bytes() const { return 0; }  // of those weights, what lies in stacks of experts
  virtual size_t kv_bytes_per_token() const = 0;
  virtual std::string graph_text() const = 0;
  int64_t vocab_size() const override { return config().vocab_size; }
  // How the phases run and what they counted; null for an engine that captures nothing.
  virtual const StepRunner* decode_runner() const { return nullptr; }
  virtual const StepRunner* prefill_runner() const { return nullptr; }
  // What the passes did to the phases' graphs; null likewise.
  virtual const PipelineReport* decode_passes() const { return nullptr; }
  virtual const PipelineReport* prefill_passes() const { return nullptr; }
  // What went to which expert; null where that is not counted.
  virtual const ExpertUse* expert_use() const { return nullptr; }

  // Of a rank that is not the front: runs what the front publishes until it stops. Ok when the front has ended in
  // order.
  virtual Status follow() { return error(Code::Unsupported, "this engine has no ranks"); }

  // KV pages for `tokens` tokens in total; OutOfMemory names the pool's size and what is asked. Released by Sequence's
  // destructor.
  virtual Status reserve(Sequence& sequence, int64_t tokens) = 0;
  virtual void release(Sequence& sequence) = 0;
  virtual int64_t free_pages() const = 0;

  // [rows, hidden size] of the last step's logit rows, in the model's dtype: what the head read. Valid until the next
  // step.
  virtual Result<TensorView> hidden_states() const;
  // The outputs of the last step's program by name (none before the first step), and one of them: "logits", "hidden",
  // and what observe_linears adds.
  virtual std::vector<std::string> output_names() const { return {}; }
  virtual Result<TensorView> output(std::string_view name) const;

  // A KV pool for so many tokens; pages in use keep their content. Captured graphs are bound to the new place before
  // the next step.
  virtual Status resize_kv(int64_t tokens);
  virtual EngineCounters counters() const { return {}; }
  virtual void set_step_hook(StepHook hook);
  // Times the launches of the steps that follow (device/trace.h); null ends that. Events name nodes of the runner's
  // last program.
  virtual Status set_trace(Trace* trace) {
    return trace ? error(Code::Unsupported, "this engine does not time single launches") : Status::ok();
  }
};

}  // namespace reprise::engine
