#include "passes/house_passes.h"

namespace reprise {

Pass observe_linears() {
  return {"observe_linears", true, [](Graph& g, PassContext& c) -> Status {
            const OpSchema* linear = c.ops().find("linear");
            for (Node* n = g.first(); n; n = n->next) {
              if (n->op != linear || !n->in[1]->def->is_param()) continue;
              c.count_tried();
              RETURN_IF_ERROR(g.add_output(std::string(kObserved) + n->in[1]->def->attrs.text("name"), n->in[0]));
            }
            return Status::ok();
          }};
}

}  // namespace reprise
