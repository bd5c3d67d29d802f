#include "see/phase_view.h"

#include <map>

#include "graph/text.h"
#include "see/graph_report.h"

namespace reprise::see {
namespace {

OrderedJson dims_json(const Graph& g, const Shape& shape) {
  OrderedJson out = OrderedJson::array();
  for (const Dim d : shape.dims()) {
    if (d.is_constant())
      out.push_back(d.factor);
    else
      out.push_back(d.factor == 1 ? g.symbols()[d.symbol - 1].name
                                  : fmt::format("{}*{}", d.factor, g.symbols()[d.symbol - 1].name));
  }
  return out;
}

OrderedJson attr_json(const AttrValue& v) {
  return std::visit([](const auto& x) { return OrderedJson(x); }, v);
}

OrderedJson result_json(const CompiledModel& m, const Value& v) {
  const Graph& g = m.graph();
  OrderedJson j{{"value", v.id},
                {"type", print(g, v.type)},
                {"dtype", dtype_name(v.type.dtype)},
                {"shape", dims_json(g, v.type.shape)}};
  const Value* root = storage_root(&v);
  if (root != &v) j["same_bytes_as"] = root->id;
  if (const auto it = m.plan().storage_of.find(root); it != m.plan().storage_of.end())
    j["offset"] = m.plan().storages[it->second].offset;
  return j;
}

OrderedJson nodes_json(const CompiledModel& m, const GraphDoc& doc) {
  std::vector<int> piece_of(doc.nodes.size(), -1);
  for (size_t i = 0; i < m.pieces().size(); ++i)
    for (const Thunk& t : m.pieces()[i].thunks) piece_of[t.node] = static_cast<int>(i);
  OrderedJson nodes = OrderedJson::array();
  uint32_t number = 0;
  for (const Node* n = m.graph().first(); n; n = n->next, ++number) {
    OrderedJson j{{"number", number}, {"op", n->op->name}};
    if (doc.nodes[number].layer != DocNode::kNoLayer) j["layer"] = doc.nodes[number].layer;
    j["results"] = OrderedJson::array();
    for (auto& v : n->out) j["results"].push_back(result_json(m, *v));
    j["operands"] = OrderedJson::array();
    for (size_t i = 0; i < n->in.size(); ++i)
      j["operands"].push_back({{"name", n->op->operands[i].name}, {"value", n->in[i]->id}});
    j["attrs"] = OrderedJson::object();
    for (auto& [name, value] : n->attrs.entries()) j["attrs"][name] = attr_json(value);
    if (n->stream != kMainStream) j["stream"] = stream_name(n->stream);
    for (const Node* w : n->waits) j["after"].push_back(w->result()->id);
    j["made_by"] = n->made_by;
    j["kernel"] = m.kernel(number) ? OrderedJson(m.kernel(number)->name) : OrderedJson(nullptr);
    if (piece_of[number] >= 0) j["piece"] = piece_of[number];
    if (const auto it = m.plan().workspace_of.find(n); it != m.plan().workspace_of.end()) {
      const PlannedStorage& s = m.plan().storages[it->second];
      j["workspace"] = {{"offset", s.offset}, {"bytes", s.bytes}};
    }
    nodes.push_back(std::move(j));
  }
  return nodes;
}

OrderedJson memory_json(const CompiledModel& m) {
  std::map<const PlannedStorage*, const Node*> workspace;
  for (auto& [node, index] : m.plan().workspace_of) workspace[&m.plan().storages[index]] = node;
  OrderedJson j;
  j["arena_bytes"] = m.plan().arena_bytes;
  j["storages"] = OrderedJson::array();
  for (const PlannedStorage& s : m.plan().storages) {
    OrderedJson row;
    if (s.root)
      row["value"] = s.root->id;
    else
      row["workspace_of"] = workspace.at(&s)->result()->id;
    row["first_node"] = s.first;
    row["last_node"] = s.last;
    row["offset"] = s.offset;
    row["bytes"] = s.bytes;
    j["storages"].push_back(std::move(row));
  }
  return j;
}

std::string escaped(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string folded_words(const std::vector<std::string>& words) {
  constexpr size_t kLongest = 40;  // words of a repeated stretch
  std::string out;
  for (size_t i = 0; i < words.size();) {
    // The stretch that, repeated from here on, covers the most.
    size_t period = 1, covered = 1;
    for (size_t p = 1; p <= kLongest && i + 2 * p <= words.size(); ++p) {
      size_t end = i + p;
      while (end < words.size() && words[end] == words[end - p]) ++end;
      const size_t whole = (end - i) / p * p;
      if (whole >= 2 * p && whole > covered) {
        period = p;
        covered = whole;
      }
    }
    std::string stretch;
    for (size_t k = 0; k < period; ++k) stretch += (k ? " " : "") + words[i + k];
    if (!out.empty()) out += ' ';
    if (covered == period)
      out += stretch;
    else
      out += fmt::format("{}*{}", period == 1 ? stretch : "(" + stretch + ")", covered / period);
    i += covered;
  }
  return out;
}

Result<PhaseView> view_of_phase(engine::Engine& e, const std::string& phase) {
  PhaseView v{phase, e.runner(phase), e.passes(phase)};
  if (!v.runner && phase == engine::kPhases[engine::kVerifyPhase].name)
    return error(Code::NotFound, "there is no graph of steps with drafts: {}",
                 e.max_verify_rows() > 1 ? "a draft is a row more of decode's graph" : e.verify_refusal());
  if (!v.runner) return error(Code::Internal, "there is no phase {}", phase);
  v.program = &v.runner->model();
  return v;
}

std::string ops_of(const CompiledModel& m, const Piece& piece) {
  std::vector<std::string> ops;
  for (const Thunk& t : piece.thunks) ops.push_back(m.node(t.node)->op->name);
  return folded_words(ops);
}

Result<GraphDoc> doc_of(const CompiledModel& model) { return doc_from_text(print(model.graph())); }

OrderedJson passes_json(const PipelineReport& report) {
  OrderedJson out = OrderedJson::array();
  auto remarks = [](const std::vector<PassRemark>& list) {
    OrderedJson j = OrderedJson::array();
    for (const PassRemark& r : list) j.push_back({{"at", fmt::format("%{}", r.at)}, {"reason", r.reason}});
    return j;
  };
  for (const PassReport& p : report.passes) {
    OrderedJson row{{"name", p.name}, {"tried", p.tried}, {"matched", p.matched}, {"refused", remarks(p.refused)}};
    if (p.refusals > static_cast<int64_t>(p.refused.size())) row["refusals"] = p.refusals;
    if (!p.applied.empty()) row["applied"] = remarks(p.applied);
    if (!p.skipped.empty()) row["skipped"] = p.skipped;
    row["seconds"] = p.seconds;
    row["nodes"] = {p.nodes_before, p.nodes_after};
    out.push_back(std::move(row));
  }
  return out;
}

std::string heads_of(const CompiledModel& m, const Piece& piece) {
  if (piece.heads == kAllHeads) return "";
  std::vector<std::string_view> names;
  for (size_t i = 0; i < m.heads().size(); ++i)
    if ((piece.heads & (HeadMask{1} << i)) != 0) names.push_back(m.heads()[i]);
  return fmt::format("{}", fmt::join(names, ", "));
}

size_t launches_of_step(const CompiledModel& m) { return m.launches(engine::head_of(engine::StepOutput::Logits)); }

OrderedJson pieces_json(const CompiledModel& m) {
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < m.pieces().size(); ++i) {
    const Piece& p = m.pieces()[i];
    OrderedJson row{{"index", i}, {"captured", p.captured}, {"ops", ops_of(m, p)}, {"kernels", p.thunks.size()}};
    if (p.heads != kAllHeads) row["head"] = heads_of(m, p);
    if (const DeviceGraph* graph = m.graph_of(p)) row["barriers"] = graph->stats().barriers;
    out.push_back(std::move(row));
  }
  return out;
}

OrderedJson dump_json(engine::Engine& e, const PhaseView& v) {
  const CompiledModel& m = v.model();
  const DeviceInfo& device = e.device().info();
  OrderedJson j;
  j["format"] = "reprise-graph-1";
  j["graph"] = m.graph().name();
  j["phase"] = v.phase;
  j["model"] = e.options().model_path;
  j["device"] = {{"kind", device_kind_name(device.kind)},
                 {"name", device.name},
                 {"isa", device.isa},
                 {"order", device.order},
                 {"ranks", device.threads}};
  j["mode"] = phase_mode(v.runner);
  j["size"] = v.runner->largest();
  j["sizes"] = v.runner->sizes();
  j["launches"] = launches_of_step(m);
  j["symbols"] = OrderedJson::array();
  for (const Symbol& s : m.graph().symbols()) j["symbols"].push_back({{"name", s.name}, {"bound", s.bound}});
  const auto doc = doc_of(m);
  CHECK(doc.is_ok(), "our own IR text: {}", doc.status().message());
  j["nodes"] = nodes_json(m, *doc);
  j["outputs"] = OrderedJson::array();
  for (const GraphOutput& o : m.graph().outputs()) j["outputs"].push_back({{"name", o.name}, {"value", o.value->id}});
  j["pieces"] = pieces_json(m);
  j["memory"] = memory_json(m);
  j["passes"] = passes_json(*v.passes);
  return j;
}

std::string dump_dot(const CompiledModel& m) {
  const Graph& g = m.graph();
  const auto doc = doc_of(m);
  CHECK(doc.is_ok(), "our own IR text: {}", doc.status().message());
  std::map<int, std::string> clusters;
  std::string edges;
  uint32_t number = 0;
  for (const Node* n = g.first(); n; n = n->next, ++number) {
    if (n->is_param()) continue;
    // By its first result; a hint, which has none, by its number.
    const std::string id = n->out.empty() ? fmt::format("h{}", number) : fmt::format("n{}", n->result()->id);
    std::string label = n->op->name;
    if (n->stream != kMainStream) label += fmt::format(" @{}", stream_name(n->stream));
    for (const Node* w : n->waits) edges += fmt::format("  n{} -> {} [style=dotted];\n", w->result()->id, id);
    if (n->is_input()) label += "\\n" + escaped(n->attrs.text("name"));
    for (const Value* v : n->in) {
      if (v->def->is_param())
        label += "\\n" + escaped(v->def->attrs.text("name"));
      else
        edges += fmt::format("  n{} -> {} [label=\"{}\"];\n", v->def->result()->id, id, escaped(print(g, v->type)));
    }
    const char* look = n->is_input()                               ? ", shape=ellipse"
                       : m.kernel(number) && n->made_by != "trace" ? ", style=filled, fillcolor=\"#d9ead3\""
                       : m.kernel(number)                          ? ""
                                                                   : ", style=dashed";
    clusters[doc->nodes[number].layer] += fmt::format("    {} [label=\"{}\"{}];\n", id, label, look);
  }
  std::string out = fmt::format(
      "// filled: made by a pass; dashed: a view, no kernel; dotted: a wait for another stream\n"
      "digraph \"{}\" {{\n  node [shape=box, fontname=monospace, fontsize=10];\n  edge [fontname=monospace, "
      "fontsize=8];\n",
      escaped(g.name()));
  for (const auto& [layer, nodes] : clusters)
    out += layer == DocNode::kNoLayer
               ? nodes
               : fmt::format("  subgraph cluster_{} {{\n    label=\"layer {}\";\n{}  }}\n", layer, layer, nodes);
  for (const GraphOutput& o : g.outputs())
    out += fmt::format("  out_{0} [label=\"{0}\", shape=ellipse];\n  n{1} -> out_{0};\n", o.name,
                       o.value->def->result()->id);
  return out + edges + "}\n";
}

}  // namespace reprise::see
