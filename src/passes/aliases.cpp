#include "passes/aliases.h"

#include "ops/mutation.h"

namespace reprise {

std::vector<const Value*> touched_roots(const Node& node) {
  std::vector<const Value*> roots;
  for (const Value* v : node.in) roots.push_back(storage_root(v));
  return roots;
}

std::vector<const Value*> written_roots(const Node& node) {
  std::vector<const Value*> roots;
  for (const size_t written : mutated_operands(*node.op)) roots.push_back(storage_root(node.in[written]));
  return roots;
}

std::unordered_set<const Value*> written_roots(const Graph& graph) {
  std::unordered_set<const Value*> roots;
  for (const Node* n = graph.first(); n; n = n->next)
    for (const Value* r : written_roots(*n)) roots.insert(r);
  return roots;
}

}  // namespace reprise
