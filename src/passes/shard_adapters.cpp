// Stacks of matrices in memory of the engine's, whose products are added to those of parameters (LoRA adapters).
#include <algorithm>

#include "passes/sharder.h"

namespace reprise {

bool Sharder::is_stack(const Value& v) {
  const auto dims = v.type.shape.dims();
  return v.def->is_input() && dims.size() == 3 &&
         std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); }) &&
         std::all_of(v.uses.begin(), v.uses.end(), [](const Use& u) { return u.user->op->has(op_trait::kColumns); });
}

size_t Sharder::stack_of(const Node& n) {
  if (!n.op->has(op_trait::kColumns)) return n.in.size();
  const auto stack = std::find_if(n.in.begin(), n.in.end(), [](const Value* v) { return is_stack(*v); });
  return static_cast<size_t>(stack - n.in.begin());
}

// What is added to columns that are here is added here: it is written into their own bytes, which no other rank sees.
Status Sharder::add_stack(const Node& n, size_t stack) {
  const auto to = static_cast<size_t>(n.op->mutated_operand());
  if (placed(n.in[to]).partial) RETURN_IF_ERROR(whole(n.in[to]).status());
  const Placed& p = placed(n.in[to]);
  std::vector<Cut> pieces = p.pieces;
  if (p.cut) pieces = {*p.cut};
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (i == to) {
      in[i] = p.value;
    } else {
      ASSIGN_OR_RETURN(in[i], i == stack ? stack_part(n.in[i], pieces) : whole(n.in[i]));
    }
  }
  RETURN_IF_ERROR(add(n, std::move(in), p.cut));
  placed(n.result()).pieces = placed(n.in[to]).pieces;
  return Status::ok();
}

Result<Value*> Sharder::stack_part(const Value* old, const std::vector<Cut>& pieces) {
  std::string name = old->def->attrs.text("name");
  TensorType type = old->type;
  if (!pieces.empty()) {
    type.shape[2] = Dim(count_of(pieces));
    name += name_of(pieces);
  }
  ASSIGN_OR_RETURN(Node * made, out_.add_source(*old->def->op, name, type, old->def->made_by));
  return made->result();
}

}  // namespace reprise
