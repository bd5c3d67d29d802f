// GraphDiff as text and JSON.
#include <algorithm>

#include "see/graph_diff.h"

namespace reprise::see {
namespace {

constexpr size_t kLongest = 150;

std::string shortened(const std::string& line) {
  return line.size() <= kLongest ? line : line.substr(0, kLongest - 3) + "...";
}

// Which lines lie within `context` of a difference.
std::vector<bool> near_differences(const std::vector<DiffLine>& lines, int context) {
  std::vector<bool> near(lines.size(), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].tag == ' ') continue;
    const size_t first = i >= static_cast<size_t>(context) ? i - static_cast<size_t>(context) : 0;
    for (size_t j = first; j < std::min(lines.size(), i + static_cast<size_t>(context) + 1); ++j) near[j] = true;
  }
  return near;
}

OrderedJson texts(const DiffSection& s, char tag) {
  OrderedJson out = OrderedJson::array();
  for (const DiffLine& l : s.lines)
    if (l.tag == tag) out.push_back({{"value", l.id}, {"node", l.text}});
  return out;
}

}  // namespace

std::string diff_text(const GraphDiff& d, int context) {
  if (d.same()) return fmt::format("the graphs are the same: {} nodes\n", d.nodes_a);
  std::string out = fmt::format("{:<28}{:>8}{:>8}\n", "nodes", d.nodes_a, d.nodes_b);
  for (const OpCount& c : d.ops)
    if (c.a != c.b) out += fmt::format("  {:<26}{:>8}{:>8}  {:+}\n", c.op, c.a, c.b, c.b - c.a);
  for (const DiffNote& n : d.notes) out += fmt::format("{} {}\n", n.tag, n.text);
  size_t same_sections = 0;
  for (const DiffSection& s : d.sections) {
    if (s.same()) {
      same_sections += s.parts.size();
      continue;
    }
    out += fmt::format("\n@@ {}: {} removed, {} added, {} changed, {} with other operands @@\n", s.title(), s.removed,
                       s.added, s.changed, s.rewired);
    const auto near = near_differences(s.lines, context);
    for (size_t i = 0; i < s.lines.size(); ++i) {
      if (near[i])
        out += fmt::format("{} {}\n", s.lines[i].tag, shortened(s.lines[i].text));
      else if (i == 0 || near[i - 1])
        out += "  ...\n";
    }
  }
  if (same_sections)
    out += fmt::format("\n{} other part{} of the model: the same\n", same_sections, same_sections > 1 ? "s" : "");
  return out;
}

OrderedJson diff_json(const GraphDiff& d) {
  OrderedJson j;
  j["same"] = d.same();
  j["nodes"] = {d.nodes_a, d.nodes_b};
  j["ops"] = OrderedJson::array();
  for (const OpCount& c : d.ops)
    if (c.a != c.b) j["ops"].push_back({{"op", c.op}, {"a", c.a}, {"b", c.b}});
  j["other"] = OrderedJson::array();
  for (const DiffNote& n : d.notes)
    j["other"].push_back({{"change", n.tag == '-' ? "removed" : n.tag == '+' ? "added" : "changed"}, {"what", n.text}});
  j["parts"] = OrderedJson::array();
  for (const DiffSection& s : d.sections)
    if (!s.same())
      j["parts"].push_back({{"part", s.title()},
                            {"layers", s.parts},
                            {"removed", s.removed},
                            {"added", s.added},
                            {"changed", s.changed},
                            {"rewired", s.rewired},
                            {"minus", texts(s, '-')},
                            {"plus", texts(s, '+')}});
  return j;
}

}  // namespace reprise::see
