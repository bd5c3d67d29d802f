#include "passes/rewrite.h"

#include <algorithm>

#include "passes/inline.h"
#include "passes/legality.h"

namespace reprise {
namespace {

constexpr int kMaxSweeps = 1000;  // a rewrite that still finds work then undoes its own

std::unordered_map<const Node*, size_t> number(const Graph& graph) {
  std::unordered_map<const Node*, size_t> position;
  size_t i = 0;
  for (const Node* n = graph.first(); n; n = n->next) position[n] = i++;
  return position;
}

// The meaning traced on the types that were found must be exactly the nodes that were found.
Status same_as_traced(const Match& match, const Graph& traced) {
  std::unordered_map<const Value*, const Value*> found;
  size_t i = 0;
  for (const Node* n = traced.first(); n; n = n->next) {
    if (n->is_input()) {
      found[n->result()] = match.in[std::stoul(n->attrs.text("name"))];
      continue;
    }
    if (i == match.nodes.size()) return invalid("the meaning takes more steps for these types");
    const Node& g = *match.nodes[i++];
    if (g.op != n->op)
      return invalid("for these types the meaning wants {} where %{} is {}", n->op->name, g.result()->id, g.op->name);
    for (auto& [name, value] : n->attrs.entries())
      if (const AttrValue* have = g.attrs.find(name); !have || *have != value)
        return invalid("%{} ({}): {} is {}, expected {}", g.result()->id, g.op->name, name,
                       have ? show(*have) : "missing", show(value));
    std::vector<const Value*> want;
    for (const Value* v : n->in) want.push_back(found.at(v));
    const bool straight = std::equal(want.begin(), want.end(), g.in.begin(), g.in.end());
    if (!straight && n->op->has(op_trait::kCommutes)) std::swap(want[0], want[1]);
    if (!std::equal(want.begin(), want.end(), g.in.begin(), g.in.end()))
      return invalid("%{} ({}) has other operands than the meaning gives it for these types", g.result()->id,
                     g.op->name);
    for (size_t r = 0; r < n->out.size(); ++r) found[n->result(r)] = g.result(r);
  }
  return i == match.nodes.size() ? Status::ok() : invalid("the meaning takes fewer steps for these types");
}

struct Plan {
  Graph body{"replacement"};
  Placement placement;
};

class Runner {
 public:
  Runner(const Rewrite& rewrite, Graph& graph, PassContext& context) : r_(rewrite), g_(graph), c_(context) {}

  Status run() {
    for (auto& e : r_.examples) {
      ASSIGN_OR_RETURN(Pattern p, Pattern::make(r_.name, r_.search, r_.operands, e, c_.ops()));
      patterns_.push_back(std::move(p));
    }
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      ASSIGN_OR_RETURN(bool changed, this->sweep());
      if (!changed) {
        c_.report().tried += applied_ + static_cast<int64_t>(misses_.size());
        for (PassRemark& m : misses_) c_.refuse(std::move(m));
        return Status::ok();
      }
    }
    return error(Code::Internal, "{}: still finds something to do after {} rounds", r_.name, kMaxSweeps);
  }

 private:
  // One walk over the graph; what the last one refuses is what is reported.
  Result<bool> sweep() {
    bool changed = false;
    misses_.clear();
    position_ = number(g_);
    for (Node* n = g_.first(); n;) {
      Node* next = n->next;
      if (is_anchor(*n)) {
        ASSIGN_OR_RETURN(Node * after, visit(n));
        if (after != n) {
          changed = true;
          position_ = number(g_);
          next = after;
        }
      }
      n = next;
    }
    return changed;
  }

  bool is_anchor(const Node& n) const {
    if (n.made_by == r_.name) return false;  // its own work
    return std::any_of(patterns_.begin(), patterns_.end(), [&](auto& p) { return p.anchor_op() == n.op; });
  }

  // The node to go on with after an application; `anchor` itself when nothing was done.
  Result<Node*> visit(Node* anchor) {
    NearMiss miss;
    Plan plan;
    size_t nodes = 0;
    for (const Pattern& p : patterns_) {
      if (p.anchor_op() != anchor->op) continue;
      nodes = std::max(nodes, p.size());
      auto match = p.match(
          anchor, [&](Match& m) { return accept(m, plan); }, miss);
      if (!match) continue;
      if (c_.allowance() == 0) {
        misses_.push_back({anchor->result()->id, "the bisect limit is reached"});
        return anchor;
      }
      (void)c_.may_apply(*anchor);
      ++applied_;
      return apply(*match, plan);
    }
    if (r_.report_partial || miss.depth >= static_cast<int>(nodes)) {
      // Where the search began and how far it came, besides where it broke.
      if (miss.depth < static_cast<int>(nodes) && miss.remark.at != anchor->result()->id)
        miss.remark.reason += fmt::format("; {} of {} nodes fitted, from %{} ({}) on", miss.depth, nodes,
                                          anchor->result()->id, anchor->op->name);
      misses_.push_back(std::move(miss.remark));
    }
    return anchor;
  }

  Status accept(Match& m, Plan& plan) {
    std::vector<TensorType> in;
    for (const Value* v : m.in) in.push_back(v->type);
    ASSIGN_OR_RETURN(Graph traced, nn::trace_meaning(r_.search, r_.operands, g_.symbols(), in, m.attrs, c_.ops()));
    RETURN_IF_ERROR(same_as_traced(m, traced));
    ASSIGN_OR_RETURN(plan.placement, place_match(m, position_));
    if (r_.guard) RETURN_IF_ERROR(r_.guard(m, c_));
    ASSIGN_OR_RETURN(plan.body, nn::trace_meaning(r_.replace, r_.operands, g_.symbols(), in, m.attrs, c_.ops()));
    const auto& out = plan.body.outputs();
    if (out.size() != m.out.size())
      return invalid("the replacement returns {} values, the pattern {}", out.size(), m.out.size());
    for (size_t i = 0; i < out.size(); ++i)
      if (!same_type(out[i].value->type, m.out[i]->type))
        return invalid("result {} of the replacement is {}, the graph has {}", i, describe(out[i].value->type),
                       describe(m.out[i]->type));
    if (!r_.needs_kernels) return Status::ok();
    for (const Node* n = plan.body.first(); n; n = n->next)
      if (!n->is_source()) RETURN_IF_ERROR(c_.has_kernel(*n->op, n->in_types(), n->attrs));
    return Status::ok();
  }

  Result<Node*> apply(Match& m, Plan& plan) {
    Node* after = plan.placement.last->next;
    ASSIGN_OR_RETURN(auto out, inline_graph(g_, plan.body, m.in, r_.name, after));
    for (size_t i = 0; i < out.size(); ++i) g_.replace_all_uses(m.out[i], out[i]);
    for (Node* late : plan.placement.late) g_.move_before(late, after);
    std::sort(m.nodes.begin(), m.nodes.end(), [&](auto* a, auto* b) { return position_.at(a) > position_.at(b); });
    for (Node* n : m.nodes) g_.erase(n);
    return after;
  }

  const Rewrite& r_;
  Graph& g_;
  PassContext& c_;
  std::vector<Pattern> patterns_;
  std::unordered_map<const Node*, size_t> position_;
  std::vector<PassRemark> misses_;
  int64_t applied_ = 0;
};

}  // namespace

Rewrite rewrite_from(const nn::FusedOp& op, const OpRegistry& ops) {
  const OpSchema* const schema = ops.find(op.name());
  CHECK(schema, "fused op {} is not registered", op.name());
  Rewrite r;
  r.name = schema->name;
  r.operands = schema->operands.size();
  r.search = op.meaning;
  r.replace = [name = schema->name](std::span<const Tensor> in, const Attrs& attrs) {
    return in[0].tracer()->call(name, {in.begin(), in.end()}, attrs);
  };
  r.examples = op.examples;
  return r;
}

Status run_rewrite(const Rewrite& rewrite, Graph& graph, PassContext& context) {
  return Runner(rewrite, graph, context).run();
}

Result<Pass> pass_from(Rewrite rewrite, const OpRegistry& ops) {
  for (auto& e : rewrite.examples)
    RETURN_IF_ERROR(Pattern::make(rewrite.name, rewrite.search, rewrite.operands, e, ops).status());
  Pass p;
  p.name = rewrite.name;
  p.run = [r = std::move(rewrite)](Graph& g, PassContext& c) { return run_rewrite(r, g, c); };
  return p;
}

}  // namespace reprise
