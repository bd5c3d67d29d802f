#include "server/engine_numbers.h"

#include "settings/setting.h"

namespace reprise::server {
namespace {

GraphPhase phase_of(std::string_view name, const engine::StepRunner& runner) {
  GraphPhase out;
  out.phase = name;
  out.mode = graph_mode_name(runner.mode());
  const engine::PhaseStats& s = runner.stats();
  out.replays = s.replays_by_size;
  for (const auto& [reason, n] : s.fallbacks) out.fallbacks[settings::as_flags(reason)] = n;
  out.padding_tokens = s.padded_rows;
  return out;
}

}  // namespace

GraphNumbers numbers_of(const engine::Engine& e) {
  GraphNumbers n;
  for (const engine::PhaseSpec& phase : e.phases()) n.phases.push_back(phase_of(phase.name, *e.runner(phase.name)));
  const engine::LoadTimes times = e.load_times();
  n.load_s = times.load_s;
  n.compile_s = times.compile_s;
  n.capture_s = times.capture_s;
  const engine::MemoryReport memory = e.memory();
  n.planned_bytes = memory.activation_bytes;
  n.weight_bytes = memory.weight_bytes;
  n.kv_bytes = memory.kv_bytes;
  if (const engine::Engine* draft = e.draft()) {
    const engine::MemoryReport more = draft->memory();
    n.planned_bytes += more.activation_bytes;
    n.weight_bytes += more.weight_bytes;
    n.kv_bytes += more.kv_bytes;
  }
  const engine::EngineCounters c = e.counters();
  n.verified = c.checked;
  n.verify_failures = c.differences;
  n.steps = c.steps;
  n.host_s = c.host_s;
  n.idle_steps = c.idle_steps;
  n.logits_gathered = c.logits_gathered;
  if (const auto& member = e.options().member)
    for (const auto& rank : member->standings()) n.ranks.push_back({rank.collectives, rank.waited_s});
  return n;
}

}  // namespace reprise::server
