#include "see/graph_diff.h"

#include <algorithm>
#include <map>
#include <set>

namespace reprise::see {
namespace {

constexpr size_t kNone = SIZE_MAX;

using Indices = std::vector<size_t>;

// Compute nodes by part of the model, in the order of the parts.
std::vector<std::pair<std::string, Indices>> parts_of(const GraphDoc& g) {
  std::map<int, Indices> layers;
  Indices start, end;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const DocNode& n = g.nodes[i];
    if (n.is_source()) continue;
    if (n.layer != DocNode::kNoLayer)
      layers[n.layer].push_back(i);
    else
      (layers.empty() ? start : end).push_back(i);
  }
  std::vector<std::pair<std::string, Indices>> out{{"start", std::move(start)}};
  for (auto& [layer, nodes] : layers) out.emplace_back(fmt::format("{}", layer), std::move(nodes));
  out.emplace_back("end", std::move(end));
  return out;
}

bool same_types(const DocNode& a, const DocNode& b) {
  return std::equal(a.out.begin(), a.out.end(), b.out.begin(), b.out.end(),
                    [](const DocValue& x, const DocValue& y) { return x.type == y.type; });
}

// What feeds a node, in words that do not depend on numbering.
std::vector<std::string> feeds(const GraphDoc& g, const DocNode& n) {
  std::vector<std::string> out;
  for (uint32_t id : n.in) {
    const DocNode& from = g.nodes[g.def.at(id).node];
    out.push_back(from.is_source() ? from.op + " " + from.name() : from.op);
  }
  return out;
}

class Differ {
 public:
  Differ(const GraphDoc& a, const GraphDoc& b)
      : a_(a), b_(b), b_of_a_(a.nodes.size(), kNone), a_of_b_(b.nodes.size(), kNone) {
    for (const DocNode& n : a.nodes) feeds_a_.push_back(feeds(a, n));
    for (const DocNode& n : b.nodes) feeds_b_.push_back(feeds(b, n));
  }

  GraphDiff run() {
    match_sources();
    const auto parts_a = parts_of(a_), parts_b = parts_of(b_);
    // The parts of both, in order: numbers between "start" and "end".
    std::vector<std::string> order;
    for (const auto* parts : {&parts_a, &parts_b})
      for (const auto& [part, nodes] : *parts)
        if (std::find(order.begin(), order.end(), part) == order.end()) order.push_back(part);
    std::stable_sort(order.begin(), order.end(), [](auto& x, auto& y) { return rank(x) < rank(y); });
    struct Walk {
      std::string part;
      std::vector<std::pair<size_t, size_t>> steps;
    };
    std::vector<Walk> walks;
    for (const std::string& part : order)
      walks.push_back({part, align(nodes_of(parts_a, part), nodes_of(parts_b, part))});
    for (const Walk& w : walks) {
      DiffSection s = describe(w.part, w.steps);
      if (s.lines.empty()) continue;
      // Only neighbours fold, and only layers.
      if (!d_.sections.empty() && rank(w.part) > 0 && rank(d_.sections.back().parts.back()) > 0 && w.part != "end" &&
          d_.sections.back().lines == s.lines)
        d_.sections.back().parts.push_back(w.part);
      else
        d_.sections.push_back(std::move(s));
    }
    count_ops();
    compare_notes();
    return std::move(d_);
  }

 private:
  static int rank(const std::string& part) {
    if (part == "start") return -1;
    if (part == "end") return INT32_MAX;
    return 1 + std::stoi(part);
  }
  static Indices nodes_of(const std::vector<std::pair<std::string, Indices>>& parts, const std::string& part) {
    for (const auto& [name, nodes] : parts)
      if (name == part) return nodes;
    return {};
  }

  void match_sources() {
    std::map<std::pair<std::string, std::string>, size_t> by_name;
    for (size_t i = 0; i < a_.nodes.size(); ++i)
      if (a_.nodes[i].is_source()) by_name[{a_.nodes[i].op, a_.nodes[i].name()}] = i;
    for (size_t i = 0; i < b_.nodes.size(); ++i) {
      if (!b_.nodes[i].is_source()) continue;
      if (const auto it = by_name.find({b_.nodes[i].op, b_.nodes[i].name()}); it != by_name.end()) pair(it->second, i);
    }
  }
  void pair(size_t a, size_t b) {
    b_of_a_[a] = b;
    a_of_b_[b] = a;
  }

  // How alike two nodes are; 0: not to be aligned.
  int likeness(size_t ia, size_t ib) const {
    const DocNode &a = a_.nodes[ia], &b = b_.nodes[ib];
    if (a.op != b.op) return 0;
    int score = 4;
    if (a.attrs == b.attrs) score += 2;
    if (same_types(a, b)) score += 1;
    const auto &fa = feeds_a_[ia], &fb = feeds_b_[ib];
    if (fa == fb) return score + 8;
    for (size_t i = 0; i < std::min(fa.size(), fb.size()); ++i) score += fa[i] == fb[i] ? 1 : 0;
    return score;
  }

  // The alignment of the highest likeness, as steps (node of A, node of B), kNone where one side has nothing.
  std::vector<std::pair<size_t, size_t>> align(const Indices& a, const Indices& b) {
    // Equal ends need no search; that keeps graphs without layers fast.
    size_t front = 0, back = 0;
    const size_t least = std::min(a.size(), b.size());
    auto alike = [&](size_t i, size_t j) { return likeness(a[i], b[j]) == 15; };
    while (front < least && alike(front, front)) ++front;
    while (back < least - front && alike(a.size() - 1 - back, b.size() - 1 - back)) ++back;
    const size_t n = a.size() - front - back, m = b.size() - front - back;
    std::vector<std::pair<size_t, size_t>> steps;
    for (size_t i = 0; i < front; ++i) steps.emplace_back(a[i], b[i]);
    constexpr size_t kCells = 64'000'000;
    if (n && m && n < kCells / m) {
      std::vector<int32_t> best((n + 1) * (m + 1), 0);  // of the rests from i and j on
      auto at = [&](size_t i, size_t j) -> int32_t& { return best[i * (m + 1) + j]; };
      for (size_t i = n; i-- > 0;)
        for (size_t j = m; j-- > 0;) {
          at(i, j) = std::max(at(i + 1, j), at(i, j + 1));
          if (const int l = likeness(a[front + i], b[front + j])) at(i, j) = std::max(at(i, j), at(i + 1, j + 1) + l);
        }
      size_t i = 0, j = 0;
      while (i < n && j < m) {
        const int l = likeness(a[front + i], b[front + j]);
        if (l && at(i, j) == at(i + 1, j + 1) + l)
          steps.emplace_back(a[front + i++], b[front + j++]);
        else if (at(i, j) == at(i + 1, j))
          steps.emplace_back(a[front + i++], kNone);
        else
          steps.emplace_back(kNone, b[front + j++]);
      }
      for (; i < n; ++i) steps.emplace_back(a[front + i], kNone);
      for (; j < m; ++j) steps.emplace_back(kNone, b[front + j]);
    } else {
      for (size_t i = 0; i < n; ++i) steps.emplace_back(a[front + i], kNone);
      for (size_t j = 0; j < m; ++j) steps.emplace_back(kNone, b[front + j]);
    }
    for (size_t i = back; i > 0; --i) steps.emplace_back(a[a.size() - i], b[b.size() - i]);
    for (const auto& [x, y] : steps)
      if (x != kNone && y != kNone) pair(x, y);
    return steps;
  }

  // A value's name on either side: B's id where the nodes are aligned, A's own otherwise.
  using Key = std::pair<bool, uint32_t>;
  Key key_in_a(uint32_t id) const {
    const auto d = a_.def.at(id);
    const size_t b = b_of_a_[d.node];
    if (b == kNone || d.result >= b_.nodes[b].out.size()) return {true, id};
    return {false, b_.nodes[b].out[d.result].id};
  }
  bool same_values(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](uint32_t x, uint32_t y) { return key_in_a(x) == Key(false, y); });
  }

  DiffSection describe(const std::string& part, const std::vector<std::pair<size_t, size_t>>& steps) const {
    DiffSection s;
    s.parts = {part};
    std::map<Key, std::string> inside;  // names of what this part computes
    std::map<Key, std::string> names;
    int next = 0, next_outside = 0;
    std::set<Key> own;
    for (const auto& [x, y] : steps) {
      if (x != kNone)
        for (auto& v : a_.nodes[x].out) own.insert(key_in_a(v.id));
      if (y != kNone)
        for (auto& v : b_.nodes[y].out) own.insert({false, v.id});
    }
    auto name = [&](const GraphDoc& g, uint32_t id, Key key) {
      const DocNode& from = g.nodes[g.def.at(id).node];
      if (from.is_source()) return "@" + without_layer(from.name());
      auto [it, fresh] = names.emplace(key, "");
      if (fresh) it->second = own.contains(key) ? fmt::format("%{}", next++) : fmt::format("%in{}", next_outside++);
      return it->second;
    };
    auto line = [&](const GraphDoc& g, const DocNode& n, bool is_a) {
      std::string out;
      for (const DocValue& v : n.out)
        out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", name(g, v.id, is_a ? key_in_a(v.id) : Key(false, v.id)),
                           v.type);
      out += fmt::format(" = {}(", n.op);
      const char* comma = "";
      for (uint32_t id : n.in) {
        out += comma + name(g, id, is_a ? key_in_a(id) : Key(false, id));
        comma = ", ";
      }
      for (const auto& [key, value] : n.attrs) {
        out += fmt::format("{}{}={}", comma, key, value);
        comma = ", ";
      }
      out += ")";
      if (!n.stream.empty()) out += " @" + n.stream;
      for (size_t i = 0; i < n.waits.size(); ++i)
        out += fmt::format("{} {}", i ? "," : " after",
                           name(g, n.waits[i], is_a ? key_in_a(n.waits[i]) : Key(false, n.waits[i])));
      return out;
    };
    for (const auto& [x, y] : steps) {
      if (x == kNone) {
        ++s.added;
        s.lines.push_back({'+', line(b_, b_.nodes[y], false), b_.nodes[y].out.at(0).id});
        continue;
      }
      const DocNode& a = a_.nodes[x];
      if (y == kNone) {
        ++s.removed;
        s.lines.push_back({'-', line(a_, a, true), a.out.at(0).id});
        continue;
      }
      const DocNode& b = b_.nodes[y];
      const bool changed = a.attrs != b.attrs || !same_types(a, b) || a.stream != b.stream;
      const bool rewired = !same_values(a.in, b.in) || !same_values(a.waits, b.waits);
      if (changed)
        ++s.changed;
      else if (rewired)
        ++s.rewired;
      if (changed || rewired) s.lines.push_back({'-', line(a_, a, true), a.out.at(0).id});
      s.lines.push_back({changed || rewired ? '+' : ' ', line(b_, b, false), b.out.at(0).id});
    }
    return s;
  }

  void count_ops() {
    std::map<std::string, OpCount> by_op;
    for (const DocNode& n : a_.nodes)
      if (!n.is_source()) ++by_op[n.op].a, ++d_.nodes_a;
    for (const DocNode& n : b_.nodes)
      if (!n.is_source()) ++by_op[n.op].b, ++d_.nodes_b;
    for (auto& [op, count] : by_op) d_.ops.push_back({op, count.a, count.b});
  }

  // Parameters of many layers are one note.
  void source_notes() {
    std::map<std::pair<char, std::string>, int> notes;
    std::vector<std::pair<char, std::string>> order;
    auto note = [&](char tag, const std::string& text) {
      if (notes[{tag, text}]++ == 0) order.emplace_back(tag, text);
    };
    for (size_t i = 0; i < a_.nodes.size(); ++i) {
      const DocNode& a = a_.nodes[i];
      if (!a.is_source()) continue;
      const std::string what = fmt::format("{} {}: {}", a.op, without_layer(a.name()), a.out.at(0).type);
      if (b_of_a_[i] == kNone)
        note('-', what);
      else if (const DocNode& b = b_.nodes[b_of_a_[i]]; !same_types(a, b))
        note('~', fmt::format("{} -> {}", what, b.out.at(0).type));
    }
    for (size_t i = 0; i < b_.nodes.size(); ++i)
      if (const DocNode& b = b_.nodes[i]; b.is_source() && a_of_b_[i] == kNone)
        note('+', fmt::format("{} {}: {}", b.op, without_layer(b.name()), b.out.at(0).type));
    for (const auto& n : order)
      d_.notes.push_back({n.first, notes[n] > 1 ? fmt::format("{} ({} of them)", n.second, notes[n]) : n.second});
  }

  void compare_notes() {
    std::map<std::string, std::pair<int64_t, int64_t>> symbols;
    for (const auto& [name, bound] : a_.symbols) symbols.try_emplace(name, -1, -1).first->second.first = bound;
    for (const auto& [name, bound] : b_.symbols) symbols.try_emplace(name, -1, -1).first->second.second = bound;
    for (const auto& [name, bound] : symbols) {
      if (bound.first == bound.second) continue;
      if (bound.first < 0 || bound.second < 0)
        d_.notes.push_back({bound.first < 0 ? '+' : '-',
                            fmt::format("symbol {} <= {}", name, bound.first < 0 ? bound.second : bound.first)});
      else
        d_.notes.push_back({'~', fmt::format("symbol {} <= {} -> {}", name, bound.first, bound.second)});
    }
    source_notes();
    std::map<std::string, uint32_t> outputs_b(b_.outputs.begin(), b_.outputs.end());
    for (const auto& [name, id] : a_.outputs) {
      const auto it = outputs_b.find(name);
      if (it == outputs_b.end())
        d_.notes.push_back({'-', "output " + name});
      else if (key_in_a(id) != Key(false, it->second))
        d_.notes.push_back({'~', fmt::format("output {} is another value (%{} in A, %{} in B)", name, id, it->second)});
      if (it != outputs_b.end()) outputs_b.erase(it);
    }
    for (const auto& [name, id] : outputs_b) d_.notes.push_back({'+', "output " + name});
  }

  const GraphDoc &a_, &b_;
  std::vector<size_t> b_of_a_, a_of_b_;  // aligned nodes
  std::vector<std::vector<std::string>> feeds_a_, feeds_b_;
  GraphDiff d_;
};

}  // namespace

std::string DiffSection::title() const {
  if (parts.front() == "start") return "before the first layer";
  if (parts.front() == "end") return "after the last layer";
  if (parts.size() == 1) return "layer " + parts.front();
  return fmt::format("layers {} to {} ({} alike)", parts.front(), parts.back(), parts.size());
}

bool GraphDiff::same() const {
  return notes.empty() && std::all_of(sections.begin(), sections.end(), [](auto& s) { return s.same(); });
}

GraphDiff diff_graphs(const GraphDoc& a, const GraphDoc& b) { return Differ(a, b).run(); }

}  // namespace reprise::see
