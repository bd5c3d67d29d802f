#include "passes/legality.h"

#include <algorithm>
#include <unordered_set>

#include "passes/aliases.h"

namespace reprise {
namespace {

using Nodes = std::unordered_set<const Node*>;
using Roots = std::unordered_set<const Value*>;

// An inner value is gone afterwards, so no other node may read it.
Status check_inner_values(const Match& match, const Nodes& matched) {
  for (const Node* n : match.nodes)
    for (auto& v : n->out) {
      if (std::find(match.out.begin(), match.out.end(), v.get()) != match.out.end()) continue;
      if (!v->outputs.empty()) return invalid("inner value %{} is the graph's output {}", v->id, v->outputs.front());
      for (const Use& u : v->uses)
        if (!matched.contains(u.user))
          return invalid("inner value %{} is also used by %{} ({})", v->id, u.user->result()->id, u.user->op->name);
    }
  return Status::ok();
}

// Two nodes may change order unless one writes bytes that the other touches.
bool order_matters(const Node& a, const Node& b) {
  auto writes_into = [](const Node& writer, const Node& other) {
    const auto touched = touched_roots(other);
    const auto written = written_roots(writer);
    return std::any_of(written.begin(), written.end(), [&](const Value* root) {
      return std::find(touched.begin(), touched.end(), root) != touched.end();
    });
  };
  return writes_into(a, b) || writes_into(b, a);
}

}  // namespace

Result<Placement> place_match(const Match& match, const std::unordered_map<const Node*, size_t>& position) {
  const Nodes matched(match.nodes.begin(), match.nodes.end());
  RETURN_IF_ERROR(check_inner_values(match, matched));
  auto before = [&](const Node* a, const Node* b) { return position.at(a) < position.at(b); };
  Node* first = *std::min_element(match.nodes.begin(), match.nodes.end(), before);
  Placement p;
  p.last = *std::max_element(match.nodes.begin(), match.nodes.end(), before);
  Roots touched, written;
  for (const Node* n : match.nodes) {
    for (const Value* r : touched_roots(*n)) touched.insert(r);
    for (const Value* r : written_roots(*n)) written.insert(r);
  }
  Nodes dependent;  // outside nodes that read, directly or not, an output of the match
  for (Node* n = first; n != p.last->next; n = n->next) {
    if (matched.contains(n)) {
      for (const Value* v : n->in)
        if (dependent.contains(v->def))
          return invalid("input %{} of %{} depends on an output of the match through %{} ({})", v->id, n->result()->id,
                         v->def->result()->id, v->def->op->name);
      continue;
    }
    for (const Value* r : written_roots(*n))
      if (touched.contains(r))
        return invalid("%{} ({}) between the matched nodes writes %{}, which they use", n->result()->id, n->op->name,
                       r->id);
    for (const Value* r : touched_roots(*n))
      if (written.contains(r))
        return invalid("%{} ({}) between the matched nodes uses %{}, which they write", n->result()->id, n->op->name,
                       r->id);
    const bool late = std::any_of(n->in.begin(), n->in.end(), [&](const Value* v) {
      return matched.contains(v->def) || dependent.contains(v->def);
    });
    if (late) {
      dependent.insert(n);
      p.late.push_back(n);
      continue;
    }
    for (const Node* moved : p.late)
      if (order_matters(*moved, *n))
        return invalid("%{} ({}) would have to move behind %{} ({}), which touches the same bytes", moved->result()->id,
                       moved->op->name, n->result()->id, n->op->name);
  }
  return p;
}

}  // namespace reprise
