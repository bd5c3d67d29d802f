// The pictures of the HTML report: memory over time, and the threads over one step.
#include <algorithm>
#include <map>

#include "graph/text.h"
#include "see/html_report.h"

namespace reprise::see {
namespace {

constexpr double kWidth = 1260;

std::string rect(double x, double y, double w, double h, std::string_view fill, std::string_view title,
                 std::string_view more = {}) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}><title>{}</title></rect>\n", x,
      y, w, h, fill, more, escape_html(title));
}

// Launches in order: what runs is the clock of the memory picture, parameters and views take no time.
struct Launches {
  std::vector<uint32_t> nodes;

  explicit Launches(const CompiledModel& m) {
    for (const Piece& p : m.pieces())
      for (const Thunk& t : p.thunks) nodes.push_back(t.node);
  }
  // The first launch at or after the node.
  size_t from(int64_t node) const {
    return static_cast<size_t>(std::lower_bound(nodes.begin(), nodes.end(), node) - nodes.begin());
  }
  // One beyond the last launch at or before the node.
  size_t until(int64_t node) const {
    return static_cast<size_t>(std::upper_bound(nodes.begin(), nodes.end(), node) - nodes.begin());
  }
};

// Where a new layer begins, by launch.
std::vector<std::pair<size_t, int>> layer_borders(const CompiledModel& m, const Launches& launches) {
  std::vector<std::pair<size_t, int>> out;
  const auto doc = doc_of(m);
  int last = DocNode::kNoLayer;
  for (size_t i = 0; doc.is_ok() && i < launches.nodes.size(); ++i) {
    const int layer = doc->nodes[launches.nodes[i]].layer;
    if (layer > last) out.emplace_back(i, last = layer);
  }
  return out;
}

}  // namespace

size_t usual_height(const MemoryPlan& plan) {
  std::vector<size_t> tops;
  for (const PlannedStorage& s : plan.storages) tops.push_back(s.offset + s.bytes);
  if (tops.empty()) return plan.arena_bytes;
  const auto most = tops.begin() + static_cast<std::ptrdiff_t>((tops.size() - 1) * 95 / 100);
  std::nth_element(tops.begin(), most, tops.end());
  return *most > 0 && *most < plan.arena_bytes / 2 ? *most : plan.arena_bytes;
}

std::string memory_picture(const CompiledModel& m, size_t height) {
  const MemoryPlan& plan = m.plan();
  const Launches launches(m);
  const size_t count = launches.nodes.size();
  if (plan.arena_bytes == 0 || count == 0) return "<p>Nothing is planned.</p>\n";
  constexpr double kLeft = 74, kTop = 16, kHeight = 380;
  const double w = (kWidth - kLeft - 8) / static_cast<double>(count);
  const double h = kHeight / static_cast<double>(height);
  std::map<const PlannedStorage*, const Node*> workspace;
  for (auto& [node, index] : plan.workspace_of) workspace[&plan.storages[index]] = node;
  std::vector<double> live(count, 0);
  std::string out = fmt::format("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\" aria-label=\"memory plan\">\n",
                                kWidth, kTop + kHeight + 34);
  for (int i = 0; i <= 4; ++i) {
    const double y = kTop + kHeight * (1 - i / 4.0);
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/><text x=\"{3}\" y=\"{4}\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, kWidth - 8, y, kLeft - 6, y + 4, bytes_in_words(static_cast<double>(height) * i / 4));
  }
  for (const PlannedStorage& s : plan.storages) {
    const size_t from = std::min(launches.from(s.first), count - 1), until = std::max(launches.until(s.last), from + 1);
    for (size_t i = from; i < std::min(until, count); ++i) live[i] += static_cast<double>(s.bytes);
    const Node& n = s.root ? *s.root->def : *workspace.at(&s);
    const std::string what = s.root ? fmt::format("%{} {}: {}", s.root->id, n.op->name, print(m.graph(), s.root->type))
                                    : fmt::format("workspace of {} {}", node_label(n), n.op->name);
    if (s.offset >= height) continue;
    const size_t top = std::min(s.offset + s.bytes, height);
    out += rect(kLeft + w * static_cast<double>(from), kTop + kHeight - h * static_cast<double>(top),
                w * static_cast<double>(until - from), std::max(0.4, h * static_cast<double>(top - s.offset)),
                op_colour(n.op->name),
                fmt::format("{}\n{} at offset {}, alive from node {} to {}", what,
                            bytes_in_words(static_cast<double>(s.bytes)), s.offset, s.first, s.last),
                s.root ? "" : " fill-opacity=\"0.45\"");
  }
  std::string points;
  for (size_t i = 0; i < count; ++i)
    for (int side = 0; side < 2; ++side)
      points += fmt::format("{:.1f},{:.1f} ", kLeft + w * static_cast<double>(i + static_cast<size_t>(side)),
                            kTop + kHeight - h * std::min(live[i], static_cast<double>(height)));
  out += fmt::format("<polyline class=\"live\" points=\"{}\"/>\n", points);
  int previous = -10;
  for (const auto& [launch, layer] : layer_borders(m, launches)) {
    const double x = kLeft + w * static_cast<double>(launch);
    out += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n", x,
                       kTop + kHeight, kTop + kHeight + 6);
    if (static_cast<int>(x) - previous < 24) continue;
    previous = static_cast<int>(x);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", x, kTop + kHeight + 17, layer);
  }
  return out +
         fmt::format("<text x=\"{}\" y=\"{}\">layer, over {} launches; the line is what is alive</text>\n</svg>\n",
                     kLeft, kTop + kHeight + 31, count);
}

// The bars stretch with the picture's width, the text does not.
std::string timeline_picture(const StepProfile& p, const CompiledModel& m, const CriticalPath& path) {
  constexpr double kRow = 34, kText = 22;
  const double total = std::max<double>(1, static_cast<double>(p.end_ns - p.begin_ns));
  const double w = kWidth / total, height = kRow * p.tracks;
  std::string out = fmt::format(
      "<svg style=\"width:100%;height:{0}px\" role=\"img\" aria-label=\"one step, thread by thread\">\n"
      "<svg width=\"100%\" height=\"{1}\" viewBox=\"0 0 {2} {1}\" preserveAspectRatio=\"none\">\n",
      height + kText, height, kWidth);
  for (const TrackEvent& e : p.events) {
    const double x = w * static_cast<double>(e.event.begin_ns - p.begin_ns);
    const double length = w * static_cast<double>(e.event.end_ns - e.event.begin_ns);
    const double us = static_cast<double>(e.event.end_ns - e.event.begin_ns) / 1e3;
    const bool wait = e.event.kind == TraceEvent::Kind::Wait;
    if (wait && length < 0.02) continue;  // would not be seen
    const Node* n = e.event.node == TraceEvent::kNoNode ? nullptr : m.node(e.event.node);
    const std::string name = n ? fmt::format("{} {}", node_label(*n), n->op->name) : "the other threads to finish";
    const double top = kRow * e.track;
    if (wait)
      out += rect(x, top + 10, length, kRow - 26, "#9aa2ad",
                  fmt::format("thread {}: wait {:.2f} us for {}", e.track, us, name));
    else
      out += rect(x, top, std::max(length, 0.03), kRow - 6, op_colour(n->op->name),
                  fmt::format("thread {}: {} {:.2f} us", e.track, name, us));
  }
  for (const size_t i : path.events) {
    const TrackEvent& e = p.events[i];
    out += rect(w * static_cast<double>(e.event.begin_ns - p.begin_ns), kRow * e.track + kRow - 5,
                std::max(0.03, w * static_cast<double>(e.event.end_ns - e.event.begin_ns)), 3, "#d9432f",
                "on the critical path");
  }
  out += "</svg>\n";
  for (int i = 0; i <= 8; ++i)
    out += fmt::format("<text{} x=\"{}%\" y=\"{:.0f}\" text-anchor=\"{}\">{:.1f} us</text>\n",
                       i % 2 == 1 ? " class=\"odd\"" : "", i * 12.5, height + 14,
                       i == 0   ? "start"
                       : i == 8 ? "end"
                                : "middle",
                       total * i / 8e3);
  return out + "</svg>\n";
}

}  // namespace reprise::see
