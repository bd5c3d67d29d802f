#include "passes/aliases.h"

namespace reprise {

const Value* alias_root(const Value* v) {
  while (true) {
    const Node& n = *v->def;
    const int written = n.op->mutated_operand();
    if (n.op->has(op_flag::kView))
      v = n.in[0];
    else if (written >= 0 && v->result == 0)
      v = n.in[static_cast<size_t>(written)];
    else
      return v;
  }
}

std::vector<const Value*> touched_roots(const Node& node) {
  std::vector<const Value*> roots;
  for (const Value* v : node.in) roots.push_back(alias_root(v));
  return roots;
}

const Value* written_root(const Node& node) {
  const int written = node.op->mutated_operand();
  return written < 0 ? nullptr : alias_root(node.in[static_cast<size_t>(written)]);
}

std::unordered_set<const Value*> written_roots(const Graph& graph) {
  std::unordered_set<const Value*> roots;
  for (const Node* n = graph.first(); n; n = n->next)
    if (const Value* r = written_root(*n)) roots.insert(r);
  return roots;
}

}  // namespace reprise
