#include "passes/house_passes.h"
#include "passes/inline.h"

namespace reprise {
namespace {

Status expand_unsupported(Graph& g, PassContext& c) {
  for (Node* n = g.first(); n;) {
    Node* next = n->next;
    if (const nn::FusedOp* fused = c.fused().find(n->op->name)) {
      c.count_tried();
      const auto in = n->in_types();
      if (Status why = c.has_kernel(*n->op, in, n->attrs); !why.is_ok()) {
        (void)c.may_apply(*n);
        c.applied(*n, fmt::format("{} becomes what it means: {}", n->op->name, why.message()));
        ASSIGN_OR_RETURN(Graph body,
                         nn::trace_meaning(fused->meaning, n->op->operands.size(), g.symbols(), in, n->attrs, c.ops()));
        Node* before = n->prev;
        ASSIGN_OR_RETURN(auto out, inline_graph(g, body, n->in, "legalise", n));
        for (size_t i = 0; i < out.size(); ++i) g.replace_all_uses(n->result(i), out[i]);
        g.erase(n);
        next = before ? before->next : g.first();  // a meaning may use fused ops itself
      }
    }
    n = next;
  }
  return Status::ok();
}

Status take_argmax(Graph& g, PassContext& c) {
  c.count_tried();
  for (auto& o : g.outputs()) {
    if (o.name != "logits") continue;
    (void)c.may_apply(*o.value->def);
    ASSIGN_OR_RETURN(Node * next, g.add(*c.ops().find("argmax"), {o.value}, {}, "greedy_head"));
    return g.replace_output("logits", next->result(), "next_tokens");
  }
  return invalid("the graph has no output \"logits\"");
}

}  // namespace

Pass legalise() { return {"legalise", true, expand_unsupported}; }
Pass greedy_head() { return {"greedy_head", true, take_argmax}; }

}  // namespace reprise
