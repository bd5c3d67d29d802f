#include "graph/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/kernel.h"
#include "ops/mutation.h"

namespace reprise {

std::string_view stream_name(uint8_t stream) {
  switch (stream) {
    case kMainStream: return "main";
    case kSideStream: return "side";
    default: return "prefetch";
  }
}

std::string node_label(const Node& n) {
  return n.out.empty() ? fmt::format("ahead of %{}", n.in[0]->id) : fmt::format("%{}", n.result()->id);
}

std::vector<TensorType> Node::in_types() const {
  std::vector<TensorType> types;
  types.reserve(in.size());
  for (Value* v : in) types.push_back(v->type);
  return types;
}

std::vector<TensorType> Node::out_types() const {
  std::vector<TensorType> types;
  types.reserve(out.size());
  for (auto& v : out) types.push_back(v->type);
  return types;
}

Result<SymbolId> Graph::add_symbol(std::string name, int64_t bound) {
  if (symbols_.size() + 1 >= kMaxSymbols) return invalid("a graph has at most {} symbols", kMaxSymbols - 1);
  if (bound <= 0) return invalid("symbol {}: the bound {} must be positive", name, bound);
  for (auto& s : symbols_)
    if (s.name == name) return invalid("symbol {} is declared twice", name);
  symbols_.push_back({std::move(name), bound});
  return static_cast<SymbolId>(symbols_.size());
}

LiveSizes Graph::bounds() const {
  LiveSizes live;
  for (size_t i = 0; i < symbols_.size(); ++i) live.value[i + 1] = symbols_[i].bound;
  return live;
}

Node* Graph::link(std::unique_ptr<Node> owned, Node* before) {
  Node* node = owned.get();
  nodes_.push_back(std::move(owned));
  node->next = before;
  node->prev = before ? before->prev : last_;
  (node->prev ? node->prev->next : first_) = node;
  (before ? before->prev : last_) = node;
  return node;
}

void Graph::unlink(Node* node) {
  (node->prev ? node->prev->next : first_) = node->next;
  (node->next ? node->next->prev : last_) = node->prev;
  node->prev = node->next = nullptr;
}

Result<Node*> Graph::add(const OpSchema& op, std::vector<Value*> in, Attrs attrs, std::string made_by, Node* before) {
  const int count = static_cast<int>(in.size());
  if (count < op.min_operands() || count > static_cast<int>(op.operands.size()))
    return invalid("{}: {} operands given; declared: {}", op.name, count, op.decl);
  if (!op.infer) return invalid("{} has no operands to take its type from; use add_source", op.name);
  RETURN_IF_ERROR(check_attrs(op, attrs));
  std::vector<TensorType> types;
  for (Value* v : in) {
    CHECK(v, "operand of {}", op.name);
    types.push_back(v->type);
  }
  ASSIGN_OR_RETURN(auto results, op.infer(OpCall{&op, types, {}, &attrs, {}}));
  CHECK(static_cast<int>(results.size()) == op.results, "{}: shape function gives {} results", op.name, results.size());
  auto node = std::make_unique<Node>();
  node->op = &op;
  node->in = std::move(in);
  node->attrs = std::move(attrs);
  node->made_by = std::move(made_by);
  for (size_t i = 0; i < results.size(); ++i) {
    auto v = std::make_unique<Value>();
    v->id = next_id_++;
    v->type = results[i];
    v->def = node.get();
    v->result = static_cast<uint32_t>(i);
    node->out.push_back(std::move(v));
  }
  for (size_t i = 0; i < node->in.size(); ++i) node->in[i]->uses.push_back({node.get(), static_cast<uint32_t>(i)});
  return link(std::move(node), before);
}

Result<Node*> Graph::add_source(const OpSchema& op, std::string name, TensorType type, std::string made_by,
                                Node* before) {
  if (!op.has(op_trait::kSource)) return invalid("{} is not a source", op.name);
  if (find_source(op.traits, name)) return invalid("{} \"{}\" exists already", op.name, name);
  auto node = std::make_unique<Node>();
  node->op = &op;
  node->attrs.set("name", std::move(name));
  node->made_by = std::move(made_by);
  auto v = std::make_unique<Value>();
  v->id = next_id_++;
  v->type = type;
  v->def = node.get();
  node->out.push_back(std::move(v));
  return link(std::move(node), before);
}

Result<Node*> Graph::add_with_ids(const OpSchema& op, std::vector<Value*> in, Attrs attrs,
                                  std::vector<TensorType> types, std::vector<uint32_t> ids, std::string made_by) {
  Node* node = nullptr;
  if (op.has(op_trait::kSource)) {
    RETURN_IF_ERROR(check_attrs(op, attrs));
    if (types.size() != 1 || !in.empty()) return invalid("{} has no operands and one result", op.name);
    ASSIGN_OR_RETURN(node, add_source(op, attrs.text("name"), types[0], std::move(made_by)));
  } else {
    ASSIGN_OR_RETURN(node, add(op, std::move(in), std::move(attrs), std::move(made_by)));
    if (types.size() != node->out.size()) return invalid("{} has {} results", op.name, node->out.size());
    for (size_t i = 0; i < types.size(); ++i)
      if (!same_type(types[i], node->out[i]->type))
        return invalid("{}: result {} is written as {}, but is {}", op.name, i, describe(types[i]),
                       describe(node->out[i]->type));
  }
  for (size_t i = 0; i < ids.size(); ++i) node->out[i]->id = ids[i];
  for (uint32_t id : ids) next_id_ = std::max(next_id_, id + 1);
  return node;
}

Status Graph::add_output(std::string name, Value* value) {
  for (auto& o : outputs_)
    if (o.name == name) return invalid("output {} exists already", name);
  value->outputs.push_back(name);
  outputs_.push_back({std::move(name), value});
  return Status::ok();
}

Status Graph::remove_output(std::string_view name) {
  const auto it = std::find_if(outputs_.begin(), outputs_.end(), [&](const GraphOutput& o) { return o.name == name; });
  if (it == outputs_.end()) return error(Code::NotFound, "the graph has no output \"{}\"", name);
  std::erase(it->value->outputs, name);
  outputs_.erase(it);
  return Status::ok();
}

Node* Graph::find_source(uint32_t trait, std::string_view name) const {
  for (Node* n = first_; n; n = n->next)
    if (n->op->has(trait) && n->attrs.find("name") && n->attrs.text("name") == name) return n;
  return nullptr;
}

void Graph::set_operand(Node* node, uint32_t operand, Value* value) {
  Value* old = node->in[operand];
  std::erase(old->uses, Use{node, operand});
  node->in[operand] = value;
  value->uses.push_back({node, operand});
}

void Graph::replace_all_uses(Value* from, Value* to) {
  CHECK(from != to);
  const std::vector<Use> uses = from->uses;
  for (const Use& u : uses) set_operand(u.user, u.operand, to);
  for (auto& o : outputs_)
    if (o.value == from) o.value = to;
  to->outputs.insert(to->outputs.end(), from->outputs.begin(), from->outputs.end());
  from->outputs.clear();
}

void Graph::erase(Node* node) {
  for (auto& v : node->out) CHECK(v->uses.empty() && v->outputs.empty(), "erased value %{} is in use", v->id);
  for (size_t i = 0; i < node->in.size(); ++i) std::erase(node->in[i]->uses, Use{node, static_cast<uint32_t>(i)});
  unlink(node);
  std::erase_if(nodes_, [&](auto& n) { return n.get() == node; });
}

int Graph::remove_dead() {
  int removed = 0;
  for (Node* n = last_; n;) {
    Node* prev = n->prev;
    const bool used =
        std::any_of(n->out.begin(), n->out.end(), [](auto& v) { return !v->uses.empty() || !v->outputs.empty(); });
    if (!used && n->op->pure() && !n->is_input() && !n->is_hint()) {
      erase(n);
      ++removed;
    }
    n = prev;
  }
  return removed;
}

void Graph::move_before(Node* node, Node* before) {
  if (node == before) return;
  unlink(node);
  node->next = before;
  node->prev = before ? before->prev : last_;
  (node->prev ? node->prev->next : first_) = node;
  (before ? before->prev : last_) = node;
}

namespace {

Status bad(const Node& n, const Status& why) {
  return error(Code::Internal, "graph: node {} = {}: {}", node_label(n), n.op->name, why.message());
}

Status verify_stream(const Node& n, const std::unordered_set<const Value*>& defined,
                     const std::unordered_set<const Node*>& before) {
  if (n.is_hint() != (n.stream == kPrefetchStream))
    return invalid("hints, and nothing else, are on the prefetch stream; this is on the {} one", stream_name(n.stream));
  if (n.stream == kMainStream && n.waits.empty()) return Status::ok();
  if (n.stream >= kMaxGraphStreams) return invalid("there is no stream {}", n.stream);
  if (!n.is_launched()) return invalid("is no launch, so it is on no stream and waits for nothing");
  if (n.stream != kMainStream && (n.op->has(op_trait::kSplitPoint) || n.op->has(op_trait::kCollective)))
    return invalid("is a split op or a collective, which stay on the main stream");
  for (const Node* w : n.waits) {
    // A node that is gone is not looked at.
    if (!before.contains(w)) return invalid("waits for a node that does not stand before it");
    if (w->is_hint()) return invalid("waits for a hint, which nothing needs");
    if (!defined.contains(w->result()) || !w->is_launched())
      return invalid("waits for %{}, no launch", w->result()->id);
    if (w->stream == n.stream) return invalid("waits for %{} of its own stream", w->result()->id);
  }
  return Status::ok();
}

Status verify_node(const Graph& g, const Node& n, const std::unordered_set<const Value*>& defined) {
  for (size_t i = 0; i < n.in.size(); ++i) {
    const Value* v = n.in[i];
    if (!defined.contains(v)) return invalid("operand {} (%{}) is used before it is defined", i, v->id);
    if (std::count(v->uses.begin(), v->uses.end(), Use{const_cast<Node*>(&n), static_cast<uint32_t>(i)}) != 1)
      return invalid("operand {} (%{}) does not list this use exactly once", i, v->id);
  }
  for (auto& v : n.out)
    for (Dim d : v->type.shape.dims()) {
      if (d.symbol > g.symbols().size()) return invalid("%{} uses symbol {} which is not declared", v->id, d.symbol);
      if (d.factor < 0) return invalid("%{} has a negative size", v->id);
    }
  if (n.is_source()) return Status::ok();
  Attrs attrs = n.attrs;
  RETURN_IF_ERROR(check_attrs(*n.op, attrs));
  const auto in = n.in_types();
  ASSIGN_OR_RETURN(auto types, n.op->infer(OpCall{n.op, in, {}, &attrs, {}}));
  if (types.size() != n.out.size())
    return invalid("has {} results, its shape function gives {}", n.out.size(), types.size());
  for (size_t i = 0; i < types.size(); ++i)
    if (!same_type(types[i], n.out[i]->type))
      return invalid("result {} is {}, its shape function gives {}", i, describe(n.out[i]->type), describe(types[i]));
  return Status::ok();
}

}  // namespace

const Value* storage_root(const Value* v) {
  while (true) {
    const Node* n = v->def;
    if (n->is_view())
      v = n->in[0];
    else if (const int m = continued_operand(*n->op, v->result); m >= 0)
      v = n->in[static_cast<size_t>(m)];
    else
      return v;
  }
}

bool is_cache(const Value& v) {
  return v.def->is_input() && std::any_of(v.uses.begin(), v.uses.end(), [](const Use& u) {
           return u.declared().role == OperandRole::Cache || u.declared().mutated;
         });
}

Status verify(const Graph& g) {
  std::unordered_set<const Value*> defined;
  std::unordered_set<const Node*> before;
  std::unordered_set<std::string> sources;
  std::unordered_map<const Value*, const Value*> newest;  // storage -> the only name it may be read under
  size_t uses = 0, listed = 0;
  const Node* prev = nullptr;
  for (const Node* n = g.first(); n; prev = n, n = n->next) {
    if (n->prev != prev) return bad(*n, invalid("the node list is broken"));
    if (Status s = verify_node(g, *n, defined); !s.is_ok()) return bad(*n, s);
    if (Status s = verify_stream(*n, defined, before); !s.is_ok()) return bad(*n, s);
    before.insert(n);
    if (n->is_source() && !sources.insert(n->op->name + ":" + n->attrs.text("name")).second)
      return bad(*n, invalid("a second {} is named \"{}\"", n->op->name, n->attrs.text("name")));
    for (const Value* v : n->in) {
      auto it = newest.find(storage_root(v));
      if (it != newest.end()) {
        const Value* x = v;
        while (x != it->second && x->def->is_view()) x = x->def->in[0];
        if (x != it->second)
          return bad(*n, invalid("reads %{}, which %{} has overwritten since", v->id, it->second->id));
      }
    }
    for (size_t r = 0; r < n->out.size() && continued_operand(*n->op, r) >= 0; ++r)
      newest[storage_root(n->result(r))] = n->result(r);
    uses += n->in.size();
    for (auto& v : n->out) {
      if (v->def != n) return bad(*n, invalid("%{} names another node as its definition", v->id));
      defined.insert(v.get());
      listed += v->uses.size();
    }
  }
  if (prev != g.last()) return error(Code::Internal, "graph: the node list ends too early");
  if (uses != listed) return error(Code::Internal, "graph: {} operands, but {} uses are listed", uses, listed);
  std::unordered_set<std::string> names;
  for (auto& o : g.outputs()) {
    if (!defined.contains(o.value))
      return error(Code::Internal, "graph: output {} is not a value of the graph", o.name);
    if (!names.insert(o.name).second) return error(Code::Internal, "graph: two outputs are named {}", o.name);
  }
  return Status::ok();
}

}  // namespace reprise
