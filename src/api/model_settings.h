// ModelSettings: which model to load and how to run it, in the words of the settings; and open_engine(), which makes an
// engine of them. Settings whose work is not in this build are accepted with the values that change nothing, and
// open_engine() logs what is in effect. A plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/graph_settings.h"
#include "api/model_source.h"
#include "api/speculation_settings.h"
#include "engine/engine.h"
#include "sched/adapter_table.h"
#include "settings/binding.h"

namespace reprise::api {

struct ModelSettings {
  std::string model_path;
  HubOptions hub;
  std::string mmproj_path;     // of a model of one GGUF file; "" = it reads no images
  std::string tokenizer_path;  // "" = next to the model
  std::string device;
  std::optional<std::string> ascend_runtime;  // system, sim
  std::string dtype, kv_dtype, quantization, block_activations, pooling, mla_prefill, load_format, isa, dist_launcher,
      tp_form, moe_a2a_backend;
  GraphSettings graph;
  SpeculationSettings speculation;
  int64_t threads;
  bool live_sizes = true;  // no setting: `graph verify` freezes sizes at capture in some of its modes
  bool progress = false;   // no setting: bars on standard error while the model is loaded and captured
  int64_t context_length;
  // 0, or not given: 64 on the CPU, elsewhere by memory; so the chunk (2048) and the fraction (0.8).
  int64_t max_running_requests, max_total_tokens;
  std::optional<int64_t> chunked_prefill_size;  // -1: SGLang's word for whole prompts; here as if it was not given
  double mem_fraction_static;
  int64_t page_size, tp_size, ep_size, dp_size, nnodes, random_seed;
  bool enable_expert_parallel, enable_dp_attention;
  double dist_timeout;
  std::string cpu_bind;
  std::vector<std::string> numa_node;               // "0 1" or "0,1"
  int replica = 0;                                  // no setting: which of dp_size
  std::shared_ptr<ranks::Member> member = nullptr;  // no setting: the seat in a world of tp_size ranks
  bool trust_remote_code;
  bool chooses_adapter = false;  // no setting: requests may go through an adapter of `lora_modules`
  bool serving = false;          // no setting: the settings of a server below are in effect, not only reported
  // Settings of a server or of other systems, accepted and reported.
  std::optional<std::string> attention_backend, schedule_policy;
  std::optional<int64_t> max_prefill_tokens, mixed_prefill_tokens;
  int64_t decode_steps;
  std::optional<double> watchdog_timeout;
  std::optional<std::string> json_overrides;
  engine::CountExperts count_experts = engine::CountExperts::Off;  // a setting of `serve` alone
  bool cache_weights, disable_radix_cache;
  std::vector<std::string> overrides, extensions;
  bool enable_lora;
  std::optional<int64_t> max_loras, max_lora_rank;
  std::vector<std::string> lora_modules;

  ModelSettings();  // the table's initial values
  ModelSettings(const ModelSettings&) = default;
  ModelSettings& operator=(const ModelSettings&) = default;
  // Where the values of the groups Model and Engine lie; those of `graph` and `speculation` are their own.
  std::vector<settings::Binding> bindings();
  int64_t chunk_tokens() const { return std::max<int64_t>(0, chunked_prefill_size.value_or(0)); }  // 0: by the device
  // Whether ranks add sums in place of gathering activations: their bits are then not those of one rank.
  bool reduces() const { return tp_form == "reduce" && tp_size > 1; }
  // Whether rows go to the ranks of their experts alone.
  bool sends_rows() const { return moe_a2a_backend == "deepep" && tp_size > 1 && expert_parts() == tp_size; }
  int64_t expert_parts() const { return enable_expert_parallel ? tp_size : ep_size; }
  // Parts of the ranks that share out sequences, or engines with all ranks each: `dp_size` says how many.
  int64_t sequence_parts() const { return enable_dp_attention ? dp_size : 1; }
  int64_t replicas() const { return enable_dp_attention ? 1 : dp_size; }
  // The largest batch and number of tokens that the settings allow.
  StepLimits limits() const;
  // Errors that need more than one value to see.
  Status check() const;
  Status check_experts() const;
  Status check_replicas() const;
  Status check_adapters() const;
  // Slots for adapters; 0: none.
  int64_t adapter_slots() const;
  // What can be told without an engine about settings that change nothing.
  std::vector<std::string> plain_notices() const;
};

// The adapters of `lora_modules`; an error names the one at fault.
Status load_adapters(const ModelSettings& chosen, sched::AdapterTable& adapters);

// Loads the model, and logs which settings are in effect, with `notices` among them.
Result<std::unique_ptr<engine::Engine>> open_engine(const ModelSettings& chosen,
                                                    const std::vector<std::string>& notices = {});

}  // namespace reprise::api
