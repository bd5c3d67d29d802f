#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr const char* kAddNormBiases = "add_norm_biases";

Status add_biases(Graph& g, PassContext& c, const checkpoint::QuantPlan& plan) {
  const OpSchema *param = c.ops().find("param"), *norm = c.ops().find("rms_norm");
  for (Node* n = g.first(); n;) {
    Node* next = n->next;
    if (n->op == norm && n->in.size() == 2 && n->in[1]->def->is_param()) {
      const std::string weight = n->in[1]->def->attrs.text("name");
      const std::string name = std::string(checkpoint::module_of(weight)) + ".bias";
      if (plan.norm_biases.contains(name)) {
        c.count_tried();
        if (c.may_apply(*n)) {
          Node* bias = g.find_param(name);
          if (!bias) {
            ASSIGN_OR_RETURN(bias, g.add_source(*param, name, n->in[1]->type, kAddNormBiases, n));
          }
          ASSIGN_OR_RETURN(Node * made,
                           g.add(*n->op, {n->in[0], n->in[1], bias->result()}, n->attrs, kAddNormBiases, n));
          c.applied(*made, name);
          g.replace_all_uses(n->result(), made->result());
          g.erase(n);
        }
      }
    }
    n = next;
  }
  return Status::ok();
}

}  // namespace

Pass add_norm_biases(std::shared_ptr<const checkpoint::QuantPlan> plan) {
  return {kAddNormBiases, true, [plan = std::move(plan)](Graph& g, PassContext& c) { return add_biases(g, c, *plan); }};
}

}  // namespace reprise
