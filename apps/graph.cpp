// `reprise graph explain` and `dump`: what was compiled from the model, and why.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "command.h"
#include "common/flags.h"
#include "common/graph_flags.h"
#include "common/model_flags.h"
#include "common/terminal.h"
#include "graph/text.h"

namespace reprise::apps {
namespace {

struct GraphCommandFlags {
  ModelFlags model;
  bool json = false;
  std::string phase = "decode";
  std::string format = "text";
};

struct PhaseView {
  const engine::StepRunner* runner;
  const PipelineReport* passes;
};

Result<PhaseView> view_of_phase(engine::Engine& e, const std::string& phase) {
  const PhaseView v = phase == "decode" ? PhaseView{e.decode_runner(), e.decode_passes()}
                                        : PhaseView{e.prefill_runner(), e.prefill_passes()};
  if (!v.runner || !v.passes) return error(Code::Unsupported, "this engine has no graphs to show");
  return v;
}

const CompiledModel& program_of(const PhaseView& v) { return *v.runner->programs().back().model; }

std::string ops_of(const CompiledModel& m, const Piece& piece) {
  std::vector<const Node*> nodes;
  for (const Node* n = m.graph().first(); n; n = n->next) nodes.push_back(n);
  std::vector<std::pair<std::string, int>> runs;
  for (const Thunk& t : piece.thunks) {
    const std::string& op = nodes[t.node]->op->name;
    if (!runs.empty() && runs.back().first == op)
      ++runs.back().second;
    else
      runs.emplace_back(op, 1);
  }
  std::string out;
  for (auto& [op, count] : runs)
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", op, count > 1 ? fmt::format("*{}", count) : "");
  return out;
}

OrderedJson explain_json(engine::Engine& e, const PhaseView& v) {
  OrderedJson j;
  j["passes"] = OrderedJson::array();
  for (const PassReport& p : v.passes->passes) {
    OrderedJson refused = OrderedJson::array();
    for (const PassRemark& r : p.refused) refused.push_back({{"at", fmt::format("%{}", r.at)}, {"reason", r.reason}});
    OrderedJson row{{"name", p.name}, {"tried", p.tried}, {"matched", p.matched}, {"refused", refused}};
    if (!p.skipped.empty()) row["skipped"] = p.skipped;
    row["seconds"] = p.seconds;
    row["nodes"] = {p.nodes_before, p.nodes_after};
    j["passes"].push_back(row);
  }
  const CompiledModel& m = program_of(v);
  j["pieces"] = OrderedJson::array();
  for (size_t i = 0; i < m.pieces().size(); ++i)
    j["pieces"].push_back({{"index", i},
                           {"captured", m.pieces()[i].captured},
                           {"ops", ops_of(m, m.pieces()[i])},
                           {"kernels", m.pieces()[i].thunks.size()}});
  j["sizes"] = {{"decode", e.decode_runner()->sizes()}, {"prefill", e.prefill_runner()->sizes()}};
  const auto live = e.device().pool().stats().live_by_label;
  const auto found = live.find("activations");
  OrderedJson by_size = OrderedJson::array();
  for (const auto* runner : {e.decode_runner(), e.prefill_runner()})
    for (auto& p : runner->programs()) by_size.push_back({{"size", p.size}, {"bytes", p.model->plan().arena_bytes}});
  size_t planned = 0;
  for (auto& b : by_size) planned = std::max(planned, b["bytes"].get<size_t>());
  j["memory"] = {
      {"planned_bytes", planned}, {"actual_bytes", found == live.end() ? 0 : found->second}, {"by_size", by_size}};
  j["fallbacks_possible"] = OrderedJson::array();
  for (const auto* runner : {e.decode_runner(), e.prefill_runner()}) {
    if (!runner->uncaptured_reason().empty())
      j["fallbacks_possible"].push_back({{"shape", "all"}, {"reason", runner->uncaptured_reason()}});
    else if (runner->sizes().back() < runner->largest())
      j["fallbacks_possible"].push_back({{"shape", fmt::format("above {}", runner->sizes().back())},
                                         {"reason", "larger than the largest captured size"}});
  }
  return j;
}

void explain_text(const PhaseView& v, const std::string& phase) {
  const CompiledModel& m = program_of(v);
  fmt::print("{} {}: {}, {} launches a step in {} pieces, {} sizes, {:.1f} MB planned\n", phase,
             coloured(Colour::Bold, m.graph().name(), stdout), phase_mode(v.runner), m.launches(), m.pieces().size(),
             v.runner->sizes().size(), static_cast<double>(m.plan().arena_bytes) / 1e6);
  if (!v.runner->uncaptured_reason().empty()) fmt::print("not captured: {}\n", v.runner->uncaptured_reason());
  fmt::print("\n{:<28}{:>7}{:>9}{:>9}{:>14}{:>9}\n", "pass", "tried", "matched", "refused", "nodes", "ms");
  for (const PassReport& p : v.passes->passes) {
    fmt::print("{:<28}{:>7}{:>9}{:>9}{:>14}{:>9.2f}{}\n", p.name, p.tried, p.matched, p.refusals,
               fmt::format("{} > {}", p.nodes_before, p.nodes_after), p.seconds * 1e3,
               p.skipped.empty() ? "" : fmt::format("  ({})", p.skipped));
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, p.refused.size()); ++i)
      fmt::print("    %{}: {}\n", p.refused[i].at, p.refused[i].reason);
    if (p.refusals > static_cast<int64_t>(kShown))
      fmt::print("    and {} more\n", p.refusals - static_cast<int64_t>(kShown));
  }
  fmt::print("\n{:<8}{:<10}{:>9}  ops\n", "piece", "", "kernels");
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(kShown, m.pieces().size()); ++i) {
    std::string ops = ops_of(m, m.pieces()[i]);
    if (ops.size() > 110) ops = ops.substr(0, 107) + "...";
    fmt::print("{:<8}{:<10}{:>9}  {}\n", i, m.pieces()[i].captured ? "captured" : "launched",
               m.pieces()[i].thunks.size(), ops);
  }
  if (m.pieces().size() > kShown) fmt::print("... {} more pieces\n", m.pieces().size() - kShown);
}

std::string dot_of(const Graph& g) {
  std::string out = fmt::format("digraph \"{}\" {{\n  node [shape=box, fontname=monospace];\n", g.name());
  for (const Node* n = g.first(); n; n = n->next) {
    std::string label = n->op->name;
    if (const AttrValue* name = n->attrs.find("name")) label += fmt::format("\\n{}", std::get<std::string>(*name));
    out += fmt::format("  n{} [label=\"{}\\n{}\"];\n", n->result()->id, label, print(g, n->result()->type));
    for (const Value* v : n->in) out += fmt::format("  n{} -> n{};\n", v->def->result()->id, n->result()->id);
  }
  return out + "}\n";
}

Status run_explain(const GraphCommandFlags& f) {
  ASSIGN_OR_RETURN(auto e, open_engine(f.model));
  ASSIGN_OR_RETURN(const PhaseView v, view_of_phase(*e, f.phase));
  if (f.json)
    fmt::print("{}\n", explain_json(*e, v).dump());
  else
    explain_text(v, f.phase);
  return Status::ok();
}

Status run_dump(const GraphCommandFlags& f) {
  ASSIGN_OR_RETURN(auto e, open_engine(f.model));
  ASSIGN_OR_RETURN(const PhaseView v, view_of_phase(*e, f.phase));
  const Graph& g = program_of(v).graph();
  fmt::print("{}", f.format == "dot" ? dot_of(g) : print(g));
  return Status::ok();
}

Command command(CLI::App* app, std::shared_ptr<GraphCommandFlags> flags, Status (*run)(const GraphCommandFlags&)) {
  flags->model.add_to(*app);
  add_choice(*app, "--phase", flags->phase, {"decode", "prefill"}, "which graph");
  return {app, [flags] { return flags->model.check(); }, [flags, run] { return run(*flags); }};
}

}  // namespace

Command add_graph_explain(CLI::App& graph) {
  auto flags = std::make_shared<GraphCommandFlags>();
  CLI::App* app = graph.add_subcommand("explain", "What the passes matched and refused, pieces, sizes, memory");
  add_switch(*app, "--json", flags->json, "one JSON object on standard output");
  return command(app, flags, run_explain);
}

Command add_graph_dump(CLI::App& graph) {
  auto flags = std::make_shared<GraphCommandFlags>();
  CLI::App* app = graph.add_subcommand("dump", "The graph after all passes");
  add_choice(*app, "--format", flags->format, {"text", "dot"}, "IR text, or DOT for graphviz");
  return command(app, flags, run_dump);
}

}  // namespace reprise::apps
