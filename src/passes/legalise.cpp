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

Value* output_of(const Graph& g, std::string_view name) {
  for (auto& o : g.outputs())
    if (o.name == name) return o.value;
  return nullptr;
}

// The call that makes the logits is made once more for the argmax alone, which a fusion may then make one kernel of.
Status add_argmax(Graph& g, PassContext& c, RankShare ranks) {
  c.count_tried();
  Value* logits = output_of(g, "logits");
  if (!logits) return invalid("the graph has no output \"logits\"");
  // What ranks have gathered was made by the call before.
  const Node* gather = logits->def->op->has(op_trait::kCollective) ? logits->def : nullptr;
  if (gather) {
    // Where a device cannot say which rank's maximum is the largest, all logits are looked at once more.
    const std::vector<TensorType> pair_types{gather->in[0]->type, {DType::I32, {logits->type.shape[0]}}};
    const Status pairs = c.has_kernel(*c.ops().find("argmax_pairs"), pair_types, {{"first", int64_t{0}}});
    if (!pairs.is_ok()) {
      (void)c.may_apply(*logits->def);
      ASSIGN_OR_RETURN(Node * next, g.add(*c.ops().find("argmax"), {logits}, {}, "greedy_head"));
      c.applied(*next, fmt::format("the logits of all ranks are gathered: {}", pairs.message()));
      return g.add_output("next_tokens", next->result());
    }
  }
  Value* made = gather ? gather->in[0] : logits;
  const Node& head = *made->def;
  (void)c.may_apply(head);
  Value* own = made;
  if (head.op->pure() && !head.is_source()) {
    ASSIGN_OR_RETURN(Node * again, g.add(*head.op, head.in, head.attrs, "greedy_head"));
    own = again->result(made->result);
  }
  ASSIGN_OR_RETURN(Node * next, g.add(*c.ops().find("argmax"), {own}, {}, "greedy_head"));
  if (gather) {
    ASSIGN_OR_RETURN(Node * pairs, g.add(*c.ops().find("argmax_pairs"), {own, next->result()},
                                         {{"first", gather->attrs.integer("first")}}, "greedy_head"));
    ASSIGN_OR_RETURN(Node * all,
                     g.add(*gather->op, {pairs->result()},
                           {{"first", int64_t{2} * ranks.rank}, {"of", int64_t{2} * ranks.size}, {"even", int64_t{1}}},
                           "greedy_head"));
    ASSIGN_OR_RETURN(next, g.add(*c.ops().find("merge_argmax"), {all->result()}, {}, "greedy_head"));
  }
  return g.add_output("next_tokens", next->result());
}

// Where no fusion took it, the second call computes what the first one has.
Status drop_second_logits(Graph& g, PassContext& c) {
  const Value *logits = output_of(g, "logits"), *next = output_of(g, "next_tokens");
  if (!logits || !next || next->def->in.empty()) return Status::ok();
  c.count_tried();
  Value* own = next->def->in.front();
  Node *first = logits->def, *second = own->def;
  if (first == second || first->op != second->op || first->in != second->in || !(first->attrs == second->attrs))
    return Status::ok();
  (void)c.may_apply(*second);
  c.applied(*second, fmt::format("{}: the same as %{}", second->op->name, logits->id));
  g.replace_all_uses(own, first->result(own->result));
  g.erase(second);
  return Status::ok();
}

// The ops that change logits and draw tokens are of use where a device computes them; elsewhere the host does it.
Status keep_sampling(Graph& g, PassContext& c) {
  const Value* token = output_of(g, "sampled");
  if (!token) return Status::ok();
  c.count_tried();
  if (token->def->op != c.ops().find("sample")) return Status::ok();  // ranks draw it, where they have kernels for it
  if (Node* drawn = token->def; drawn->in.size() > 2) {
    const Node& edit = *drawn->in[2]->def;
    if (const Status why = c.has_kernel(*edit.op, edit.in_types(), edit.attrs); !why.is_ok()) {
      (void)c.may_apply(edit);
      c.applied(edit,
                fmt::format("{}: the host draws from logits that are changed first: {}", edit.op->name, why.message()));
      ASSIGN_OR_RETURN(Node * plain,
                       g.add(*drawn->op, {drawn->in[0], drawn->in[1]}, drawn->attrs, "sampling_head", drawn));
      for (int i = 0; i < drawn->op->results; ++i) g.replace_all_uses(drawn->result(i), plain->result(i));
      g.erase(drawn);
      token = output_of(g, "sampled");
    }
  }
  const Node& n = *token->def;
  const auto in = n.in_types();
  const Status why = c.has_kernel(*n.op, in, n.attrs);
  if (why.is_ok()) return Status::ok();
  (void)c.may_apply(n);
  c.applied(n, fmt::format("{}: the host draws tokens: {}", n.op->name, why.message()));
  std::vector<std::string> gone;
  for (auto& o : g.outputs())
    if (o.value->def == &n) gone.push_back(o.name);
  for (const std::string& name : gone) RETURN_IF_ERROR(g.remove_output(name));
  return Status::ok();
}

// What tokens come from is looked at on the device, and not brought to the host for that.
Status add_finite_rows(Graph& g, PassContext& c) {
  Value* hidden = output_of(g, "hidden");
  if (!hidden || hidden->type.shape.rank() != 2) return Status::ok();
  c.count_tried();
  const OpSchema& op = *c.ops().find("finite_rows");
  const TensorType in[] = {hidden->type};
  if (const Status why = c.has_kernel(op, in, {}); !why.is_ok()) {
    c.refuse(*hidden->def, why.message());
    return Status::ok();
  }
  std::vector<std::string> heads;
  for (const std::string_view head : {"next_tokens", "sampled"})
    if (output_of(g, head)) heads.push_back(fmt::format("{}{}", head, kFiniteRows));
  if (heads.empty()) return Status::ok();
  (void)c.may_apply(*hidden->def);
  ASSIGN_OR_RETURN(Node * rows, g.add(op, {hidden}, {}, "finite_head"));
  for (const std::string& name : heads) RETURN_IF_ERROR(g.add_output(name, rows->result()));
  return Status::ok();
}

}  // namespace

Pass legalise() { return {"legalise", true, expand_unsupported}; }
Pass greedy_head(RankShare ranks) {
  return {"greedy_head", true, [ranks](Graph& g, PassContext& c) { return add_argmax(g, c, ranks); }};
}
Pass sampling_head() { return {"sampling_head", true, keep_sampling}; }
Pass finite_head() { return {"finite_head", true, add_finite_rows}; }
Pass share_head() { return {"share_head", true, drop_second_logits}; }

}  // namespace reprise
