#include "passes/pattern.h"

#include <algorithm>

namespace reprise {
std::string show(const AttrValue& v) {
  if (auto* i = std::get_if<int64_t>(&v)) return fmt::format("{}", *i);
  if (auto* f = std::get_if<double>(&v)) return fmt::format("{}", *f);
  if (auto* s = std::get_if<std::string>(&v)) return fmt::format("\"{}\"", *s);
  return fmt::format("[{}]", fmt::join(std::get<std::vector<double>>(v), ", "));
}

namespace {

constexpr int kSameOp = 100;  // more than any op has operands

// How like an op is to the one that a pattern wants: by the operands that both have.
int likeness(const OpSchema& wanted, const OpSchema& found) {
  if (&wanted == &found) return kSameOp;
  int shared = 0;
  for (const OperandSchema& a : wanted.operands)
    shared += std::any_of(found.operands.begin(), found.operands.end(),
                          [&](const OperandSchema& b) { return a.name == b.name && a.is_index() == b.is_index(); });
  return shared;
}

}  // namespace

// One search. State is copied where there is a choice: patterns have a dozen nodes.
class Matcher {
 public:
  Matcher(const Pattern& pattern, const std::function<Status(Match&)>& accept, NearMiss& miss)
      : p_(pattern), accept_(accept), miss_(miss) {}

  std::optional<Match> run(Node* anchor) {
    State s;
    s.node.resize(p_.nodes_.size());
    s.variable.resize(p_.example_.entries().size());
    s.pending.emplace_back(p_.nodes_.back()->result(), anchor->result());
    if (!solve(std::move(s))) return std::nullopt;
    return std::move(found_);
  }

 private:
  struct State {
    std::vector<Node*> node;                         // by pattern node
    std::unordered_map<const Value*, Value*> value;  // pattern value -> graph value
    std::vector<std::optional<AttrValue>> variable;
    std::vector<std::pair<const Value*, Value*>> pending;
    int depth = 0;
  };

  template <typename F>
  bool fail(const State& s, const Node& at, F&& reason, int like = kSameOp) {
    if (s.depth > miss_.depth || (s.depth == miss_.depth && like > miss_.likeness))
      miss_ = {s.depth, like, {at.result()->id, reason()}};
    return false;
  }

  bool solve(State s) {
    while (!s.pending.empty()) {
      const Value* const pattern = s.pending.back().first;
      Value* const value = s.pending.back().second;
      s.pending.pop_back();
      if (auto it = s.value.find(pattern); it != s.value.end()) {
        if (it->second == value) continue;
        return fail(s, *value->def,
                    [&] { return fmt::format("expected %{} again, found %{}", it->second->id, value->id); });
      }
      const Node& pn = *pattern->def;
      if (pn.op->has(op_trait::kSource)) {
        if (!bind_value(s, pattern, value)) return false;
        continue;
      }
      if (!bind_node(s, pn, pattern, value)) return false;
      Node& gn = *value->def;
      if (pn.op->has(op_trait::kCommutes) && gn.in[0] != gn.in[1]) {
        State straight = s;
        push_operands(straight, pn, gn, false);
        if (solve(std::move(straight))) return true;
        push_operands(s, pn, gn, true);
      } else {
        push_operands(s, pn, gn, false);
      }
    }
    return finish(std::move(s));
  }

  static void push_operands(State& s, const Node& pn, Node& gn, bool swapped) {
    for (size_t i = pn.in.size(); i-- > 0;) s.pending.emplace_back(pn.in[i], gn.in[swapped && i < 2 ? 1 - i : i]);
  }

  bool bind_node(State& s, const Node& pn, const Value* pattern, Value* value) {
    Node& gn = *value->def;
    if (gn.op != pn.op || value->result != pattern->result)
      return fail(
          s, gn, [&] { return fmt::format("expected {}, found {}", pn.op->name, gn.op->name); },
          likeness(*pn.op, *gn.op));
    if (gn.in.size() != pn.in.size())
      return fail(s, gn, [&] {
        return fmt::format("expected {} with {} operands, found {}", pn.op->name, pn.in.size(), gn.in.size());
      });
    if (std::find(s.node.begin(), s.node.end(), &gn) != s.node.end())
      return fail(s, gn, [&] { return fmt::format("%{} would be matched twice", gn.result()->id); });
    for (const Attrs::Entry& entry : pn.attrs.entries()) {
      const std::string& name = entry.first;
      const AttrValue& expected = entry.second;
      const AttrValue& found = *gn.attrs.find(name);
      if (auto site = p_.attr_sites_.find(&expected); site != p_.attr_sites_.end()) {
        if (!bind_variable(s, gn, site->second, found)) return false;
      } else if (!std::holds_alternative<int64_t>(expected) && found != expected) {
        return fail(s, gn, [&] {
          return fmt::format("{}: {} is {}, expected {}", pn.op->name, name, show(found), show(expected));
        });
      }
    }
    s.node[p_.node_index_.at(&pn)] = &gn;
    ++s.depth;
    for (size_t i = 0; i < pn.out.size(); ++i)
      if (!bind_value(s, pn.result(i), gn.result(i))) return false;
    return true;
  }

  bool bind_value(State& s, const Value* pattern, Value* value) {
    s.value[pattern] = value;
    const Shape& shape = value->type.shape;
    if (auto it = p_.dim_sites_.find(pattern); it != p_.dim_sites_.end())
      for (const Pattern::DimSite& site : it->second) {
        if (site.dim >= shape.rank() || !shape[site.dim].is_constant())
          return fail(s, *value->def,
                      [&] { return fmt::format("size {} of %{} is not a constant", site.dim, value->id); });
        if (!bind_variable(s, *value->def, site.variable, shape[site.dim].factor)) return false;
      }
    return true;
  }

  bool bind_variable(State& s, const Node& at, size_t variable, const AttrValue& value) {
    auto& slot = s.variable[variable];
    if (!slot) slot = value;
    if (*slot == value) return true;
    return fail(s, at, [&] {
      return fmt::format("{} is {} here and {} elsewhere in the pattern", p_.example_.entries()[variable].first,
                         show(value), show(*slot));
    });
  }

  // Everything reached so far fits: continue at a node that shares an operand with it, or ask for acceptance.
  bool finish(State s) {
    for (size_t i = 0; i < s.node.size(); ++i) {
      if (s.node[i]) continue;
      const Node& pn = *p_.nodes_[i];
      for (size_t operand = 0; operand < pn.in.size(); ++operand) {
        auto bound = s.value.find(pn.in[operand]);
        if (bound == s.value.end()) continue;
        return try_users(s, pn, operand, bound->second);
      }
    }
    Match m;
    m.nodes = s.node;
    for (const Value* v : p_.inputs_) m.in.push_back(s.value.contains(v) ? s.value[v] : nullptr);
    for (const Value* v : p_.outputs_) m.out.push_back(s.value[v]);
    m.attrs = p_.example_;
    for (size_t i = 0; i < s.variable.size(); ++i)
      if (s.variable[i]) m.attrs.entries()[i].second = *s.variable[i];
    Status verdict = accept_(m);
    if (!verdict.is_ok()) return fail(s, *m.nodes.back(), [&] { return verdict.message(); });
    found_ = std::move(m);
    return true;
  }

  bool try_users(const State& s, const Node& pn, size_t operand, Value* shared) {
    bool any = false;
    std::vector<Node*> seen;
    for (const Use& u : shared->uses) {
      const bool place = u.operand == operand || (pn.op->has(op_trait::kCommutes) && operand < 2 && u.operand < 2);
      if (u.user->op != pn.op || !place || std::find(seen.begin(), seen.end(), u.user) != seen.end()) continue;
      if (std::find(s.node.begin(), s.node.end(), u.user) != s.node.end()) continue;
      seen.push_back(u.user);
      any = true;
      State next = s;
      next.pending.emplace_back(pn.result(), u.user->result());
      if (solve(std::move(next))) return true;
    }
    if (!any)
      return fail(s, *shared->def, [&] { return fmt::format("no other {} uses %{}", pn.op->name, shared->id); });
    return false;
  }

  const Pattern& p_;
  const std::function<Status(Match&)>& accept_;
  NearMiss& miss_;
  Match found_;
};

Result<Pattern> Pattern::make(std::string_view name, const nn::Meaning& search, size_t operands,
                              const nn::FusedExample& example, const OpRegistry& ops) {
  Pattern p;
  auto traced = nn::trace_meaning(search, operands, example.symbols, example.in, example.attrs, ops);
  if (!traced.is_ok()) return traced.status().at(fmt::format("{}: the pattern's example", name));
  p.graph_ = std::move(*traced);
  p.example_ = example.attrs;
  p.inputs_.resize(example.in.size());
  const auto& variables = p.example_.entries();
  for (Node* n = p.graph_.first(); n; n = n->next) {
    for (size_t v = 0; v < variables.size(); ++v) {
      for (auto& [attr, value] : n->attrs.entries())
        if (!n->is_source() && value == variables[v].second) p.attr_sites_[&value] = v;
      auto* number = std::get_if<int64_t>(&variables[v].second);
      for (auto& out : n->out)
        for (int d = 0; number && d < out->type.shape.rank(); ++d)
          if (out->type.shape[d].is_constant() && out->type.shape[d].factor == *number)
            p.dim_sites_[out.get()].push_back({d, v});
    }
    if (n->is_source()) {
      if (!n->is_input()) return invalid("{}: a pattern takes operands, not a {}", name, n->op->name);
      p.inputs_[std::stoul(n->attrs.text("name"))] = n->result();
    } else {
      p.node_index_[n] = p.nodes_.size();
      p.nodes_.push_back(n);
    }
  }
  for (auto& o : p.graph_.outputs()) {
    if (o.value->def->is_source()) return invalid("{}: a pattern cannot return an operand", name);
    p.outputs_.push_back(o.value);
  }
  if (p.nodes_.empty()) return invalid("{}: the pattern has no nodes", name);
  for (size_t i = 0; i < p.inputs_.size(); ++i)
    if (p.inputs_[i]->uses.empty()) return invalid("{}: operand {} is not used by the pattern", name, i);
  // Everything must hang together, or there would be nothing to go by.
  std::vector<const Node*> reached{p.nodes_.back()};
  for (size_t i = 0; i < reached.size(); ++i) {
    auto visit = [&](const Node* n) {
      if (!n->is_source() && std::find(reached.begin(), reached.end(), n) == reached.end()) reached.push_back(n);
    };
    for (const Value* v : reached[i]->in) {
      visit(v->def);
      for (const Use& u : v->uses) visit(u.user);
    }
    for (auto& v : reached[i]->out)
      for (const Use& u : v->uses) visit(u.user);
  }
  if (reached.size() != p.nodes_.size()) return invalid("{}: the pattern falls apart into unconnected pieces", name);
  return p;
}

std::optional<Match> Pattern::match(Node* anchor, const std::function<Status(Match&)>& accept, NearMiss& miss) const {
  return Matcher(*this, accept, miss).run(anchor);
}

}  // namespace reprise
