#include <map>

#include "api/device_choice.h"
#include "capi/engine.h"
#include "see/explain.h"
#include "see/graph_report.h"
#include "settings/effects.h"

namespace reprise::capi {
namespace {

OrderedJson model_json(const Loaded& l) {
  const server::ServedModel& m = l.model;
  engine::Engine& e = *l.engine;
  return {{"path", m.path},
          {"name", m.name},
          {"dtype", dtype_name(e.dtype())},
          {"context_length", m.context_length},
          {"vocab_size", m.vocab_size},
          {"eos_token_ids", m.eos_tokens},
          {"tokenizer", m.tokenizer.has_value()},
          {"chat_template", m.chat_template != nullptr},
          {"reasoning", m.reasoning},
          {"max_running_requests", e.max_step_rows()},
          {"max_step_tokens", e.max_step_tokens()},
          {"device", api::device_json(e.device())},
          {"sampling",
           {{"temperature", checkpoint::sampling_defaults(m.defaults).temperature},
            {"top_p", checkpoint::sampling_defaults(m.defaults).top_p},
            {"top_k", checkpoint::sampling_defaults(m.defaults).top_k},
            {"min_p", checkpoint::sampling_defaults(m.defaults).min_p},
            {"repetition_penalty", checkpoint::sampling_defaults(m.defaults).repetition_penalty}}},
          {"fork", "a process that goes on after fork() cannot use this engine"}};
}

OrderedJson memory_json(const engine::MemoryReport& m) {
  return {{"weight_bytes", m.weight_bytes},   {"kv_bytes", m.kv_bytes},
          {"kv_page_bytes", m.kv_page_bytes}, {"kv_pages", m.kv_pages},
          {"state_bytes", m.state_bytes},     {"activation_bytes", m.activation_bytes},
          {"adapter_bytes", m.adapter_bytes}, {"exchange_bytes", m.exchange_bytes}};
}

OrderedJson counters_json(const Loaded& l) {
  const sched::SchedulerStats s = l.scheduler->stats();
  const engine::LoadTimes times = l.engine->load_times();
  return {{"running", s.running},
          {"waiting", s.waiting},
          {"requests", s.requests},
          {"steps", s.steps},
          {"prompt_tokens", s.prompt_tokens},
          {"cached_tokens", s.cached_tokens},
          {"generated_tokens", s.generated_tokens},
          {"preemptions", s.preemptions},
          {"failed_steps", s.failed_steps},
          {"free_pages", s.free_pages},
          {"pages", s.pages},
          {"load_s", times.load_s},
          {"compile_s", times.compile_s},
          {"capture_s", times.capture_s},
          {"graph", see::graph_json(*l.engine)}};
}

Result<OrderedJson> graph_json(engine::Engine& e) {
  OrderedJson out = OrderedJson::object();
  for (const char* phase : {"decode", "prefill"}) {
    ASSIGN_OR_RETURN(const see::PhaseView view, see::view_of_phase(e, phase));
    out[phase] = see::explain_json(e, view);
  }
  return out;
}

// As the setting spells it.
std::string word_of(DType t) {
  switch (t) {
    case DType::F32: return "float32";
    case DType::F16: return "float16";
    case DType::BF16: return "bfloat16";
    case DType::I8: return "int8";
    default: return std::string(dtype_name(t));
  }
}

// What the device and the model decided, where nothing was said.
std::map<std::string_view, std::string> decided_in(const Loaded& l) {
  engine::Engine& e = *l.engine;
  const engine::EngineOptions& o = e.options();
  const DeviceInfo& device = e.device().info();
  return {{"dtype", word_of(e.dtype())},
          {"kv_cache_dtype", word_of(o.kv_dtype.value_or(e.dtype()))},
          {"quantization", std::string(checkpoint::quantization_name(o.quantization))},
          {"context_length", fmt::format("{}", e.context_length())},
          {"served_model_name", l.model.name},
          {"device", std::string(device_kind_name(device.kind))},
          {"isa", device.isa},
          {"threads", fmt::format("{}", device.threads)},
          {"max_running_requests", fmt::format("{}", e.max_step_rows())},
          {"chunked_prefill_size", fmt::format("{}", e.max_step_tokens())},
          {"max_total_tokens", fmt::format("{}", e.memory().kv_pages * kv::kPageTokens)}};
}

OrderedJson settings_json(const Loaded& l, const Values& given) {
  const settings::Precedence precedence = precedence_of(given);
  const auto decided = decided_in(l);
  Choices untouched;
  std::vector<settings::Effect> effects;
  for (const settings::Binding& b : untouched.bindings()) {
    settings::Given initial = settings::default_of(b.row(), settings::values_in(b.target));
    settings::Effect effect = settings::effect_of(b.row(), std::move(initial), precedence);
    const auto known = decided.find(b.key);
    if (known != decided.end() && effect.given.origin < settings::Origin::File) {
      const settings::Given by_rule{b.row().rule, {known->second}};
      if (!(effect.given == by_rule)) effect.outranked.push_back({settings::Origin::Default, effect.given.values});
      effect.given = by_rule;
    }
    effects.push_back(std::move(effect));
  }
  return settings::effects_as_json(effects);
}

std::string dumped(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

}  // namespace

Result<std::string> Engine::text_of(const std::string& what) {
  Loaded& l = *loaded_;
  if (what == "model") return dumped(model_json(l));
  if (what == "settings") return dumped(settings_json(l, given_));
  if (what == "memory") return dumped(memory_json(l.engine->memory()));
  if (what == "counters") return dumped(counters_json(l));
  if (what == "metrics") {
    const sched::SchedulerStats stats = l.scheduler->stats();
    return l.metrics->text({stats}, {}, stats.running + stats.waiting);
  }
  if (what != "graph")
    return invalid("what: \"{}\" is not known; allowed: model, settings, graph, memory, counters, metrics", what);
  ASSIGN_OR_RETURN(const OrderedJson graph, graph_json(*l.engine));
  return dumped(graph);
}

}  // namespace reprise::capi
