#include "common/launcher_flags.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "common/flags.h"
#include "common/help.h"

namespace reprise::apps {
namespace {

enum class Kind : uint8_t { Switch, Integer, Real, Text, Choice, NoSwitch, NoText };  // No...: refused

struct Row {
  const char* names;
  Kind kind;
  const char* says;  // what is in effect, or why it cannot be
  IntegerRange range = {0, INT64_MAX};
  std::vector<std::string> allowed = {};
};

constexpr const char* kOneProcess = "a process is one rank of one replica";
constexpr const char* kOneDevice = "one device is used; ASCEND_RT_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES chooses it";
constexpr const char* kNoSpeculation = "this build does not speculate; leave out all --speculative flags";
constexpr const char* kNoSplit = "prefill and decode run in one process; leave out all --disaggregation flags";
constexpr const char* kNoAdapters = "adapters (LoRA) are not loaded; merge them into the model";
constexpr const char* kOneCacheType = "keys and values have one dtype: --kv-cache-dtype";
constexpr const char* kNoTls = "TLS is a reverse proxy's; docs/deploy.md shows one";
constexpr const char* kNoTiers = "the prefix cache is in the device's memory alone; leave the flag out";

const std::vector<Row>& rows() {
  static const std::vector<Row> list{
      // One process
      {"--pp-size,--pipeline-parallel-size", Kind::Integer, kOneProcess, {1, 1}},
      {"--ep-size,--ep,--expert-parallel-size", Kind::Integer, "all experts are on this device", {1, 1}},
      {"--nnodes", Kind::Integer, kOneProcess, {1, 1}},
      {"--node-rank", Kind::Integer, kOneProcess, {0, 0}},
      {"--dist-init-addr,--nccl-init-addr", Kind::Text, "there are no other ranks"},
      {"--nccl-port", Kind::Integer, "there are no other ranks", {0, 65535}},
      {"--base-gpu-id", Kind::Integer, kOneDevice},
      {"--gpu-id-step", Kind::Integer, kOneDevice, {1, INT64_MAX}},
      {"--moe-dense-tp-size", Kind::Integer, kOneProcess, {1, 1}},
      {"--load-balance-method",
       Kind::Choice,
       "there is one replica",
       {},
       {"auto", "round_robin", "follow_bootstrap_room", "total_requests", "total_tokens", "shortest_queue",
        "minimum_tokens"}},
      {"--enable-dp-attention", Kind::Switch, "there is one replica"},
      {"--enable-dp-lm-head", Kind::Switch, "there is one replica"},
      {"--disable-custom-all-reduce", Kind::Switch, "there is one rank, and nothing to reduce"},
      {"--enable-symm-mem", Kind::Switch, "there is one rank, and nothing to reduce"},
      {"--moe-a2a-backend",
       Kind::Choice,
       "all experts are on this device; effective: none",
       {},
       {"none", "deepep", "mooncake", "ascend_fuseep", "nixl", "mori", "flashinfer"}},
      {"--deepep-mode", Kind::Choice, "all experts are on this device", {}, {"auto", "normal", "low_latency"}},
      {"--moe-runner-backend", Kind::Text, "each device has one kernel for experts; effective: auto"},
      {"--disable-shared-experts-fusion", Kind::Switch, "shared experts are not fused with routed ones"},
      // Scheduling
      {"--enable-mixed-chunk", Kind::Switch, "always on; --mixed-prefill-tokens bounds the prompts' part"},
      {"--schedule-conservativeness", Kind::Real, "pages are given as they are needed; see --max-running-requests"},
      {"--radix-eviction-policy", Kind::Choice, "the only one here", {}, {"lru"}},
      {"--swa-full-tokens-ratio", Kind::Real, "all layers share one pool of pages"},
      {"--disable-hybrid-swa-memory", Kind::Switch, "all layers share one pool of pages"},
      {"--enable-dynamic-chunking", Kind::Switch, "chunks follow the step's free tokens anyway"},
      {"--sleep-on-idle", Kind::Switch, "always on"},
      // Start
      {"--skip-server-warmup", Kind::Switch, "the server sends no requests to itself; --graph-warmups runs captures"},
      {"--warmups", Kind::Text, "the server sends no requests to itself; --graph-warmups runs captures"},
      {"--enable-torch-compile-debug-mode", Kind::Switch, "memory plans are proved at every start"},
      {"--enable-cudagraph-gc", Kind::Switch, "there is no garbage collector"},
      {"--model-impl", Kind::Choice, "there is one implementation", {}, {"auto", "sglang", "transformers"}},
      {"--model-loader-extra-config", Kind::Text, "the loader has no settings beyond its flags"},
      {"--tokenizer-mode", Kind::Choice, "there is one tokenizer", {}, {"auto", "slow"}},
      {"--tokenizer-worker-num", Kind::Integer, "long requests are tokenised by two threads", {1, 1024}},
      {"--enable-tokenizer-batch-encode", Kind::Switch, "each prompt is tokenised as it comes"},
      {"--enable-multimodal", Kind::Switch, "text alone is served"},
      {"--mm-attention-backend", Kind::Text, "text alone is served"},
      {"--mamba-ssm-dtype", Kind::Text, "no model with state-space layers is served"},
      {"--mamba-scheduler-strategy", Kind::Text, "no model with state-space layers is served"},
      {"--max-mamba-cache-size", Kind::Integer, "no model with state-space layers is served"},
      {"--mamba-full-memory-ratio", Kind::Real, "no model with state-space layers is served"},
      // Backends
      {"--sampling-backend", Kind::Choice, "there is one sampler", {}, {"flashinfer", "pytorch", "ascend"}},
      {"--grammar-backend",
       Kind::Choice,
       "there is one compiler of grammars",
       {},
       {"xgrammar", "outlines", "llguidance", "none"}},
      {"--prefill-attention-backend", Kind::Text, "each device has one attention"},
      {"--decode-attention-backend", Kind::Text, "each device has one attention"},
      // Serving and logs
      {"--stream-interval", Kind::Integer, "every token is sent as it comes; effective: 1", {1, INT64_MAX}},
      {"--stream-output", Kind::Switch, "streams carry what is new, as OpenAI's do"},
      {"--enable-cache-report", Kind::Switch, "usage always has the cached tokens"},
      {"--log-requests-level", Kind::Integer, "prompts and answers are never logged; effective: 0", {0, 3}},
      {"--log-requests-format", Kind::Choice, "see --log-format", {}, {"text", "json"}},
      {"--log-level-http", Kind::Text, "see --access-log"},
      {"--decode-log-interval", Kind::Integer, "no step is logged; /metrics has the figures", {1, INT64_MAX}},
      {"--enable-request-time-stats-logging", Kind::Switch, "see --access-log and /metrics"},
      {"--load-watch-interval", Kind::Real, "/metrics has the load at any time"},
      {"--crash-dump-folder", Kind::Text, "no requests are written to disk"},
      {"--gc-warning-threshold-secs", Kind::Real, "there is no garbage collector"},
      // vLLM
      {"--enable-prefix-caching", Kind::Switch, "always on; --disable-radix-cache turns it off"},
      {"--enable-chunked-prefill", Kind::Switch, "always on; --chunked-prefill-size bounds a step"},
      {"--enable-auto-tool-choice", Kind::Switch, "always on"},
      {"--disable-log-requests,--no-enable-log-requests", Kind::Switch, "requests are logged under --access-log alone"},
      {"--disable-log-stats", Kind::Switch, "no statistics are logged; /metrics has them"},
      {"--disable-uvicorn-access-log", Kind::Switch, "requests are logged under --access-log alone"},
      {"--uvicorn-log-level", Kind::Text, "see --log-level"},
      {"--swap-space", Kind::Real, "preempted requests are computed again; nothing is swapped"},
      {"--max-seq-len-to-capture", Kind::Integer, "graphs serve sequences of every length"},
      {"--distributed-executor-backend", Kind::Text, kOneProcess},
      {"--disable-frontend-multiprocessing", Kind::Switch, "a server is one process"},
      {"--guided-decoding-backend", Kind::Text, "there is one compiler of grammars"},
      // llama.cpp
      {"--n-gpu-layers,--gpu-layers", Kind::Text, "all layers run on --device"},
      {"--flash-attn", Kind::Text, "each device has one attention"},
      {"--cont-batching", Kind::Switch, "always on"},
      {"--jinja", Kind::Switch, "chat templates are always Jinja"},
      {"--mlock", Kind::Switch, "weights are not locked in memory"},
      {"--no-mmap", Kind::Switch, "weights are packed when they are loaded, and kept"},
      {"--metrics", Kind::Switch, "/metrics is always there"},
      {"--conversation", Kind::Switch, "reprise chat is a conversation"},
      // Refused
      {"--gpu-memory-utilization", Kind::NoText,
       "it counts activations and graphs as well; --mem-fraction-static X is the share for weights and KV cache"},
      {"--cache-type-k", Kind::NoText, kOneCacheType},
      {"--cache-type-v", Kind::NoText, kOneCacheType},
      {"--speculative-config", Kind::NoText, kNoSpeculation},
      {"--model-draft", Kind::NoText, kNoSpeculation},
      {"--split-mode", Kind::NoText, kOneDevice},
      {"--tensor-split", Kind::NoText, kOneDevice},
      {"--lora", Kind::NoText, kNoAdapters},
      {"--lora-modules", Kind::NoText, kNoAdapters},
      {"--grammar", Kind::NoText, "a request gives the form of its answer: response_format, regex"},
      {"--grammar-file", Kind::NoText, "a request gives the form of its answer: response_format, regex"},
      {"--generation-config", Kind::NoText, "--sampling-defaults model or openai says where defaults come from"},
      {"--override-generation-config", Kind::NoText, "generation_config.json of the model gives the defaults"},
      {"--allowed-origins", Kind::NoText, "--cors-origins ORIGIN,... names them"},
      {"--ssl-keyfile", Kind::NoText, kNoTls},
      {"--ssl-certfile", Kind::NoText, kNoTls},
      {"--disaggregation-mode", Kind::Choice, "prefill and decode run in one process", {}, {"null"}},
      {"--disaggregation-transfer-backend", Kind::NoText, kNoSplit},
      {"--disaggregation-bootstrap-port", Kind::NoText, kNoSplit},
      {"--speculative-algorithm,--speculative-algo", Kind::NoText, kNoSpeculation},
      {"--speculative-draft-model-path,--speculative-draft-model", Kind::NoText, kNoSpeculation},
      {"--speculative-num-steps", Kind::NoText, kNoSpeculation},
      {"--speculative-eagle-topk", Kind::NoText, kNoSpeculation},
      {"--speculative-num-draft-tokens", Kind::NoText, kNoSpeculation},
      {"--speculative-draft-model-quantization", Kind::NoText, kNoSpeculation},
      {"--speculative-attention-mode", Kind::NoText, kNoSpeculation},
      {"--enable-lora", Kind::NoSwitch, kNoAdapters},
      {"--lora-paths", Kind::NoText, kNoAdapters},
      {"--enable-hierarchical-cache", Kind::NoSwitch, kNoTiers},
      {"--enable-lmcache", Kind::NoSwitch, kNoTiers},
      {"--cpu-offload-gb", Kind::Integer, "weights stay on the device", {0, 0}},
      {"--is-embedding", Kind::NoSwitch, "models generate text; embeddings are not served"},
      {"--skip-tokenizer-init", Kind::NoSwitch, "the tokenizer is cheap; requests may give token ids all the same"},
      {"--enable-two-batch-overlap", Kind::NoSwitch, "a step is one batch"},
      {"--completion-template", Kind::NoText, "/v1/completions takes no `suffix`"},
      {"--preferred-sampling-params", Kind::NoText, "generation_config.json of the model gives the defaults"},
  };
  return list;
}

std::string first_name(const Row& r) {
  const std::string names = r.names;
  return names.substr(0, names.find(','));
}

}  // namespace

LauncherFlags::LauncherFlags() : given_(rows().size()) {}

void LauncherFlags::add_to(CLI::App& app) {
  app.option_defaults()->group(kUnlisted);
  for (size_t i = 0; i < rows().size(); ++i) {
    const Row& r = rows()[i];
    Given& g = given_[i];
    switch (r.kind) {
      case Kind::Switch:
      case Kind::NoSwitch: add_switch(app, r.names, g.on, r.says); break;
      case Kind::Integer: add_integer(app, r.names, g.number, r.range, r.says); break;
      case Kind::Real: add_real(app, r.names, g.real, {0, HUGE_VAL}, r.says); break;
      case Kind::Choice: add_choice(app, r.names, g.text, r.allowed, r.says); break;
      case Kind::Text:
      case Kind::NoText: add_text(app, r.names, g.text, r.says); break;
    }
  }
  app.option_defaults()->group("Options");
}

Status LauncherFlags::check() const {
  for (size_t i = 0; i < rows().size(); ++i) {
    const Row& r = rows()[i];
    if (r.kind == Kind::NoSwitch && given_[i].on) return invalid("{}: {}", first_name(r), r.says);
    if (r.kind == Kind::NoText && given_[i].text) return invalid("{} {}: {}", first_name(r), *given_[i].text, r.says);
  }
  return Status::ok();
}

std::vector<std::string> LauncherFlags::notices() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < rows().size(); ++i) {
    const Row& r = rows()[i];
    const Given& g = given_[i];
    if (g.on) out.push_back(fmt::format("{}: {}", first_name(r), r.says));
    if (g.text) out.push_back(fmt::format("{} {}: {}", first_name(r), *g.text, r.says));
    if (g.number) out.push_back(fmt::format("{} {}: {}", first_name(r), *g.number, r.says));
    if (g.real) out.push_back(fmt::format("{} {:g}: {}", first_name(r), *g.real, r.says));
  }
  return out;
}

std::vector<std::string> LauncherFlags::names() {
  std::vector<std::string> out;
  for (const Row& r : rows()) {
    std::string_view names = r.names;
    while (!names.empty()) {
      const size_t comma = std::min(names.find(','), names.size());
      out.emplace_back(names.substr(0, comma));
      names.remove_prefix(std::min(names.size(), comma + 1));
    }
  }
  return out;
}

}  // namespace reprise::apps
