#include "see/explain.h"

#include <algorithm>

#include "see/decisions.h"
#include "see/queue_table.h"

namespace reprise::see {

std::map<std::string, int> kernel_calls(const CompiledModel& m) {
  std::map<std::string, int> calls;
  for (const auto& piece : m.pieces())
    for (const Thunk& t : piece.thunks) ++calls[m.kernel(t.node)->name];
  return calls;
}

OrderedJson explain_json(engine::Engine& e, const PhaseView& v) {
  OrderedJson j;
  j["passes"] = passes_json(*v.passes);
  j["pieces"] = pieces_json(v.model());
  j["kernels"] = kernel_calls(v.model());
  for (const engine::PhaseSpec& phase : engine::kPhases)
    j["sizes"][std::string(phase.name)] = e.runner(phase.name)->sizes();
  const auto live = e.device().pool().stats().live_by_label;
  const auto found = live.find("activations");
  OrderedJson by_size = OrderedJson::array();
  for (const engine::PhaseSpec& phase : engine::kPhases) {
    const engine::StepRunner* runner = e.runner(phase.name);
    by_size.push_back({{"size", runner->largest()}, {"bytes", runner->planned_bytes()}});
  }
  size_t planned = 0;
  for (auto& b : by_size) planned = std::max(planned, b["bytes"].get<size_t>());
  j["memory"] = {
      {"planned_bytes", planned}, {"actual_bytes", found == live.end() ? 0 : found->second}, {"by_size", by_size}};
  j["fallbacks_possible"] = OrderedJson::array();
  j["decisions"] = OrderedJson::array();
  for (const Decision& d : decisions(e)) {
    j["decisions"].push_back({{"shape", d.shape}, {"mode", d.mode}, {"reason", d.reason}});
    if (!d.replayed()) j["fallbacks_possible"].push_back({{"shape", d.shape}, {"reason", d.reason}});
  }
  if (const auto queues = queue_table(e)) j["queues"] = queue_json(*queues);
  return j;
}

}  // namespace reprise::see
