#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr const char* kExpandLatents = "expand_latents";

// per_head_matmul(latent_attention(per_head_matmul(q, weight), q_rope, ...), value_weight).
struct Absorbed {
  Node *queries = nullptr, *attention = nullptr, *values = nullptr;
};

class Expander {
 public:
  Expander(Graph& g, PassContext& c) : g_(g), c_(c) {}

  Status run() {
    std::vector<Node*> found;
    for (Node* n = g_.first(); n; n = n->next)
      if (n->op == attention_) found.push_back(n);
    for (Node* n : found) {
      c_.count_tried();
      ASSIGN_OR_RETURN(const Absorbed a, around(n));
      RETURN_IF_ERROR(expand(a));
    }
    return Status::ok();
  }

 private:
  static Status stop(const Node& n, std::string_view why) {
    return error(Code::Unsupported, "`mla_prefill` expanded: %{} ({}) {}", n.result()->id, n.op->name, why);
  }

  Result<Absorbed> around(Node* n) const {
    Absorbed a;
    a.attention = n;
    a.queries = n->in[0]->def;
    if (a.queries->op != linear_) return stop(*n, "does not read a per_head_matmul's queries");
    const Value& out = *n->result();
    if (out.uses.size() != 1 || !out.outputs.empty() || out.uses[0].user->op != linear_ || out.uses[0].operand != 0)
      return stop(*n, "is not read by one per_head_matmul alone");
    a.values = out.uses[0].user;
    return a;
  }

  // The new call before the old result's place, if the device has a kernel for it.
  Result<Node*> add(const char* name, std::vector<Value*> in, Attrs attrs) {
    const OpSchema* op = c_.ops().find(name);
    CHECK(op, "op {} is not registered", name);
    std::vector<TensorType> types;
    for (const Value* v : in) types.push_back(v->type);
    if (Status s = c_.has_kernel(*op, types, attrs); !s.is_ok()) return s.at("`mla_prefill` expanded");
    return g_.add(*op, std::move(in), std::move(attrs), kExpandLatents, place_);
  }

  // What every layer shares: the same step has the same forms.
  Result<Node*> forms(const Absorbed& a) {
    const std::vector<Value*>& in = a.attention->in;
    const Node* write = in[2]->def;
    if (write->op != row_write_) return stop(*a.attention, "reads a cache that this graph does not write");
    const Shape &weight = a.queries->in[1]->type.shape, &up = a.values->in[1]->type.shape;
    const Attrs sizes{{"latent", weight[1].factor}, {"nope", weight[2].factor}, {"value", up[1].factor}};
    for (Node* made : made_)
      if (made->in[0] == write->in[2] && made->in[1] == in[5] && made->in[2] == in[6] && made->attrs == sizes)
        return made;
    ASSIGN_OR_RETURN(Node * made, add("latent_forms", {write->in[2], in[5], in[6]}, sizes));
    made_.push_back(made);
    return made;
  }

  Status expand(const Absorbed& a) {
    const std::vector<Value*> in = a.attention->in;
    Value *q = a.queries->in[0], *weight = a.queries->in[1], *value_weight = a.values->in[1];
    if (!c_.may_apply(*a.attention)) return Status::ok();
    place_ = a.queries;
    ASSIGN_OR_RETURN(Node * form, forms(a));
    place_ = a.values;
    ASSIGN_OR_RETURN(Node * some, add("per_head_matmul_rows", {q, form->result(0), weight}, {}));
    ASSIGN_OR_RETURN(Node * attention,
                     add("latent_attention", {some->result(), in[1], in[2], in[3], in[4], form->result(1), in[6]},
                         a.attention->attrs));
    ASSIGN_OR_RETURN(Node * values,
                     add("per_head_matmul_rows", {attention->result(), form->result(0), value_weight}, {}));
    ASSIGN_OR_RETURN(
        Node * own, add("expanded_latent_attention",
                        {values->result(), q, in[1], in[2], in[3], weight, value_weight, in[4], form->result(2), in[6]},
                        a.attention->attrs));
    c_.applied(*own, "keys and values are made of the latents where that is fewer operations");
    g_.replace_all_uses(a.values->result(), own->result());
    g_.erase(a.values);
    g_.erase(a.attention);
    if (a.queries->result()->uses.empty() && a.queries->result()->outputs.empty()) g_.erase(a.queries);
    return Status::ok();
  }

  Graph& g_;
  PassContext& c_;
  const OpSchema* attention_ = c_.ops().find("latent_attention");
  const OpSchema* linear_ = c_.ops().find("per_head_matmul");
  const OpSchema* row_write_ = c_.ops().find("row_write");
  std::vector<Node*> made_;  // latent_forms
  Node* place_ = nullptr;
};

}  // namespace

Pass expand_latents() {
  return {kExpandLatents, true, [](Graph& g, PassContext& c) { return Expander(g, c).run(); }};
}

}  // namespace reprise
