// ModelFlags: which model to load and how to run it, as the command line says it; shared by every command that needs an
// engine. Flags whose work is not in this build are accepted with the values that change nothing, and open_engine()
// says what is in effect. A plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/graph_flags.h"
#include "common/launcher_flags.h"
#include "common/model_source.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace reprise::apps {

struct ModelFlags {
  std::string model_path;
  HubFlags hub;
  std::string tokenizer_path;  // "" = beside the model
  std::string device = "auto";
  std::optional<std::string> ascend_runtime;  // system, sim
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  std::string quantization = "auto";
  std::string mla_prefill = "absorbed";
  std::string load_format = "auto";
  std::string isa = "auto";
  GraphFlags graph;
  std::optional<std::string> log_level;
  bool quiet_start = false;  // no flag: a start says one line, and the report only with -v
  bool verbose = false;
  int64_t threads = 0;
  bool live_sizes = true;        // no flag: `graph verify` freezes sizes at capture in some of its modes
  std::optional<bool> progress;  // no flag: whether loading and capturing show how far they are; else by the log level
  int64_t context_length = 0;
  // 0, or not given: 64 on the CPU, elsewhere by memory; so the chunk (2048) and the fraction (0.8).
  int64_t max_running_requests = 0;
  int64_t max_total_tokens = 0;
  std::optional<int64_t> chunked_prefill_size;  // -1: SGLang's word for whole prompts; here as if it was not given
  double mem_fraction_static = 0;
  int64_t page_size = 128;
  int64_t tp_size = 1;
  int64_t dp_size = 1;
  double dist_timeout = 60;
  std::shared_ptr<ranks::Member> member = nullptr;  // no flag: the front's seat, or a follower's
  int64_t random_seed = 0;
  bool trust_remote_code = false;
  bool serving = false;  // no flag: the settings of a server below are in effect, not only reported
  // Settings of a server or of other systems, accepted and reported.
  std::optional<std::string> attention_backend, schedule_policy;
  std::optional<int64_t> max_prefill_tokens, mixed_prefill_tokens;
  std::optional<double> watchdog_timeout;
  std::optional<std::string> json_overrides;
  LauncherFlags launcher;
  engine::CountExperts count_experts = engine::CountExperts::Off;  // a flag of `serve` alone
  bool cache_weights = false;
  bool disable_radix_cache = false;
  std::vector<std::string> overrides;
  std::vector<std::string> extensions;

  void add_to(CLI::App& app);
  int64_t chunk_tokens() const { return std::max<int64_t>(0, chunked_prefill_size.value_or(0)); }  // 0: by the device
  // The largest batch and number of tokens that the flags allow.
  StepLimits limits() const;
  // Usage errors that need more than one value to see; also sets the log level.
  Status check() const;
  // Flags that need no engine to tell what is in effect.
  std::vector<std::string> plain_notices() const;
};

// Loads the model. Says on standard error which settings are in effect, unless the start is quiet.
Result<std::unique_ptr<engine::Engine>> open_engine(const ModelFlags& flags);

// The one line of a quiet start: "smollm2: cpu, float32, context 2048", then `more`. Nothing at other log levels.
void say_quiet_start(const ModelFlags& flags, engine::Engine& engine, std::string_view more = {});

}  // namespace reprise::apps
