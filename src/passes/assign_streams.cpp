// Which launches run beside which: two branches between a fork and the launch that joins them. A join's operands have
// cones, the launches that lead to them since the last split op; what lies in the cones of some operands alone is a
// branch. Branches are worth a stream where one routes rows to experts and the other multiplies by weights (a shared
// expert), or where an op reads a cache that is written beside a product of the queries (attention over latents). All
// side branches share one stream.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/streams.h"
#include "passes/house_passes.h"

namespace reprise {
namespace {

using Launches = std::unordered_set<Node*>;

bool multiplies(const Node& n) { return n.op->has(OperandRole::Weight); }
bool routes(const Node& n) { return n.op->has(op_trait::kRoutes); }

Launches without(const Launches& a, const Launches& b) {
  Launches out;
  for (Node* n : a)
    if (!b.contains(n)) out.insert(n);
  return out;
}

template <typename Test>
bool any(const Launches& launches, Test test) {
  return std::any_of(launches.begin(), launches.end(), [&](Node* n) { return test(*n); });
}

class StreamAssigner {
 public:
  StreamAssigner(Graph& g, PassContext& c) : g_(g), c_(c) {
    for (Node* n = g.first(); n; n = n->next) {
      number_[n] = static_cast<int64_t>(number_.size());
      for (auto& v : n->out)
        for (const Use& u : v->uses)
          if (u.declared().mutated) written_.insert(storage_root(v.get()));
    }
  }

  Status run() {
    std::vector<Node*> nodes;
    for (Node* n = g_.first(); n; n = n->next) nodes.push_back(n);
    for (Node* n : nodes) {
      if (n->is_launched()) visit(n);
      if (n->op->has(op_trait::kSplitPoint)) begin_ = number_.at(n) + 1;
    }
    set_waits(g_);
    return Status::ok();
  }

 private:
  // What leads to these operands, back to the last split op.
  Launches cone(const Node* join, const std::vector<size_t>& operands) const {
    Launches found;
    std::unordered_set<Node*> seen;
    std::vector<Node*> open;
    for (const size_t i : operands) open.push_back(join->in[i]->def);
    while (!open.empty()) {
      Node* n = open.back();
      open.pop_back();
      if (n->is_source() || number_.at(n) < begin_ || !seen.insert(n).second) continue;
      if (n->is_launched()) found.insert(n);
      for (const Value* v : n->in) open.push_back(v->def);
    }
    return found;
  }

  void visit(Node* join) {
    std::vector<size_t> routed, rest, cached, queried;
    const Launches common = common_cone(join);
    for (size_t i = 0; i < join->in.size(); ++i) {
      if (join->in[i]->def->is_param()) continue;
      (any(without(cone(join, {i}), common), routes) ? routed : rest).push_back(i);
      const OperandSchema& declared = join->op->operands[i];
      (declared.role == OperandRole::Cache && !declared.mutated ? cached : queried).push_back(i);
    }
    if (!routed.empty() && !rest.empty()) return beside_experts(join, cone(join, routed), cone(join, rest));
    if (!cached.empty() && !queried.empty()) return beside_queries(join, cone(join, queried), cone(join, cached));
  }

  // What leads to every operand that something leads to: layers before, where no split op is in between.
  Launches common_cone(const Node* join) const {
    std::optional<Launches> common;
    for (size_t i = 0; i < join->in.size(); ++i) {
      const Launches own = cone(join, {i});
      if (own.empty()) continue;
      common = common ? without(*common, without(*common, own)) : own;
    }
    return common.value_or(Launches());
  }

  void beside_experts(Node* join, const Launches& experts, const Launches& others) {
    const Launches main = without(experts, others), side = without(others, experts);
    if (side.empty() || !any(main, routes)) return;
    c_.count_tried();
    if (!any(side, multiplies)) return c_.refuse(*join, "what could run beside the experts multiplies by no weights");
    fork(join, main, side);
  }

  void beside_queries(Node* join, const Launches& queries, const Launches& caches) {
    const Launches main = without(queries, caches), side = without(caches, queries);
    c_.count_tried();
    if (side.empty()) return c_.refuse(*join, "the launch that makes the queries writes the cache as well");
    // A product that reads what no launch of the branch has made reads what keys and values are made of, too: where
    // such products are packed they are one.
    const bool own = any(main, [&](const Node& n) {
      return multiplies(n) &&
             std::any_of(n.in.begin(), n.in.end(), [&](const Value* v) { return main.contains(made_by(v)); });
    });
    if (!own) return c_.refuse(*join, "the queries wait for no product that reads queries: beside it would be little");
    fork(join, main, side);
  }

  // The launch or source whose bytes a value is.
  static Node* made_by(const Value* v) {
    while (v->def->is_view()) v = v->def->in[0];
    return v->def;
  }

  // Collectives stay on the main stream, and with them what follows them in the branch.
  Launches without_collectives(const Launches& branch) const {
    Launches out;
    for (Node* n : in_order(branch)) {
      const bool behind = std::any_of(n->in.begin(), n->in.end(), [&](const Value* v) {
        return branch.contains(made_by(v)) && !out.contains(made_by(v));
      });
      if (!behind && !n->op->has(op_trait::kCollective)) out.insert(n);
    }
    return out;
  }

  void fork(Node* join, const Launches& main, const Launches& branch) {
    const Launches side = without_collectives(branch);
    if (side.empty())
      return c_.refuse(*join, "every launch of the branch follows a collective, and those stay on the main stream");
    if (any(side, [](const Node& n) { return n.stream != kMainStream; }))
      return c_.refuse(*join, "a part of the branch runs beside something else already");
    if (!c_.may_apply(*join)) return;
    std::vector<Node*> ordered = in_order(side);
    c_.applied(*join, fmt::format("{} beside {}", names(ordered), names(in_order(main))));
    for (Node* n : ordered) n->stream = kSideStream;
    for (auto n = ordered.rbegin(); n != ordered.rend(); ++n) put_late(*n);
  }

  // The side stream runs in the order of the list: a launch that waits for a late one of the main stream would hold up
  // what needs not wait. Only what depends on no write in place may move.
  void put_late(Node* n) {
    const auto lasting = [this](const Value* v) {
      const Value* root = storage_root(v);
      return root->def->is_param() || (!root->def->is_input() && root->def->op->pure() && !written_.contains(root));
    };
    if (!n->op->pure() || !std::all_of(n->in.begin(), n->in.end(), lasting)) return;
    Node* first = nullptr;
    for (auto& v : n->out)
      for (const Use& u : v->uses)
        if (u.declared().mutated)
          return;
        else if (!first || number_.at(u.user) < number_.at(first))
          first = u.user;
    if (first && n->next != first) {
      g_.move_before(n, first);
      // It stands where its first user stood, and behind all that stood before that.
      renumber();
    }
  }

  void renumber() {
    int64_t number = 0;
    for (Node* n = g_.first(); n; n = n->next) number_[n] = number++;
  }

  std::vector<Node*> in_order(const Launches& launches) const {
    std::vector<Node*> out(launches.begin(), launches.end());
    std::sort(out.begin(), out.end(), [&](Node* a, Node* b) { return number_.at(a) < number_.at(b); });
    return out;
  }
  static std::string names(const std::vector<Node*>& launches) {
    std::vector<std::string_view> out;
    for (const Node* n : launches) out.push_back(n->op->name);
    return fmt::format("{}", fmt::join(out, " "));
  }

  Graph& g_;
  PassContext& c_;
  std::unordered_map<const Node*, int64_t> number_;
  std::unordered_set<const Value*> written_;  // by some node, under any of its names
  int64_t begin_ = 0;                         // behind the last split op
};

}  // namespace

Pass assign_streams() {
  return {"assign_streams", false, [](Graph& g, PassContext& c) { return StreamAssigner(g, c).run(); }};
}

}  // namespace reprise
