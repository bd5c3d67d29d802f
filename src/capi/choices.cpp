#include "capi/choices.h"

#include <algorithm>

#include "settings/forms.h"

namespace reprise::capi {
namespace {

std::string text_of(bool v) { return v ? "true" : "false"; }
std::string text_of(const std::string& v) { return v; }
std::string text_of(int64_t v) { return fmt::format("{}", v); }
std::string text_of(double v) { return fmt::format("{}", v); }

OrderedJson value_of(const settings::Target& target) {
  return std::visit(
      [](const auto* t) -> OrderedJson {
        using Value = std::decay_t<decltype(*t)>;
        if constexpr (requires { t->has_value(); }) {
          return t->has_value() ? OrderedJson(text_of(**t)) : OrderedJson();
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>> ||
                             std::is_same_v<Value, std::vector<int64_t>>) {
          OrderedJson list = OrderedJson::array();
          for (const auto& v : *t) list.push_back(text_of(v));
          return list;
        } else {
          return text_of(*t);
        }
      },
      target);
}

}  // namespace

Choices::Choices() {
  settings::reset(bindings());
  model.serving = true;  // the settings of a scheduler are in effect
}

std::vector<settings::Binding> Choices::bindings() {
  std::vector<settings::Binding> out = model.bindings();
  for (const settings::Binding& b : model.graph.bindings()) out.push_back(b);
  for (const settings::Binding& b : model.speculation.bindings()) out.push_back(b);
  out.push_back({"log_level", &log_level});
  out.push_back({"served_model_name", &served_model_name});
  out.push_back({"chat_template", &chat_template});
  out.push_back({"tool_call_parser", &tool_call_parser});
  out.push_back({"reasoning_parser", &reasoning_parser});
  out.push_back({"max_queued_requests", &max_queued_requests});
  out.push_back({"engine_thread", &engine_thread});
  return out;
}

Status Choices::set(const Values& values) {
  const std::vector<settings::Binding> all = bindings();
  for (const auto& [key, value] : values) RETURN_IF_ERROR(settings::set(all, key, value));
  return Status::ok();
}

Status Choices::check() const {
  if (model.model_path.empty()) return invalid("`model_path` is not set; allowed: a GGUF file, a folder, or a name");
  if (model.dp_size != 1)
    return error(Code::Unsupported, "`dp_size` {}: replicas belong to `serve`; allowed here: 1", model.dp_size);
  if (model.tp_size != 1)
    return error(Code::Unsupported, "`tp_size` {}: ranks are processes of `reprise`; allowed here: 1", model.tp_size);
  for (const std::string& fault : model.graph.faults)
    if (fault.starts_with("hang"))
      return invalid("`inject_fault` {}: hang is for serve alone, whose `watchdog_timeout` ends it", fault);
  RETURN_IF_ERROR(model.check());
  return scheduler().status();
}

log::Level Choices::level() const { return log_level ? log::parse_level(*log_level).value() : log::Level::Warning; }

Result<sched::SchedulerOptions> Choices::scheduler() const {
  sched::SchedulerOptions o;
  const std::string policy = model.schedule_policy.value_or("fcfs");
  if (policy == "priority")
    return invalid(
        "`schedule_policy` priority: priorities always order waiting requests; allowed: fcfs, lpm, random, "
        "dfs-weight, lof");
  ASSIGN_OR_RETURN(o.policy, sched::parse_policy(policy));
  ASSIGN_OR_RETURN(o.speculation, model.speculation.options());
  o.max_queued = max_queued_requests;
  // With expanded latents the cut of a prompt may change bits, and a prefix that is known changes the cut.
  o.prefix_cache = !model.disable_radix_cache && model.mla_prefill != "expanded";
  o.mixed_prefill_tokens = model.mixed_prefill_tokens.value_or(0);
  o.max_prefill_tokens = model.max_prefill_tokens.value_or(0);
  o.seed = static_cast<uint64_t>(model.random_seed);
  ASSIGN_OR_RETURN(o.speculation, model.speculation.options());
  return o;
}

std::string key_of(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

Status check_value(const std::string& key, const std::string& value) {
  Choices scratch;
  return scratch.set({{key, value}});
}

OrderedJson settings_table() {
  Choices scratch;
  OrderedJson out = OrderedJson::array();
  for (const settings::Binding& b : scratch.bindings()) out.push_back(settings::json_of(b.row()));
  return out;
}

OrderedJson settings_in_effect(Choices& choices, const Values& given) {
  OrderedJson out = OrderedJson::object();
  for (const settings::Binding& b : choices.bindings()) {
    const bool set = std::any_of(given.begin(), given.end(), [&](const auto& v) { return v.first == b.key; });
    out[settings::name_of(b.key)] = {{"value", value_of(b.target)}, {"origin", set ? "api" : "default"}};
  }
  return out;
}

}  // namespace reprise::capi
