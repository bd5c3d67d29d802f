#include "see/queue_table.h"

#include <algorithm>

namespace reprise::see {
namespace {

// Sizes are alike but for their rows, so the largest's graphs stand for all of a program.
QueueRow row_of(const engine::StepRunner& r, std::string_view phase) {
  QueueRow row;
  row.phase = phase;
  row.mode = graph_mode_name(r.mode());
  row.left_out = r.dropped();
  if (r.uncaptured_reason().empty()) row.kept = r.sizes();
  for (const CompiledModel* m : r.models()) {
    for (const Piece& p : m->pieces()) {
      const DeviceGraph* graph = m->graph_of(p);
      const auto held = graph ? ascend::queues_of(*graph) : std::nullopt;
      if (!held) continue;
      ++row.graphs;
      row.queues += held->queues;
      row.tasks = std::max(row.tasks, held->tasks);
    }
  }
  return row;
}

std::string listed_sizes(const std::vector<int64_t>& sizes) {
  if (sizes.empty()) return "none";
  if (sizes.size() <= 8) return fmt::format("{}", fmt::join(sizes, ", "));
  return fmt::format("{}, {}, ... {} ({} sizes)", sizes[0], sizes[1], sizes.back(), sizes.size());
}

}  // namespace

std::optional<QueueTable> queue_table(engine::Engine& engine) {
  const auto budget = ascend::queue_budget(engine.device());
  if (!budget) return std::nullopt;
  QueueTable table{*budget, {}};
  for (const engine::PhaseSpec& p : engine.phases()) table.rows.push_back(row_of(*engine.runner(p.name), p.name));
  return table;
}

OrderedJson queue_json(const QueueTable& table) {
  OrderedJson j;
  j["held_for_life"] = table.budget.held_for_life;
  j["total"] = table.budget.total;
  j["used"] = table.budget.used;
  j["phases"] = OrderedJson::array();
  for (const QueueRow& r : table.rows) {
    OrderedJson one;
    one["phase"] = r.phase;
    one["mode"] = r.mode;
    one["graphs_of_a_size"] = r.graphs;
    one["tasks_of_the_longest"] = r.tasks;
    one["queues_of_a_size"] = r.queues;
    one["held"] = r.held();
    one["kept"] = r.kept;
    one["left_out"] = OrderedJson::array();
    for (const auto& d : r.left_out) one["left_out"].push_back({{"size", d.size}, {"reason", d.reason}});
    j["phases"].push_back(std::move(one));
  }
  return j;
}

std::string queue_text(const QueueTable& table) {
  std::string out = fmt::format("queues: {} of {} used ({})", table.budget.used, table.budget.total,
                                table.budget.held_for_life ? "this driver reserves them as long as a graph exists"
                                                           : "this driver binds them while a graph runs");
  for (const QueueRow& r : table.rows) {
    out += fmt::format("\n  {:<8} {:<10} a size has {} graphs of up to {} tasks and takes {} queues; captured: {}",
                       r.phase, r.mode, r.graphs, r.tasks, r.queues, listed_sizes(r.kept));
    if (!r.left_out.empty()) out += fmt::format("; left out: {}", r.left_out.size());
  }
  return out;
}

}  // namespace reprise::see
