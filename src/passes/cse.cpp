#include <algorithm>
#include <unordered_map>

#include "passes/aliases.h"
#include "passes/house_passes.h"

namespace reprise {
namespace {

size_t key(const Node& n) {
  size_t h = std::hash<const void*>()(n.op);
  // Commuting operands count in any order.
  for (const Value* v : n.in) h += std::hash<const void*>()(v) * 0x9e3779b97f4a7c15u;
  return h;
}

bool same_call(const Node& a, const Node& b) {
  if (a.op != b.op || !(a.attrs == b.attrs) || a.in.size() != b.in.size()) return false;
  if (a.in == b.in) return true;
  if (!a.op->has(op_trait::kCommutes)) return false;
  return a.in[0] == b.in[1] && a.in[1] == b.in[0] && std::equal(a.in.begin() + 2, a.in.end(), b.in.begin() + 2);
}

bool may_merge(const Node& n, const std::unordered_set<const Value*>& written) {
  if (n.op->has(op_trait::kSource | op_trait::kOwnBytes) || !n.op->pure()) return false;
  return std::none_of(n.out.begin(), n.out.end(), [&](auto& v) { return written.contains(v.get()); });
}

Status run(Graph& g, PassContext& c) {
  const auto written = written_roots(g);
  std::unordered_multimap<size_t, Node*> seen;
  for (Node* n = g.first(); n;) {
    Node* next = n->next;
    if (may_merge(*n, written)) {
      c.count_tried();
      const size_t k = key(*n);
      auto [begin, end] = seen.equal_range(k);
      auto it = std::find_if(begin, end, [&](auto& entry) { return same_call(*entry.second, *n); });
      if (it == end) {
        seen.emplace(k, n);
      } else if (c.may_apply(*n)) {
        c.applied(*n, fmt::format("{}: the same as %{}", n->op->name, it->second->result()->id));
        for (size_t i = 0; i < n->out.size(); ++i) g.replace_all_uses(n->result(i), it->second->result(i));
        g.erase(n);
      }
    }
    n = next;
  }
  return Status::ok();
}

}  // namespace

Pass common_subexpressions() { return {"common_subexpressions", false, run}; }

}  // namespace reprise
