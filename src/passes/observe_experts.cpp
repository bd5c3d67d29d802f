#include "passes/house_passes.h"

namespace reprise {
namespace {

// "model.layers.3.mlp": where the router's weight is.
std::string place_of(const Node& route, const OpSchema* linear) {
  constexpr std::string_view kRouter = ".gate.weight";
  const Node* gate = route.in[0]->def;
  if (!gate->op->has(op_trait::kRoutes) || gate->in[0]->def->op != linear) return {};
  const Node* weight = gate->in[0]->def->in[1]->def;
  if (!weight->is_param()) return {};
  const std::string& name = weight->attrs.text("name");
  return name.ends_with(kRouter) ? name.substr(0, name.size() - kRouter.size()) : name;
}

}  // namespace

Pass observe_experts() {
  return {"observe_experts", true, [](Graph& g, PassContext& c) -> Status {
            const OpSchema* linear = c.ops().find("linear");
            for (Node* n = g.first(); n; n = n->next) {
              if (!n->op->has(op_trait::kDispatches)) continue;
              c.count_tried();
              std::string place = place_of(*n, linear);
              if (place.empty()) place = fmt::format("%{}", n->result()->id);
              RETURN_IF_ERROR(g.add_output(std::string(kExpertStarts) + place, n->result(2)));
            }
            return Status::ok();
          }};
}

}  // namespace reprise
