#include "api/model_settings.h"

#include <cstdlib>
#include <set>

#include "api/default_model.h"
#include "api/device_choice.h"
#include "api/draft_model.h"
#include "backends/all.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/thread_pool.h"
#include "base/log.h"
#include "passes/extension.h"
#include "passes/pass_environment.h"
#include "see/decisions.h"
#include "see/graph_report.h"

namespace reprise::api {

using namespace see;

namespace {

Result<std::optional<DType>> dtype_of(const std::string& name) {
  if (name == "auto") return std::optional<DType>();
  if (name == "float") return std::optional(DType::F32);
  ASSIGN_OR_RETURN(DType t, parse_dtype(name));
  return std::optional<DType>(t);
}

// --json-model-override-args as --override says it.
Result<std::vector<std::string>> overrides_of(const std::string& text) {
  ASSIGN_OR_RETURN(const OrderedJson json, parse_ordered_json(text, "`json_model_override_args`"));
  if (!json.is_object()) return invalid("`json_model_override_args` {}: a JSON object is expected", text);
  std::vector<std::string> out;
  for (const auto& [key, value] : json.items()) {
    // A null says what an absent field says.
    if (value.is_null()) continue;
    out.push_back(key + "=" + value.dump());
  }
  return out;
}

Result<engine::EngineOptions> engine_options(const ModelSettings& f) {
  engine::EngineOptions o;
  ASSIGN_OR_RETURN(o.model_path, resolve_model_path(f.model_path, f.hub));
  o.mmproj_path = f.mmproj_path;
  ASSIGN_OR_RETURN(o.dtype, dtype_of(f.dtype));
  if (f.kv_dtype == "int8") {
    o.kv_dtype = DType::I8;
  } else {
    ASSIGN_OR_RETURN(o.kv_dtype, dtype_of(f.kv_dtype));
  }
  ASSIGN_OR_RETURN(o.load_format, engine::parse_load_format(f.load_format));
  ASSIGN_OR_RETURN(o.quantization, checkpoint::parse_quantization(f.quantization));
  o.int8_activations.reset();
  if (f.block_activations != "auto") o.int8_activations = f.block_activations == "int8";
  ASSIGN_OR_RETURN(o.pooling, checkpoint::parse_pool_kind(f.pooling));
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
  o.steps_ahead = f.decode_steps;
  o.max_loras = f.adapter_slots();
  if (f.max_lora_rank) o.max_lora_rank = *f.max_lora_rank;
  // At the start it is known what is needed.
  for (const std::string& text : f.lora_modules) {
    ASSIGN_OR_RETURN(const sched::AdapterPlace place, sched::parse_adapter_place(text));
    auto adapter = checkpoint::LoraAdapter::open(place.path);
    if (!adapter) return adapter.status().at(fmt::format("`lora_modules` {}", place.name));
    if (!f.max_lora_rank) o.max_lora_rank = std::max(o.max_lora_rank, adapter->rank());
  }
  o.ep_size = f.expert_parts();
  o.reduce_over_ranks = f.reduces();
  o.dispatch = f.sends_rows();
  o.sequence_parts = f.sequence_parts();
  ASSIGN_OR_RETURN(o.graph, f.graph.options(f.limits()));
  o.graph.pipeline.expand_latents = f.mla_prefill == "expanded";
  RETURN_IF_ERROR(apply_pass_environment(o.graph.pipeline.passes));
  if (f.cache_weights) {
    ASSIGN_OR_RETURN(const std::string folder, cache_folder());
    o.weight_cache = folder + "/weights";
    if (o.load_format == engine::LoadFormat::Dummy)
      log::notice("`cache_weights`: dummy weights are made and not read; nothing is kept");
  }
  if (o.graph.learned_dir.empty() && (o.graph.learn_decode_sizes || o.graph.learn_prefill_sizes)) {
    ASSIGN_OR_RETURN(const std::string cache, cache_folder());
    o.graph.learned_dir = cache + "/learned";
  }
  o.progress = f.progress;
  return o;
}

// Why decode steps are submitted one by one although more are asked for; empty: they are not.
std::string one_decode_step(const ModelSettings& f, engine::Engine& e) {
  if (f.decode_steps <= 1) return {};
  if (!e.device().info().asynchronous)
    return "the device is the host's threads, which wait less than 20 us between steps";
  if (e.has_states()) return "the model keeps states, which have room for two steps in flight";
  if (const auto drafts = f.speculation.options(); drafts.is_ok() && drafts->algorithm != spec::Algorithm::None)
    return "what is drafted depends on the tokens before (`speculative_algorithm`)";
  if (!e.overlaps())
    return "steps over ranks, steps whose replays are checked and steps that count experts are waited for";
  return {};
}

// Flags that change nothing here, with what is in effect instead.
std::vector<std::string> notices(const ModelSettings& f, engine::Engine& e) {
  std::vector<std::string> out = f.plain_notices();
  if (f.chunked_prefill_size && *f.chunked_prefill_size < 0)
    out.push_back(
        fmt::format("`chunked_prefill_size` -1: prompts are read in chunks all the same, and the answers "
                    "have the same bits; effective: {}",
                    e.max_step_tokens()));
  if (f.attention_backend && *f.attention_backend != device_kind_name(e.device().info().kind))
    out.push_back(fmt::format("`attention_backend` {}: each device has one attention; effective: {}",
                              *f.attention_backend, device_kind_name(e.device().info().kind)));
  if (std::string why = one_decode_step(f, e); !why.empty())
    out.push_back(fmt::format("`decode_steps` {}: {}; effective: 1", f.decode_steps, why));
  if (f.serving) return out;
  if (f.max_prefill_tokens)
    out.push_back(fmt::format("`max_prefill_tokens` {}: a step is bounded by `chunked_prefill_size`; effective: {}",
                              *f.max_prefill_tokens, e.max_step_tokens()));
  if (f.mixed_prefill_tokens)
    out.push_back(
        fmt::format("`mixed_prefill_tokens` {}: this command mixes no prompts with decoding", *f.mixed_prefill_tokens));
  if (f.schedule_policy)
    out.push_back(fmt::format("`schedule_policy` {}: this command runs its requests in order; effective: fcfs",
                              *f.schedule_policy));
  if (f.reduces())
    out.push_back(
        fmt::format("`tp_form` reduce: sums are added over {} ranks, so answers have the bits of {} ranks, not of one",
                    f.tp_size, f.tp_size));
  if (!f.lora_modules.empty() && !f.chooses_adapter)
    out.push_back("`lora_modules`: this command has no requests that choose adapters; effective: none of them");
  if (f.watchdog_timeout) out.push_back("`watchdog_timeout`: this command has no watchdog; effective: off");
  return out;
}

void say_what_is_in_effect(const ModelSettings& f, const std::vector<std::string>& more, engine::Engine& e) {
  const auto& o = e.options();
  const DeviceInfo& info = e.device().info();
  const std::string decode = e.pooled_size() > 0 ? "" : fmt::format("decode {} ", phase_mode(e.runner("decode")));
  log::info(
      "{}, {}, {} thread{}, {} (quantization {}, KV {}), context {}, KV cache {} tokens, prefill chunk {}, graph "
      "{}prefill {}, "
      "passes {}",
      device_kind_name(info.kind), info.isa, info.threads, info.threads == 1 ? "" : "s", dtype_name(e.dtype()),
      checkpoint::quantization_name(o.quantization), dtype_name(o.kv_dtype.value_or(e.dtype())), e.context_length(),
      e.memory().kv_pages * kv::kPageTokens, e.max_step_tokens(), decode, phase_mode(e.runner("prefill")),
      f.graph.passes.value_or("all"));
  if (o.member)
    log::info(
        "ranks: {}{} on this host; rank 0 holds {:.1f} MB of weights; {:.1f} MB are shared for what ranks exchange",
        o.member->world().one_host() ? "" : fmt::format("{}, of which ", o.member->world().size),
        o.member->world().local_size, static_cast<double>(e.memory().weight_bytes) / 1e6,
        static_cast<double>(e.memory().exchange_bytes) / 1e6);
  if (log::level() <= log::Level::Info) log::info("steps:\n{}", decision_table(decisions(e)));
  for (const std::string& text : more) log::notice("{}", text);
  for (const std::string& text : notices(f, e)) log::notice("{}", text);
  // Both were checked before the model was loaded.
  if (auto said = f.graph.meaning(f.limits()); said.is_ok())
    for (const Notice& n : said->notices) log::notice("{}", n.text);
  for (const Notice& n : device_notices(f.device, f.ascend_runtime)) log::notice("{}", n.text);
  if (auto said = resolve_environment(::getenv, info.kind); said.is_ok())
    for (const Notice& n : said->notices) log::notice("{}", n.text);
}

// The model that guesses, on the device of the other one, with a pool for no more than a page.
Result<std::unique_ptr<engine::Engine>> open_draft(const ModelSettings& f, DeviceOptions device, const Platform& other,
                                                   const spec::SpecOptions& drafting, const std::string& source) {
  device.shared = other.device;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  for (const std::string& file : f.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  ASSIGN_OR_RETURN(engine::EngineOptions options, engine_options(f));
  make_head(drafting.algorithm, source, options);
  // Where graphs freeze sizes: what a step accepted is read in the next one as drafts are, by steps of no more rows
  // than the drafts of a round have.
  options.graph.verify = {drafting.draft_tokens, true, engine::VerifyRows::kSequences};
  options.captures_later = true;
  options.member = f.member;
  options.steps_ahead = 1;  // rounds of drafts are its steps
  auto opened = engine::Engine::create(options, std::move(platform));
  return opened ? std::move(opened) : opened.status().at(fmt::format("draft model {}", f.model_path));
}

// It is of the same vocabulary, and its pool becomes as large as the model's.
Status join_draft(const ModelSettings& f, engine::Engine& model, const ModelSettings& of_draft,
                  std::unique_ptr<engine::Engine> draft) {
  RETURN_IF_ERROR(check_draft_model(f, model, of_draft, *draft));
  RETURN_IF_ERROR(model.set_draft(std::move(draft)));
  if (f.member && !f.member->world().front()) return Status::ok();
  const engine::Engine& d = *model.draft();
  const engine::MemoryReport m = d.memory();
  log::info("draft model {}: {}, weights {:.1f} MB, activations {:.1f} MB, KV cache {} tokens, {:.1f} MB",
            of_draft.model_path, dtype_name(d.dtype()), static_cast<double>(m.weight_bytes) / 1e6,
            static_cast<double>(m.activation_bytes) / 1e6, m.kv_pages * kv::kPageTokens,
            static_cast<double>(m.kv_bytes) / 1e6);
  return Status::ok();
}

// For `threads` 0: the cores that the rank may use. Where ranks have processors of their own, the mask names only
// those; too few are shared.
int threads_of_rank(const ranks::Member& member) {
  return member.own_processors() ? cpu::ThreadPool::usual_threads() : 1;
}

}  // namespace

ModelSettings::ModelSettings() { settings::reset(bindings()); }

std::vector<settings::Binding> ModelSettings::bindings() {
  return {{"model_path", &model_path},
          {"mmproj", &mmproj_path},
          {"revision", &hub.revision},
          {"download_dir", &hub.download_dir},
          {"tokenizer_path", &tokenizer_path},
          {"load_format", &load_format},
          {"dtype", &dtype},
          {"kv_cache_dtype", &kv_dtype},
          {"quantization", &quantization},
          {"block_activations", &block_activations},
          {"pooling", &pooling},
          {"mla_prefill", &mla_prefill},
          {"context_length", &context_length},
          {"override", &overrides},
          {"json_model_override_args", &json_overrides},
          {"random_seed", &random_seed},
          {"trust_remote_code", &trust_remote_code},
          {"device", &device},
          {"ascend_runtime", &ascend_runtime},
          {"threads", &threads},
          {"extension", &extensions},
          {"isa", &isa},
          {"max_running_requests", &max_running_requests},
          {"max_total_tokens", &max_total_tokens},
          {"chunked_prefill_size", &chunked_prefill_size},
          {"mem_fraction_static", &mem_fraction_static},
          {"attention_backend", &attention_backend},
          {"max_prefill_tokens", &max_prefill_tokens},
          {"mixed_prefill_tokens", &mixed_prefill_tokens},
          {"decode_steps", &decode_steps},
          {"schedule_policy", &schedule_policy},
          {"disable_radix_cache", &disable_radix_cache},
          {"watchdog_timeout", &watchdog_timeout},
          {"cache_weights", &cache_weights},
          {"page_size", &page_size},
          {"tp_size", &tp_size},
          {"tp_form", &tp_form},
          {"ep_size", &ep_size},
          {"enable_expert_parallel", &enable_expert_parallel},
          {"moe_a2a_backend", &moe_a2a_backend},
          {"dist_launcher", &dist_launcher},
          {"nnodes", &nnodes},
          {"dist_timeout", &dist_timeout},
          {"cpu_bind", &cpu_bind},
          {"numa_node", &numa_node},
          {"dp_size", &dp_size},
          {"enable_lora", &enable_lora},
          {"lora_modules", &lora_modules},
          {"max_loras", &max_loras},
          {"max_lora_rank", &max_lora_rank},
          {"enable_dp_attention", &enable_dp_attention}};
}

std::vector<std::string> ModelSettings::plain_notices() const {
  std::vector<std::string> out;
  if (trust_remote_code) out.push_back("`trust_remote_code`: no code from a model is ever run");
  if (!is_model_name(model_path)) {
    constexpr const char* kNoHub = "the model is read from this machine, as it is there";
    if (!hub.revision.empty()) out.push_back(fmt::format("`revision` {}: {}", hub.revision, kNoHub));
    if (!hub.download_dir.empty()) out.push_back(fmt::format("`download_dir` {}: {}", hub.download_dir, kNoHub));
  }
  const auto on = device_options(device, ascend_runtime, ::getenv);
  const bool ascend = on.is_ok() && on->kind == DeviceKind::Ascend;
  if (moe_a2a_backend != "none" && !(ascend && sends_rows()))
    out.push_back(fmt::format("`moe_a2a_backend` {}: {}; effective: none", moe_a2a_backend,
                              moe_a2a_backend == "deepep" && ascend
                                  ? "it takes `ep_size` equal to `tp_size`, above 1"
                                  : "ranks exchange the results of all rows of their experts"));
  for (std::string& text : speculation.notices()) out.push_back(std::move(text));
  return out;
}

StepLimits ModelSettings::limits() const {
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

// Only the engine knows the model's experts.
Status ModelSettings::check_experts() const {
  if (enable_expert_parallel && ep_size > 1 && ep_size != tp_size)
    return invalid("`ep_size` {} with `enable_expert_parallel`, which means {} (`tp_size`); leave one of them out",
                   ep_size, tp_size);
  if (tp_size % ep_size == 0) return Status::ok();
  std::vector<int64_t> allowed;
  for (int64_t n = 1; n <= tp_size; ++n)
    if (tp_size % n == 0) allowed.push_back(n);
  return invalid("`ep_size` {} with `tp_size` {}: ranks are shared out evenly over the parts; allowed: {}", ep_size,
                 tp_size, fmt::join(allowed, ", "));
}

Status ModelSettings::check_replicas() const {
  if (dp_size == 1) return Status::ok();
  if (!serving) return invalid("`dp_size` {}: replicas answer requests of `serve` alone; allowed here: 1", dp_size);
  if (enable_dp_attention) {
    if (tp_size % dp_size == 0) return Status::ok();
    std::vector<int64_t> allowed;
    for (int64_t n = 1; n <= tp_size; ++n)
      if (tp_size % n == 0) allowed.push_back(n);
    return invalid(
        "`dp_size` {} with `enable_dp_attention`: the {} ranks of `tp_size` form parts of equal size; "
        "allowed: {}",
        dp_size, tp_size, fmt::join(allowed, ", "));
  }
  if (dp_size > ranks::kMaxRanks)
    return invalid("`dp_size` {} is out of range; allowed: 1 to {}", dp_size, ranks::kMaxRanks);
  if (dp_size * tp_size > ranks::kMaxRanks)
    return invalid("`dp_size` {} with `tp_size` {}: {} processes; allowed: {} in all", dp_size, tp_size,
                   dp_size * tp_size, ranks::kMaxRanks);
  return Status::ok();
}

int64_t ModelSettings::adapter_slots() const {
  constexpr int64_t kUsualSlots = 4;  // the memory of a slot is small beside a model's
  const auto named = static_cast<int64_t>(lora_modules.size());
  return max_loras.value_or(enable_lora || named > 0 ? std::max(kUsualSlots, named) : 0);
}

Status ModelSettings::check_adapters() const {
  std::set<std::string> names;
  for (const std::string& text : lora_modules) {
    ASSIGN_OR_RETURN(const sched::AdapterPlace place, sched::parse_adapter_place(text));
    if (!names.insert(place.name).second) return invalid("`lora_modules`: two adapters are called \"{}\"", place.name);
  }
  if (static_cast<int64_t>(names.size()) > adapter_slots())
    return invalid("`lora_modules` names {} adapters; `max_loras` {} holds fewer", names.size(), adapter_slots());
  if (adapter_slots() > 0 && dp_size > 1)
    return invalid("`max_loras` {}: LoRA adapters are loaded into one replica yet; allowed: 0, or `dp_size` 1",
                   adapter_slots());
  return Status::ok();
}

Status ModelSettings::check() const {
  if (model_path.empty()) return invalid("`model_path` is missing; allowed: {}", settings::find("model_path")->help);
  if (is_model_name(model_path)) RETURN_IF_ERROR(model_name(model_path, hub).status());
  if (auto isa_known = cpu::parse_isa(isa); !isa_known) return isa_known.status().at("`isa`");
  for (const std::string& o : overrides)
    if (o.find('=') == std::string::npos || o[0] == '=')
      return invalid("`override` \"{}\" is not of the form key=value", o);
  if (tp_size > ranks::kMaxRanks)
    return invalid("`tp_size` {} is out of range; allowed: 1 to {}", tp_size, ranks::kMaxRanks);
  if (nnodes > tp_size)
    return invalid("`nnodes` {} with `tp_size` {}: a host has at least one rank; allowed: 1 to {}", nnodes, tp_size,
                   tp_size);
  RETURN_IF_ERROR(check_experts());
  RETURN_IF_ERROR(check_replicas());
  RETURN_IF_ERROR(check_adapters());
  if (chunked_prefill_size && *chunked_prefill_size == 0)
    return invalid("`chunked_prefill_size`: 0 is out of range; allowed: 1 to {}, or -1",
                   settings::find("chunked_prefill_size")->integers.high);
  if (json_overrides) RETURN_IF_ERROR(overrides_of(*json_overrides).status());
  for (const std::string& fault : graph.faults)
    if (fault.starts_with("hang") && !serving)
      return invalid("`inject_fault` {}: hang is for serve alone, whose `watchdog_timeout` ends it", fault);
  RETURN_IF_ERROR(graph.options(limits()).status());
  RETURN_IF_ERROR(speculation.draft_model().status());
  RETURN_IF_ERROR(speculation.options().status());
  RETURN_IF_ERROR(device_options(device, ascend_runtime, ::getenv).status());
  return Status::ok();
}

Status load_adapters(const ModelSettings& chosen, sched::AdapterTable& adapters) {
  for (const std::string& text : chosen.lora_modules) {
    ASSIGN_OR_RETURN(const sched::AdapterPlace place, sched::parse_adapter_place(text));
    const auto loaded = adapters.load(place);
    if (!loaded) return loaded.status().at(fmt::format("`lora_modules` {}", place.name));
    log::info("adapter {}: rank {}, slot {} of {}", place.name, (*loaded)->rank, (*loaded)->slot, adapters.slots());
  }
  return Status::ok();
}

Result<std::unique_ptr<engine::Engine>> open_engine(const ModelSettings& chosen,
                                                    const std::vector<std::string>& notices) {
  if (chosen.tp_size > 1 && !chosen.member)
    return error(Code::Unsupported, "`tp_size` {}: the model is run on one rank here; allowed: 1", chosen.tp_size);
  ASSIGN_OR_RETURN(auto options, engine_options(chosen));
  ASSIGN_OR_RETURN(DeviceOptions device, device_options(chosen.device, chosen.ascend_runtime, ::getenv));
  device.isa = chosen.isa;
  device.threads = static_cast<int>(chosen.threads);
  device.live_sizes = chosen.live_sizes;
  device.member = options.member = chosen.member;
  device.dispatch = options.dispatch = options.dispatch && device.kind == DeviceKind::Ascend;
  device.index = chosen.replica * static_cast<int>(chosen.tp_size);
  // Replicas of a host share its memory; those of other devices have one each.
  if (device.kind == DeviceKind::Cpu) options.memory_share = 1.0 / static_cast<double>(chosen.replicas());
  if (chosen.member && device.threads == 0) device.threads = threads_of_rank(*chosen.member);
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  for (const std::string& file : chosen.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  ASSIGN_OR_RETURN(std::string draft_path, chosen.speculation.draft_model());
  ASSIGN_OR_RETURN(const spec::SpecOptions drafting, chosen.speculation.options());
  if (drafting.algorithm == spec::Algorithm::Prediction) draft_path = chosen.model_path;
  if (drafting.algorithm != spec::Algorithm::None) {
    options.most_drafts = drafting.draft_tokens - 1;
    options.steps_ahead = 1;
  }
  const ModelSettings of_draft = draft_settings(chosen, draft_path);
  std::unique_ptr<engine::Engine> draft;
  if (drafting.algorithm != spec::Algorithm::None)
    options.graph.verify = {drafting.draft_tokens, drafting.adaptive, drafting.max_rows};
  if (!draft_path.empty()) {
    auto opened = open_draft(of_draft, device, platform, drafting, options.model_path);
    if (opened) {
      draft = std::move(*opened);
    } else {
      // What an accelerator has no kernels for is no reason not to serve. Over ranks it is: the world has ended with
      // the rank that said so.
      if (device.kind == DeviceKind::Cpu || opened.status().code() != Code::Unsupported || chosen.member ||
          chosen.speculation.exact == "required")
        return opened.status();
      log::notice("{}", opened.status().message());
      options.graph.verify = {};
    }
  }
  if (draft) {
    RETURN_IF_ERROR(keep_rows(drafting.algorithm, draft.get(), options));
    const engine::MemoryReport m = draft->memory();
    if (drafting.algorithm != spec::Algorithm::Model) options.lender = draft.get();
    options.beside = {m.weight_bytes + m.activation_bytes, m.kv_page_bytes};
  }
  ASSIGN_OR_RETURN(auto engine, engine::Engine::create(options, std::move(platform)));
  RETURN_IF_ERROR(chosen.speculation.check_engine(engine->verify_refusal(), engine->device().info()));
  if (draft) RETURN_IF_ERROR(join_draft(chosen, *engine, of_draft, std::move(draft)));
  if (chosen.replica == 0 && (!chosen.member || chosen.member->world().front()))
    say_what_is_in_effect(chosen, notices, *engine);
  return engine;
}

}  // namespace reprise::api
