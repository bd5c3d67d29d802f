#include "ops/args/experts.h"

#include "ops/args/rows.h"

namespace reprise {
void MoeGateArgs::fill(const OpCall& c) {
  tokens = c.in[0].shape[0];
  count = c.in[0].shape[1].factor;
  top_k = c.attrs->integer("top_k");
  groups = c.attrs->integer("groups");
  top_groups = c.attrs->integer("top_groups");
  scale = c.attrs->number("scale");
  eps = c.attrs->number("eps");
  sigmoid = c.attrs->text("score") == "sigmoid";
  normalise = c.attrs->integer("normalise") != 0;
  top_two = c.attrs->text("group_score") == "top2";
}
void MoeRouteArgs::fill(const OpCall& c) {
  tokens = c.in[0].shape[0];
  top_k = c.in[0].shape[1].factor;
  first = c.attrs->integer("first");
  count = c.attrs->integer("count");
}
void AddGroupsArgs::fill(const OpCall& c) {
  rows = c.in[0].shape[0];
  width = c.in[0].shape[1].factor;
  groups = c.in[2].shape[0].factor;
}
void MoeCombineArgs::fill(const OpCall& c) {
  tokens = c.in[2].shape[0];
  top_k = c.in[2].shape[1].factor;
  width = c.in[0].shape[1].factor;
  type = c.in[0].dtype;
}

std::span<const OpArgs> expert_args() {
  static const OpArgs rows[] = {
      op_row("moe_gate", &MoeGateArgs::experts, &MoeGateArgs::logits),
      op_row("moe_route", &MoeRouteArgs::starts, &MoeRouteArgs::experts),
      op_row("add_groups", &AddGroupsArgs::out, &AddGroupsArgs::x, constant_rows),
      op_row("moe_combine", &MoeCombineArgs::out, &MoeCombineArgs::y, constant_rows),
  };
  return rows;
}

}  // namespace reprise
