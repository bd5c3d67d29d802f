#include "capi/choices.h"

#include <map>
#include <utility>

#include "settings/forms.h"

namespace reprise::capi {
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

settings::Precedence precedence_of(const Values& given) {
  std::map<std::string, settings::Given> by_key;
  for (const auto& [key, value] : given) {
    settings::Given& g = by_key[key];
    g.origin = settings::Origin::Api;
    const settings::Kind kind = settings::find(key)->kind;
    if (kind != settings::Kind::Texts && kind != settings::Kind::Words) g.values.clear();
    g.values.push_back(value);
  }
  settings::Precedence out;
  for (auto& [key, g] : by_key) out.give(key, std::move(g));
  return out;
}

}  // namespace reprise::capi
