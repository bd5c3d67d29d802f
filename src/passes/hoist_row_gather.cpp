#include <algorithm>

#include "passes/house_passes.h"

namespace reprise {
namespace {

bool comes_before(const Node* a, const Node* b) {
  for (; a; a = a->next)
    if (a == b) return true;
  return false;
}

bool same_attrs(const Node& a, const Node& b) {
  for (const auto& [name, value] : a.attrs.entries())
    if (const AttrValue* other = b.attrs.find(name); !other || *other != value) return false;
  return true;
}

class Hoister {
 public:
  Hoister(Graph& g, PassContext& c) : g_(g), c_(c) {}

  Status run() {
    bool changed = true;
    while (changed) {
      changed = false;
      stopped_.clear();
      for (Node* n = g_.first(); n && !changed;) {
        if (n->op->has(op_trait::kGathers)) merge_twins(n);
        Node* next = n->next;  // before n goes
        if (n->op->has(op_trait::kGathers)) {
          ASSIGN_OR_RETURN(changed, hoist(n));
        }
        n = next;
      }
    }
    c_.report().tried = c_.report().matched + static_cast<int64_t>(stopped_.size());
    for (PassRemark& r : stopped_) c_.refuse(std::move(r));
    return Status::ok();
  }

 private:
  // Later gathers of the same rows become this one.
  void merge_twins(Node* n) {
    const std::vector<Use> uses = n->in[0]->uses;
    for (const Use& u : uses)
      if (u.user != n && u.user->op == n->op && u.user->in == n->in && comes_before(n, u.user)) {
        g_.replace_all_uses(u.user->result(), n->result());
        g_.erase(u.user);
      }
  }

  bool stop(const Node& n, std::string why) {
    stopped_.push_back({n.result()->id, std::move(why)});
    return false;
  }

  Result<bool> hoist(Node* n) {
    if (n->in[1]->def->op->has(op_trait::kDispatches)) return false;  // that gathers a row more than once
    Value* x = n->in[0];
    Node* p = x->def;
    if (!p->op->has(OperandRole::Rows))
      return stop(*n, fmt::format("%{} ({}) does not work row by row on one tensor", x->id, p->op->name));
    if (!x->outputs.empty() || x->uses.size() > 1)
      return stop(*n, fmt::format("%{} ({}) has other readers", x->id, p->op->name));
    if (const Node* other = needs_all_rows_beside(*p, n->in[1]))
      return stop(*n, fmt::format("%{} is a product beside %{}, which needs all rows: they are made together", x->id,
                                  other->result()->id));
    const LiveSizes bound = g_.bounds();
    if (n->result()->type.shape[0].value(bound) > x->type.shape[0].value(bound))
      return stop(*n, fmt::format("more rows may be gathered than %{} has", x->id));
    if (c_.allowance() == 0) return stop(*n, "the bisect limit is reached");
    (void)c_.may_apply(*n);
    std::vector<Value*> in = p->in;
    for (size_t i = 0; i < in.size(); ++i) {
      if (p->op->operands[i].role != OperandRole::Rows) continue;
      ASSIGN_OR_RETURN(in[i], gather(in[i], n));
    }
    ASSIGN_OR_RETURN(Node * moved, g_.add(*p->op, std::move(in), p->attrs, "hoist_row_gather", n));
    g_.replace_all_uses(n->result(), moved->result());
    g_.erase(n);
    g_.erase(p);
    return true;
  }

  // Whether all that comes of a value is gathered by the index before anything but rows is made of it.
  bool is_gathered(const Value& v, const Value* index) const {
    return v.outputs.empty() && std::all_of(v.uses.begin(), v.uses.end(), [&](const Use& u) {
             if (u.user->op->has(op_trait::kGathers)) return u.operand == 0 && u.user->in[1] == index;
             return u.declared().role == OperandRole::Rows && is_gathered(*u.user->result(), index);
           });
  }

  // Another linear of the same input that could be packed with this one and is not gathered; null: none.
  const Node* needs_all_rows_beside(const Node& linear, const Value* index) const {
    if (!linear.op->has(op_trait::kLinear)) return nullptr;
    for (const Use& u : linear.in[0]->uses)
      if (u.user != &linear && u.operand == 0 && u.user->op == linear.op && same_attrs(linear, *u.user) &&
          !is_gathered(*u.user->result(), index))
        return u.user;
    return nullptr;
  }

  // index_select(x, index) before `place`, made if it is not there yet.
  Result<Value*> gather(Value* x, Node* place) {
    for (const Use& u : x->uses)
      if (u.user->op == place->op && u.operand == 0 && u.user->in[1] == place->in[1] && comes_before(u.user, place))
        return u.user->result();
    ASSIGN_OR_RETURN(Node * made, g_.add(*place->op, {x, place->in[1]}, {}, "hoist_row_gather", place));
    return made->result();
  }

  Graph& g_;
  PassContext& c_;
  std::vector<PassRemark> stopped_;
};

}  // namespace

Pass hoist_row_gather() {
  return {"hoist_row_gather", false, [](Graph& g, PassContext& c) { return Hoister(g, c).run(); }};
}

}  // namespace reprise
