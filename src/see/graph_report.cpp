#include "see/graph_report.h"

#include <algorithm>

namespace reprise::see {
namespace {

OrderedJson phase_json(const engine::StepRunner* runner) {
  OrderedJson j;
  j["mode"] = phase_mode(runner);
  const bool captured = phase_mode(runner) != "off";
  j["sizes"] = captured ? OrderedJson(runner->sizes()) : OrderedJson::array();
  j["replays"] = runner ? runner->stats().replays : 0;
  j["fallbacks"] = OrderedJson::object();
  if (runner)
    for (const auto& [reason, count] : runner->stats().fallbacks) j["fallbacks"][reason] = count;
  j["padded_rows"] = runner ? runner->stats().padded_rows : 0;
  return j;
}

std::string number_of(uint64_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string phase_summary(std::string_view name, const engine::StepRunner* runner) {
  if (phase_mode(runner) == "off") {
    const std::string why = runner ? runner->uncaptured_reason() : std::string();
    return fmt::format("{} off{}", name, why.empty() ? "" : " (" + why + ")");
  }
  const auto& stats = runner->stats();
  uint64_t fallbacks = 0;
  std::string reasons;
  for (const auto& [reason, count] : stats.fallbacks) {
    fallbacks += count;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? " (" : "; ", number_of(count, "step"), reason);
  }
  return fmt::format("{} {}: {} sizes up to {}, {}, {}{}", name, phase_mode(runner), runner->sizes().size(),
                     runner->sizes().empty() ? 0 : runner->sizes().back(), number_of(stats.replays, "replay"),
                     number_of(fallbacks, "fallback"), reasons.empty() ? "" : reasons + ")");
}

}  // namespace

std::string phase_mode(const engine::StepRunner* runner) {
  if (!runner || !runner->uncaptured_reason().empty() || runner->mode() == GraphMode::Eager) return "off";
  return std::string(graph_mode_name(runner->mode()));
}

OrderedJson graph_json(engine::Engine& engine) {
  OrderedJson j;
  size_t planned = 0;
  for (const engine::PhaseSpec& phase : engine.phases()) {
    const engine::StepRunner* runner = engine.runner(phase.name);
    j[std::string(phase.name)] = phase_json(runner);
    planned = std::max(planned, runner->planned_bytes());
  }
  const auto live = engine.device().pool().stats().live_by_label;
  const auto found = live.find("activations");
  j["memory_bytes"] = {{"planned", planned}, {"actual", found == live.end() ? 0 : found->second}};
  return j;
}

std::string graph_summary(engine::Engine& engine) {
  std::vector<std::string> phases;
  for (const engine::PhaseSpec& phase : engine.phases())
    phases.push_back(phase_summary(phase.name, engine.runner(phase.name)));
  return fmt::format("{}", fmt::join(phases, "; "));
}

}  // namespace reprise::see
