#include "common/model_flags.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>

#include "backends/all.h"
#include "backends/cpu/isa.h"
#include "base/log.h"
#include "common/default_model.h"
#include "common/device_flags.h"
#include "common/flags.h"
#include "common/terminal.h"
#include "passes/extension.h"
#include "passes/pass_environment.h"
#include "see/decisions.h"
#include "see/graph_report.h"

namespace reprise::apps {

using namespace see;

namespace {

constexpr int64_t kMany = INT64_MAX;
constexpr int64_t kLargestChunk = 1 << 20;

// The names that SGLang takes for --attention-backend.
const std::vector<std::string> kAttentionBackends{
    "ascend", "triton",   "torch_native", "flex_attention", "flashinfer",           "fa3",
    "fa4",    "flashmla", "cutlass_mla",  "trtllm_mla",     "trtllm_mha",           "nsa",
    "aiter",  "wave",     "intel_amx",    "intel_xpu",      "dual_chunk_flash_attn"};

Result<std::optional<DType>> dtype_of(const std::string& name) {
  if (name == "auto") return std::optional<DType>();
  if (name == "float") return std::optional(DType::F32);
  ASSIGN_OR_RETURN(DType t, parse_dtype(name));
  return std::optional<DType>(t);
}

// --json-model-override-args as --override says it.
Result<std::vector<std::string>> overrides_of(const std::string& text) {
  ASSIGN_OR_RETURN(const OrderedJson json, parse_ordered_json(text, "--json-model-override-args"));
  if (!json.is_object()) return invalid("--json-model-override-args {}: a JSON object is expected", text);
  std::vector<std::string> out;
  for (const auto& [key, value] : json.items()) {
    // A null says what an absent field says.
    if (value.is_null()) continue;
    out.push_back(key + "=" + value.dump());
  }
  return out;
}

Result<engine::EngineOptions> engine_options(const ModelFlags& f) {
  engine::EngineOptions o;
  ASSIGN_OR_RETURN(o.model_path, resolve_model_path(f.model_path, f.hub));
  ASSIGN_OR_RETURN(o.dtype, dtype_of(f.dtype));
  if (f.kv_dtype == "int8") {
    o.kv_dtype = DType::I8;
  } else {
    ASSIGN_OR_RETURN(o.kv_dtype, dtype_of(f.kv_dtype));
  }
  ASSIGN_OR_RETURN(o.load_format, engine::parse_load_format(f.load_format));
  ASSIGN_OR_RETURN(o.quantization, checkpoint::parse_quantization(f.quantization));
  o.context_length = f.context_length;
  o.max_running_requests = f.max_running_requests;
  o.max_total_tokens = f.max_total_tokens;
  o.chunked_prefill_size = f.chunk_tokens();
  o.mem_fraction_static = f.mem_fraction_static;
  o.random_seed = static_cast<uint64_t>(f.random_seed);
  o.overrides = f.overrides;
  if (f.json_overrides) {
    ASSIGN_OR_RETURN(const auto more, overrides_of(*f.json_overrides));
    o.overrides.insert(o.overrides.end(), more.begin(), more.end());
  }
  o.count_experts = f.count_experts;
  ASSIGN_OR_RETURN(o.graph, f.graph.options(f.limits()));
  o.graph.pipeline.expand_latents = f.mla_prefill == "expanded";
  RETURN_IF_ERROR(apply_pass_environment(o.graph.pipeline.passes));
  if (f.cache_weights) {
    ASSIGN_OR_RETURN(const std::string folder, cache_folder());
    o.weight_cache = folder + "/weights";
    if (o.load_format == engine::LoadFormat::Dummy)
      log::notice("--cache-weights: dummy weights are made and not read; nothing is kept");
  }
  if (o.graph.learned_dir.empty() && (o.graph.learn_decode_sizes || o.graph.learn_prefill_sizes)) {
    ASSIGN_OR_RETURN(const std::string cache, cache_folder());
    o.graph.learned_dir = cache + "/learned";
  }
  // A quiet start has a bar to show, but no lines to add to a file.
  const bool bar = log::level() == log::Level::Notice && is_terminal(stderr);
  o.progress = f.progress.value_or(log::level() <= log::Level::Info || bar);
  return o;
}

// Flags that change nothing here, with what is in effect instead.
std::vector<std::string> notices(const ModelFlags& f, engine::Engine& e) {
  std::vector<std::string> out = f.plain_notices();
  if (f.chunked_prefill_size && *f.chunked_prefill_size < 0)
    out.push_back(
        fmt::format("--chunked-prefill-size -1: prompts are read in chunks all the same, and the answers "
                    "have the same bits; effective: {}",
                    e.max_step_tokens()));
  if (f.attention_backend && *f.attention_backend != device_kind_name(e.device().info().kind))
    out.push_back(fmt::format("--attention-backend {}: each device has one attention; effective: {}",
                              *f.attention_backend, device_kind_name(e.device().info().kind)));
  if (f.serving) return out;
  if (f.max_prefill_tokens)
    out.push_back(fmt::format("--max-prefill-tokens {}: a step is bounded by --chunked-prefill-size; effective: {}",
                              *f.max_prefill_tokens, e.max_step_tokens()));
  if (f.mixed_prefill_tokens)
    out.push_back(
        fmt::format("--mixed-prefill-tokens {}: this command mixes no prompts with decoding", *f.mixed_prefill_tokens));
  if (f.schedule_policy)
    out.push_back(fmt::format("--schedule-policy {}: this command runs its requests in order; effective: fcfs",
                              *f.schedule_policy));
  if (f.watchdog_timeout) out.push_back("--watchdog-timeout: this command has no watchdog; effective: off");
  return out;
}

void say_what_is_in_effect(const ModelFlags& f, engine::Engine& e) {
  const auto& o = e.options();
  const DeviceInfo& info = e.device().info();
  log::info(
      "{}, {}, {} thread{}, {} (quantization {}, KV {}), context {}, KV cache {} tokens, prefill chunk {}, graph "
      "decode {} prefill {}, "
      "passes {}",
      device_kind_name(info.kind), info.isa, info.ranks, info.ranks == 1 ? "" : "s", dtype_name(e.dtype()),
      checkpoint::quantization_name(o.quantization), dtype_name(o.kv_dtype.value_or(e.dtype())), e.context_length(),
      e.memory().kv_pages * kv::kPageTokens, e.max_step_tokens(), phase_mode(e.decode_runner()),
      phase_mode(e.prefill_runner()), f.graph.passes.value_or("all"));
  if (log::level() <= log::Level::Info) log::info("steps:\n{}", decision_table(decisions(e)));
  for (const std::string& text : notices(f, e)) log::notice("{}", text);
  // Both were checked before the model was loaded.
  if (auto said = f.graph.meaning(f.limits()); said.is_ok())
    for (const Notice& n : said->notices) log::notice("{}", n.text);
  for (const Notice& n : device_notices(f.device, f.ascend_runtime)) log::notice("{}", n.text);
  if (auto said = understand_environment(::getenv, info.kind); said.is_ok())
    for (const Notice& n : said->notices) log::notice("{}", n.text);
}

}  // namespace

void ModelFlags::add_to(CLI::App& app) {
  app.option_defaults()->group("Model");
  add_text(app, "model,-m,--model-path,--model,--hf-repo", model_path, kModelPathHelp, "PATH");
  hub.add_to(app);
  add_text(app, "--tokenizer-path,--tokenizer", tokenizer_path,
           "folder, tokenizer.json or GGUF; default: the model's own", "PATH");
  add_choice(app, "--load-format", load_format, {"auto", "safetensors", "gguf", "dummy"},
             "dummy: random weights, only config.json is needed");
  add_choice(app, "--dtype", dtype, {"auto", "float32", "float16", "half", "bfloat16", "float"},
             "of weights and activations; auto: the checkpoint's; GGUF: float32 for small models, else bfloat16; a "
             "dtype without kernels on the device is replaced, with a notice");
  add_choice(app, "--kv-cache-dtype", kv_dtype, {"auto", "float32", "float16", "half", "bfloat16", "int8", "bf16"},
             "of the KV cache; auto: as --dtype; int8: half of bfloat16, a scale per token and head");
  add_choice(app, "--quantization", quantization,
             {"auto", "none", "w8a8_int8", "modelslim", "compressed-tensors", "gguf"},
             "auto: what the checkpoint is; none: GGUF blocks are unpacked; w8a8_int8: a float model becomes int8 "
             "while it is loaded");
  add_choice(
      app, "--mla-prefill", mla_prefill, {"absorbed", "expanded"},
      "prompts of DeepSeek models: absorbed has the bits of decoding; expanded makes keys and values where that is "
      "fewer operations");
  add_integer(app, "-c,--context-length,--max-model-len,--ctx-size", context_length, {0, int64_t{1} << 24},
              "longest sequence; 0: the model's own");
  add_texts(app, "--override", overrides, "one field of config.json, for example rope_theta=500000; repeatable",
            "KEY=VALUE");
  add_text(app, "--json-model-override-args,--hf-overrides", json_overrides, "--override, as one JSON object", "JSON");
  add_integer(app, "--random-seed", random_seed, {0, kMany}, "of dummy weights and of draws without --seed");
  add_switch(app, "--trust-remote-code", trust_remote_code, "accepted; no code from a model is ever run");

  app.option_defaults()->group("Engine");
  add_device_flags(app, device, ascend_runtime);
  add_integer(app, "-t,--threads", threads, {0, 1024}, "CPU threads; 0: one per allowed processor");
  add_texts(app, "--extension", extensions, "a library with ops, kernels and rewrites of its own; repeatable", "FILE");
  add_text(app, "--isa", isa, "CPU instruction set: " + cpu::isa_choices(), "NAME");
  add_integer(app, "--max-running-requests,--max-num-seqs,--parallel", max_running_requests, {1, 4096},
              "sequences that run together; default: 64, or by the device's memory");
  add_integer(app, "--max-total-tokens", max_total_tokens, {0, int64_t{1} << 32},
              "tokens that the KV cache holds; 0: what memory allows");
  add_integer(app, "--chunked-prefill-size,--max-num-batched-tokens", chunked_prefill_size, {-1, kLargestChunk},
              "most tokens of one step; default, and -1: 2048, or by the device's memory");
  add_real(app, "--mem-fraction-static", mem_fraction_static, {0, 1, true},
           "share of memory for weights and KV cache; default: 0.8, or by the device's memory");
  add_choice(app, "--attention-backend", attention_backend, kAttentionBackends, "accepted; default: each device's own");
  add_integer(app, "--max-prefill-tokens", max_prefill_tokens, {1, kMany},
              "serve: most prompt tokens of a step beyond the first prompt (default 16384)");
  add_integer(app, "--mixed-prefill-tokens", mixed_prefill_tokens, {1, kMany},
              "serve: most prompt tokens of a step in which others decode (default 256)");
  add_choice(app, "--schedule-policy", schedule_policy, {"fcfs", "lpm", "random", "dfs-weight", "lof", "priority"},
             "serve: order of waiting requests, as in SGLang: fcfs (default), lpm (longest cached prefix first), "
             "dfs-weight (heaviest branch of the prefix tree first), random, lof (longest output first)");
  add_switch(app, "--disable-radix-cache,--no-enable-prefix-caching", disable_radix_cache,
             "keep no prefixes of earlier requests");
  add_real(app, "--watchdog-timeout", watchdog_timeout, {0, HUGE_VAL},
           "serve: seconds that a step may take before the process ends with status 1; 0: any time (default 300)");
  add_switch(app, "--cache-weights", cache_weights, "keep the packed weights in $REPRISE_CACHE, for quick starts");
  add_integer(app, "--page-size,--block-size", page_size, {128, 128}, "tokens of a KV page");
  add_integer(app, "--tp-size,--tp,--tensor-parallel-size", tp_size, {1, kMany},
              "tensor-parallel ranks; only 1 is supported");
  add_integer(app, "--dp-size,--dp,--data-parallel-size", dp_size, {1, kMany},
              "data-parallel replicas; only 1 is supported");
  add_choice(app, "--log-level", log_level, {"debug", "info", "notice", "warning", "error", "off"},
             quiet_start ? "least level of log lines on standard error; default: notice"
                         : "least level of log lines on standard error; default: info");
  if (quiet_start) add_switch(app, "-v,--verbose", verbose, "report at the start what is in effect; --log-level info");
  launcher.add_to(app);
  app.option_defaults()->group("Options");
  graph.add_to(app);
}

std::vector<std::string> ModelFlags::plain_notices() const {
  std::vector<std::string> out = launcher.notices();
  if (trust_remote_code) out.push_back("--trust-remote-code: no code from a model is ever run");
  if (!is_model_name(model_path)) {
    constexpr const char* kNoHub = "the model is read from this machine, as it is there";
    if (!hub.revision.empty()) out.push_back(fmt::format("--revision {}: {}", hub.revision, kNoHub));
    if (!hub.download_dir.empty()) out.push_back(fmt::format("--download-dir {}: {}", hub.download_dir, kNoHub));
  }
  return out;
}

StepLimits ModelFlags::limits() const {
  // What the device decides is not known yet; the engine leaves out sizes that turn out too large.
  const auto kind = device_options(device, ascend_runtime, ::getenv);
  const bool cpu = kind.is_ok() && kind->kind == DeviceKind::Cpu;
  return {max_running_requests ? max_running_requests
          : cpu                ? 64
                               : 4096,
          chunk_tokens() ? chunk_tokens()
          : cpu          ? 2048
                         : 65536};
}

Status ModelFlags::check() const {
  if (verbose && log_level) return invalid("-v is --log-level info; it cannot go with --log-level {}", *log_level);
  ASSIGN_OR_RETURN(log::Level level, log::parse_level(log_level.value_or(quiet_start && !verbose ? "notice" : "info")));
  log::set_level(level);
  if (model_path.empty()) return invalid("--model-path is missing; allowed: {}", kModelPathHelp);
  if (is_model_name(model_path)) RETURN_IF_ERROR(model_name(model_path, hub).status());
  if (auto isa_known = cpu::parse_isa(isa); !isa_known) return isa_known.status().at("--isa");
  for (const std::string& o : overrides)
    if (o.find('=') == std::string::npos || o[0] == '=')
      return invalid("--override \"{}\" is not of the form key=value", o);
  if (tp_size > 1)
    return invalid("--tp-size {}: a process drives one device, and no model is split over several yet; allowed: 1",
                   tp_size);
  if (dp_size > 1)
    return invalid("--dp-size {}: a process is one replica; start several behind a load balancer; allowed: 1", dp_size);
  if (chunked_prefill_size && *chunked_prefill_size == 0)
    return invalid("--chunked-prefill-size: 0 is out of range; allowed: 1 to {}, or -1", kLargestChunk);
  RETURN_IF_ERROR(launcher.check());
  if (json_overrides) RETURN_IF_ERROR(overrides_of(*json_overrides).status());
  for (const std::string& fault : graph.faults)
    if (fault.starts_with("hang") && !serving)
      return invalid("--inject-fault {}: hang is for serve alone, whose --watchdog-timeout ends it", fault);
  RETURN_IF_ERROR(graph.options(limits()).status());
  RETURN_IF_ERROR(device_options(device, ascend_runtime, ::getenv).status());
  return Status::ok();
}

Result<std::unique_ptr<engine::Engine>> open_engine(const ModelFlags& flags) {
  ASSIGN_OR_RETURN(auto options, engine_options(flags));
  ASSIGN_OR_RETURN(DeviceOptions device, device_options(flags.device, flags.ascend_runtime, ::getenv));
  device.isa = flags.isa;
  device.threads = static_cast<int>(flags.threads);
  device.live_sizes = flags.live_sizes;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  for (const std::string& file : flags.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  ASSIGN_OR_RETURN(auto engine, engine::Engine::create(options, std::move(platform)));
  say_what_is_in_effect(flags, *engine);
  return engine;
}

void say_quiet_start(const ModelFlags& flags, engine::Engine& engine, std::string_view more) {
  if (log::level() != log::Level::Notice) return;
  std::filesystem::path path(flags.model_path);
  if (!path.has_filename()) path = path.parent_path();
  const std::string line =
      fmt::format("{}: {}, {}, context {}{}", path.filename().string(), device_kind_name(engine.device().info().kind),
                  dtype_name(engine.dtype()), engine.context_length(), more);
  log::write(log::Level::Info, coloured(Colour::Dim, line, stderr));
}

}  // namespace reprise::apps
