// StepProfile as a table, as JSON and as a Chrome trace.
#include <algorithm>
#include <cmath>
#include <map>

#include "graph/text.h"
#include "see/critical_path.h"

namespace reprise::see {
namespace {

// Two decimals of a percent, three digits of a time are more than repeats agree on.
double rounded(double v, double unit) { return std::round(v / unit) * unit; }

OrderedJson share_json(const std::optional<double>& share) {
  return share ? OrderedJson(rounded(*share, 0.01)) : OrderedJson(nullptr);
}

std::string shapes_of(const Graph& g, const Node& n) {
  std::string out;
  for (const Value* v : n.in) out += (out.empty() ? "" : ", ") + print(g, v->type);
  out += " -> ";
  for (size_t i = 0; i < n.out.size(); ++i) out += (i ? ", " : "") + print(g, n.out[i]->type);
  return out;
}

// The first parameter of a node, which says best which part of the model it is.
std::string where_of(const Node& n) {
  for (const Value* v : n.in)
    if (v->def->is_source()) return v->def->attrs.text("name");
  return {};
}

OrderedJson event(const char* kind, const std::string& name, int process, int track, int64_t begin_ns, int64_t end_ns) {
  return {{"name", name},
          {"cat", kind},
          {"ph", "X"},
          {"pid", process},
          {"tid", track},
          {"ts", static_cast<double>(begin_ns) / 1e3},
          {"dur", static_cast<double>(end_ns - begin_ns) / 1e3}};
}

// The number of what it makes; null of what makes nothing.
OrderedJson value_of(const Node& n) { return n.out.empty() ? OrderedJson(nullptr) : OrderedJson(n.result()->id); }

OrderedJson wait_event(const TrackEvent& t, const CompiledModel& model, int process) {
  const TraceEvent& e = t.event;
  OrderedJson wait = event("wait", "wait", process, t.track, e.begin_ns, e.end_ns);
  wait["cname"] = "grey";
  if (e.node == TraceEvent::kNoNode)
    wait["args"] = {{"for", "the other threads to finish"}};
  else
    wait["args"] = {{"for", fmt::format("{} {}", node_label(*model.node(e.node)), model.node(e.node)->op->name)}};
  return wait;
}

OrderedJson kernel_event(const StepProfile& p, const NodeTime& time, const TrackEvent& t, const CompiledModel& model,
                         int process) {
  const TraceEvent& e = t.event;
  const Node& n = *model.node(e.node);
  // The second part of a collective is where ranks meet.
  const bool meeting = e.part > 0 && n.op->has(op_trait::kCollective);
  OrderedJson one = meeting ? event("meeting", fmt::format("{}: wait for other ranks", n.op->name), process, t.track,
                                    e.begin_ns, e.end_ns)
                            : event("kernel", n.op->name, process, t.track, e.begin_ns, e.end_ns);
  if (meeting) one["cname"] = "grey";
  OrderedJson args{{"node", node_label(n)}, {"number", e.node}, {"op", n.op->name}};
  if (e.part) args["phase"] = e.part;
  if (const KernelEntry* k = model.kernel(e.node)) args["kernel"] = k->name;
  if (const std::string where = where_of(n); !where.empty()) args["uses"] = where;
  args["shapes"] = shapes_of(model.graph(), n);
  args["bytes"] = time.cost.bytes();
  if (time.cost.flops > 0) args["flops"] = time.cost.flops;
  args["pct_of_limit"] = share_json(p.share(time.cost, time.span_s));
  one["args"] = std::move(args);
  return one;
}

void add_process(OrderedJson& events, const StepProfile& p, const CompiledModel& model, int process,
                 const std::string& title) {
  const int host = p.tracks;
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", title}}}});
  for (int t = 0; t <= p.tracks; ++t)
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", process},
                      {"tid", t},
                      {"args", {{"name", t == host ? std::string("step") : fmt::format("thread {}", t)}}}});
  OrderedJson step = event("step", fmt::format("{} step", p.options.phase), process, host, p.begin_ns, p.end_ns);
  step["args"] = {{"batch", p.options.batch}, {"context", p.options.context}, {"mode", graph_mode_name(model.mode())}};
  events.push_back(std::move(step));
  std::map<uint32_t, const NodeTime*> times;
  for (const NodeTime& n : p.nodes) times[n.node] = &n;
  for (const TrackEvent& t : p.events)
    events.push_back(t.event.kind == TraceEvent::Kind::Wait
                         ? wait_event(t, model, process)
                         : kernel_event(p, *times.at(t.event.node), t, model, process));
}

}  // namespace

OrderedJson chrome_trace(const StepProfile& p, const CompiledModel& model, const std::string& title) {
  OrderedJson events = OrderedJson::array();
  add_process(events, p, model, 1, title);
  OrderedJson j;
  j["displayTimeUnit"] = "ns";
  j["otherData"] = profile_json(p, model);
  j["otherData"].erase("nodes");
  j["traceEvents"] = std::move(events);
  return j;
}

OrderedJson chrome_trace(std::span<const RankProfile> ranks, const std::string& title) {
  OrderedJson events = OrderedJson::array(), figures = OrderedJson::array();
  for (const RankProfile& r : ranks) {
    add_process(events, r.profile, *r.model, r.rank + 1, fmt::format("rank {}: {}", r.rank, title));
    figures.push_back(profile_json(r.profile, *r.model));
    figures.back().erase("nodes");
  }
  OrderedJson j;
  j["displayTimeUnit"] = "ns";
  j["otherData"]["ranks"] = std::move(figures);
  j["traceEvents"] = std::move(events);
  return j;
}

OrderedJson profile_json(const StepProfile& p, const CompiledModel& model) {
  OrderedJson j;
  j["phase"] = p.options.phase;
  j["batch"] = p.options.batch;
  j["context"] = p.options.context;
  j["repeat"] = p.options.repeat;
  j["mode"] = graph_mode_name(model.mode());
  j["ranks"] = p.tracks;
  j["step_us"] = p.step_s * 1e6;
  j["timed_step_us"] = p.timed_step_s * 1e6;
  j["busy_us"] = p.busy_s() * 1e6;
  j["wait_us"] = p.wait_s() * 1e6;
  j["host_us"] = p.host_s * 1e6;
  j["limits"] = {{"read_GBps", p.machine.read_GBps_all},
                 {"fp32_gflops", p.machine.fp32_gflops},
                 {"other_load", rounded(p.machine.other_load, 0.01)}};
  if (p.machine.bf16_gflops) j["limits"]["bf16_gflops"] = *p.machine.bf16_gflops;
  if (const std::string warning = p.warning(); !warning.empty()) j["warnings"] = {warning};
  j["ops"] = OrderedJson::array();
  for (const OpTime& o : by_op(p, model)) {
    j["ops"].push_back({{"op", o.op},
                        {"count", o.count},
                        {"busy_us", o.busy_s * 1e6},
                        {"wait_us", o.wait_s * 1e6},
                        {"span_us", o.span_s * 1e6},
                        {"bytes", o.bytes},
                        {"flops", o.flops},
                        {"pct_of_limit", share_json(o.share)}});
    if (o.collective) j["ops"].back()["meet_us"] = o.meet_s * 1e6;
  }
  const CriticalPath path = critical_path(p, model);
  j["critical_path"] = path_json(path, model);
  j["nodes"] = OrderedJson::array();
  for (size_t i = 0; i < p.nodes.size(); ++i) {
    const NodeTime& n = p.nodes[i];
    j["nodes"].push_back({{"number", n.node},
                          {"value", value_of(*model.node(n.node))},
                          {"op", model.node(n.node)->op->name},
                          {"busy_us", n.busy_s * 1e6},
                          {"wait_us", n.wait_s * 1e6},
                          {"span_us", n.span_s * 1e6},
                          {"bytes", n.cost.bytes()},
                          {"flops", n.cost.flops},
                          {"slack_us", path.slack_s[i] * 1e6},
                          {"pct_of_limit", share_json(p.share(n.cost, n.span_s))}});
  }
  return j;
}

std::string profile_text(const StepProfile& p, const CompiledModel& model) {
  std::string out =
      fmt::format("{} step, batch {}, context {}, {}: {:.1f} us ({:.1f} us when timed), {} launches on {} thread{}\n\n",
                  p.options.phase, p.options.batch, p.options.context, graph_mode_name(model.mode()), p.step_s * 1e6,
                  p.timed_step_s * 1e6, p.nodes.size(), p.tracks, p.tracks == 1 ? "" : "s");
  out += fmt::format("{:<28}{:>6}{:>11}{:>8}{:>10}{:>11}{:>9}{:>10}\n", "op", "count", "busy us", "%", "wait us", "MB",
                     "GB/s", "% limit");
  const double step = std::max(p.timed_step_s, 1e-12);
  for (const OpTime& o : by_op(p, model)) {
    out += fmt::format("{:<28}{:>6}{:>11.1f}{:>8.1f}{:>10.1f}{:>11.3f}{:>9.1f}{:>10}\n", o.op, o.count, o.busy_s * 1e6,
                       100 * o.busy_s / step, o.wait_s * 1e6, o.bytes / 1e6,
                       o.span_s > 0 ? o.bytes / o.span_s / 1e9 : 0, share_text(o.has_limit, o.share));
  }
  out += fmt::format("{:<28}{:>6}{:>11.1f}{:>8.1f}{:>10.1f}\n{:<34}{:>11.1f}{:>8.1f}\n", "all kernels", "",
                     p.busy_s() * 1e6, 100 * p.busy_s() / step, p.wait_s() * 1e6, "host, outside replays",
                     p.host_s * 1e6, 100 * p.host_s / step);
  double collectives = 0, meetings = 0;
  for (const OpTime& o : by_op(p, model)) {
    collectives += o.collective ? o.busy_s : 0;
    meetings += o.meet_s;
  }
  if (collectives > 0)
    out += fmt::format("{:<34}{:>11.1f}{:>8.1f}\n{:<34}{:>11.1f}{:>8.1f}\n", "of the kernels, collectives",
                       collectives * 1e6, 100 * collectives / step, "of these, waiting for other ranks", meetings * 1e6,
                       100 * meetings / step);
  out += path_text(critical_path(p, model));
  out += fmt::format(
      "busy: mean over the threads; wait: for the other threads before it; %: of the step; limit: weights and KV at "
      "{:.1f} "
      "GB/s,\nor products at the peak; cache: works on what the caches hold\n",
      p.machine.read_GBps_all);
  if (const std::string warning = p.warning(); !warning.empty()) out += "warning: " + warning + "\n";
  return out;
}

}  // namespace reprise::see
