// The tables of the HTML report: ops by time, nodes, and passes with what they changed.
#include <algorithm>
#include <map>

#include "graph/text.h"
#include "see/graph_diff.h"
#include "see/html_report.h"

namespace reprise::see {
namespace {

std::string swatch(std::string_view op) {
  return fmt::format("<i class=\"swatch\" style=\"background:{}\"></i>", op_colour(op));
}

std::string listing(const DiffSection& s) {
  std::string out = "<pre>";
  for (const DiffLine& l : s.lines)
    out += fmt::format("<span{}>{} {}</span>",
                       l.tag == '+'   ? " class=\"p\""
                       : l.tag == '-' ? " class=\"m\""
                                      : "",
                       l.tag, escape_html(l.text));
  return out + "</pre>\n";
}

// A whole graph, with what is different from another one marked; what did not change is folded.
std::string sections(const GraphDiff& d, bool open_changed) {
  std::string out;
  if (!d.notes.empty()) {
    out += "<pre>";
    for (const DiffNote& n : d.notes)
      out += fmt::format("<span class=\"{}\">{} {}</span>", n.tag == '-' ? "m" : "p", n.tag, escape_html(n.text));
    out += "</pre>\n";
  }
  for (const DiffSection& s : d.sections) {
    const std::string count = s.same() ? fmt::format("{} nodes", s.lines.size())
                                       : fmt::format("{} removed, {} added, {} changed, {} with other operands",
                                                     s.removed, s.added, s.changed, s.rewired);
    out += fmt::format("<details{}><summary>{} <span class=\"soft\">{}</span></summary>\n{}</details>\n",
                       open_changed && !s.same() ? " open=\"open\"" : "", escape_html(s.title()), count, listing(s));
  }
  return out;
}

Result<std::string> whole_graph(const std::string& text) {
  ASSIGN_OR_RETURN(const GraphDoc doc, doc_from_text(text));
  return sections(diff_graphs(doc, doc), false);
}

std::string remarks(std::string_view title, const std::vector<PassRemark>& list, int64_t total) {
  if (list.empty()) return {};
  // The same reason at many nodes is one line.
  std::map<std::string, std::vector<uint32_t>> by_reason;
  std::vector<const std::string*> order;
  for (const PassRemark& r : list) {
    auto [it, fresh] = by_reason.try_emplace(r.reason);
    if (fresh) order.push_back(&it->first);
    it->second.push_back(r.at);
  }
  std::string out = fmt::format("<div>{} ({})</div><ul class=\"why\">\n", title, total);
  for (const std::string* reason : order) {
    const auto& at = by_reason[*reason];
    std::string places;
    for (size_t i = 0; i < std::min<size_t>(at.size(), 4); ++i) places += fmt::format("{}%{}", i ? ", " : "", at[i]);
    if (at.size() > 4) places += fmt::format(" and {} more", at.size() - 4);
    out += fmt::format("<li><code>{}</code> {}</li>\n", places, escape_html(*reason));
  }
  return out + "</ul>\n";
}

double seconds_of(const StepProfile& p) { return static_cast<double>(p.end_ns - p.begin_ns) * 1e-9; }

// How much longer a launch could take; nothing for those of the chain itself.
std::string slack_text(const StepProfile& p, const CriticalPath& path, const NodeTime& time) {
  const double slack = path.slack_s[static_cast<size_t>(&time - p.nodes.data())];
  return slack > 1e-9 ? fmt::format("{:.1f}", slack * 1e6) : "";
}

}  // namespace

std::string op_table(const StepProfile& p, const CompiledModel& model) {
  std::string out =
      "<table><tr><th>op</th><th class=\"n\">count</th><th>share of the step</th><th class=\"n\">%</th><th "
      "class=\"n\">busy us</th>"
      "<th class=\"n\">wait us</th><th class=\"n\">MB</th><th class=\"n\">GB/s</th><th class=\"n\">GFLOP/s</th>"
      "<th class=\"n\">% of limit</th></tr>\n";
  const double step = std::max(p.timed_step_s, 1e-12);
  for (const OpTime& o : by_op(p, model)) {
    const double span = std::max(o.span_s, 1e-12);
    out += fmt::format(
        "<tr><td class=\"w\">{}{}</td><td class=\"n\">{}</td><td class=\"bar\"><i style=\"width:{:.1f}%\"></i><i "
        "class=\"w\" "
        "style=\"width:{:.1f}%\"></i></td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f}</td><td "
        "class=\"n\">{:.1f}</td>"
        "<td class=\"n\">{:.3f}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        swatch(o.op), escape_html(o.op), o.count, 95 * o.busy_s / step, 95 * o.wait_s / step, 100 * o.busy_s / step,
        o.busy_s * 1e6, o.wait_s * 1e6, o.bytes / 1e6, o.bytes / span / 1e9,
        o.flops > 0 ? fmt::format("{:.1f}", o.flops / span / 1e9) : "", share_text(o.has_limit, o.share));
  }
  return out + "</table>\n";
}

std::string path_table(const StepProfile& p, const CriticalPath& path) {
  std::string out =
      "<table><tr><th>on the critical path</th><th class=\"n\">events</th><th>share of the step</th><th "
      "class=\"n\">us</th><th class=\"n\">%</th></tr>\n";
  const double step = std::max(seconds_of(p), 1e-12);
  const auto row = [&](const std::string& what, const std::string& events, double seconds) {
    out += fmt::format(
        "<tr><td class=\"w\">{}</td><td class=\"n\">{}</td><td class=\"bar\"><i style=\"width:{:.1f}%\"></i></td>"
        "<td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f}</td></tr>\n",
        what, events, 95 * seconds / step, seconds * 1e6, 100 * seconds / step);
  };
  for (const OpOnPath& o : path.ops) row(swatch(o.op) + escape_html(o.op), fmt::format("{}", o.events), o.seconds);
  row("barriers: from the last thread's end to the next begin", "", path.barrier_s);
  row("between two events of a thread", "", path.gap_s);
  row("outside replays", "", path.host_s);
  return out + "</table>\n";
}

Result<std::string> node_table(const CompiledModel& m, const StepProfile* profile, const CriticalPath* path) {
  ASSIGN_OR_RETURN(const GraphDoc doc, doc_of(m));
  std::map<uint32_t, const NodeTime*> times;
  if (profile)
    for (const NodeTime& n : profile->nodes) times[n.node] = &n;
  struct Body {
    std::string title, rows{};
    int nodes = 0;
    double busy = 0;
  };
  std::vector<Body> bodies;
  int last = INT32_MIN;
  for (const Piece& piece : m.pieces())
    for (const Thunk& t : piece.thunks) {
      const Node& n = *m.node(t.node);
      const int layer = doc.nodes[t.node].layer;
      if (bodies.empty() || layer != last)
        bodies.push_back({layer != DocNode::kNoLayer ? fmt::format("layer {}", layer)
                          : bodies.empty()           ? "before the first layer"
                                                     : "outside the layers"});
      last = layer;
      Body& b = bodies.back();
      ++b.nodes;
      std::string in;
      for (const Value* v : n.in)
        in += (in.empty() ? "" : ", ") + (v->def->is_source() ? v->def->attrs.text("name") : fmt::format("%{}", v->id));
      if (n.stream != kMainStream) in += fmt::format(" @{}", stream_name(n.stream));
      for (size_t i = 0; i < n.waits.size(); ++i)
        in += fmt::format("{} %{}", i ? "," : " after", n.waits[i]->result()->id);
      b.rows += fmt::format(
          "<tr title=\"made by {}\"><td class=\"n mono\">{}</td><td class=\"w\">{}{}</td><td class=\"w mono\">{}</td>"
          "<td class=\"mono\">{}</td><td class=\"w mono\">{}</td>",
          escape_html(n.made_by), n.out.empty() ? "" : node_label(n), swatch(n.op->name), n.op->name,
          n.out.empty() ? fmt::format("{} bytes into the cache", n.attrs.integer("bytes"))
                        : print(m.graph(), n.result()->type),
          escape_html(in), escape_html(m.kernel(t.node) ? m.kernel(t.node)->name : ""));
      if (const auto it = times.find(t.node); it != times.end()) {
        const NodeTime& time = *it->second;
        b.busy += time.busy_s;
        b.rows += fmt::format(
            "<td class=\"n\">{:.2f}</td><td class=\"n\">{:.2f}</td><td class=\"n\">{}</td><td "
            "class=\"n\">{:.1f}</td><td "
            "class=\"n\">{}</td>",
            time.busy_s * 1e6, time.wait_s * 1e6, slack_text(*profile, *path, time),
            time.span_s > 0 ? time.cost.bytes() / time.span_s / 1e9 : 0,
            share_text(time.cost.has_limit(), profile->share(time.cost, time.span_s)));
      }
      b.rows += "</tr>\n";
    }
  std::string out =
      "<table id=\"nodes\"><thead><tr><th "
      "class=\"n\">value</th><th>op</th><th>result</th><th>operands</th><th>kernel</th>";
  if (profile)
    out +=
        "<th class=\"n\">busy us</th><th class=\"n\">wait us</th><th class=\"n\">slack us</th><th "
        "class=\"n\">GB/s</th><th "
        "class=\"n\">% of limit</th>";
  out += "</tr></thead>\n";
  int layers = 0;
  for (const Body& b : bodies) {
    const bool folded = b.title.starts_with("layer") && layers++ > 0;
    out += fmt::format(
        "<tbody class=\"layer{}\"><tr><td colspan=\"{}\">{} <span class=\"soft\">{} "
        "launches{}</span></td></tr>\n{}</tbody>\n",
        folded ? " folded" : "", profile ? 10 : 5, b.title, b.nodes,
        profile ? fmt::format(", {:.1f} us", b.busy * 1e6) : "", b.rows);
  }
  return out + "</table>\n";
}

Result<std::string> pass_list(const PipelineReport& report) {
  if (report.traced.empty()) return error(Code::Internal, "the graphs of the passes were not kept");
  std::string out =
      "<div class=\"passhead\"><span>pass</span><span>tried</span><span>matched</span><span>refused</span>"
      "<span>nodes</span><span>ms</span></div>\n";
  ASSIGN_OR_RETURN(GraphDoc before, doc_from_text(report.traced));
  ASSIGN_OR_RETURN(std::string graph, whole_graph(report.traced));
  out += fmt::format(
      "<details class=\"pass\"><summary><span>the graph as "
      "traced</span><span></span><span></span><span></span><span>{}</span>"
      "<span></span></summary>\n{}</details>\n",
      before.nodes.size(), graph);
  const std::string* last = &report.traced;
  for (const PassReport& p : report.passes) {
    std::string body = remarks("applied", p.applied, static_cast<int64_t>(p.applied.size())) +
                       remarks("refused", p.refused, p.refusals);
    if (!p.skipped.empty()) body += fmt::format("<p>{}</p>\n", escape_html(p.skipped));
    if (!p.graph.empty()) {
      ASSIGN_OR_RETURN(GraphDoc after, doc_from_text(p.graph));
      body += sections(diff_graphs(before, after), true);
      before = std::move(after);
      last = &p.graph;
    }
    if (body.empty()) body = "<p>Nothing to do in this graph.</p>\n";
    out += fmt::format(
        "<details "
        "class=\"pass{}\"><summary><span>{}{}</span><span>{}</span><span>{}</span><span>{}</span><span>{}</span>"
        "<span>{:.2f}</span></summary>\n{}</details>\n",
        p.graph.empty() ? " idle" : "", escape_html(p.name), p.required ? " <i class=\"tag\">required</i>" : "",
        p.tried, p.matched, p.refusals,
        p.nodes_before == p.nodes_after ? fmt::format("{}", p.nodes_after)
                                        : fmt::format("{} \xE2\x86\x92 {}", p.nodes_before, p.nodes_after),
        p.seconds * 1e3, body);
  }
  ASSIGN_OR_RETURN(graph, whole_graph(*last));
  return out +
         fmt::format(
             "<details class=\"pass\"><summary><span>the graph that runs</span><span></span><span></span><span></span>"
             "<span>{}</span><span></span></summary>\n{}</details>\n",
             before.nodes.size(), graph);
}

}  // namespace reprise::see
