#include "passes/inline.h"

#include <unordered_map>

namespace reprise {

Result<std::vector<Value*>> inline_graph(Graph& graph, const Graph& body, std::span<Value* const> in,
                                         const std::string& made_by, Node* before) {
  std::unordered_map<const Value*, Value*> to;
  for (const Node* n = body.first(); n; n = n->next) {
    if (n->is_input()) {
      const size_t i = std::stoul(n->attrs.text("name"));
      CHECK(i < in.size() && in[i], "operand {} of an inlined graph", i);
      to[n->result()] = in[i];
      continue;
    }
    if (n->is_source()) return invalid("{}: a replacement cannot bring in a {}", made_by, n->op->name);
    std::vector<Value*> operands;
    for (const Value* v : n->in) operands.push_back(to.at(v));
    ASSIGN_OR_RETURN(Node * copy, graph.add(*n->op, std::move(operands), n->attrs, made_by, before));
    for (size_t i = 0; i < n->out.size(); ++i) to[n->result(i)] = copy->result(i);
  }
  std::vector<Value*> out;
  for (auto& o : body.outputs()) out.push_back(to.at(o.value));
  return out;
}

}  // namespace reprise
