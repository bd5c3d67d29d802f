// check_plan(): the proof of a memory plan, and of the waits between streams. It shares nothing with the planner and
// with set_waits() but the graph: who touches what is collected backwards, and order is reachability, not clocks.
#include <algorithm>
#include <unordered_set>

#include "compile/memory_plan.h"
#include "ops/mutation.h"

namespace reprise {
namespace {

// Which nodes are done when another begins, by their numbers.
class Order {
 public:
  explicit Order(const std::vector<const Node*>& nodes) : size_(nodes.size()) {
    several_ = std::any_of(nodes.begin(), nodes.end(), [](const Node* n) { return n->stream != kMainStream; });
    if (!several_) return;
    std::unordered_map<const Node*, size_t> number_of;
    std::unordered_map<uint8_t, size_t> newest;  // by stream
    words_ = (size_ + 63) / 64;
    done_.assign(size_ * words_, 0);
    for (size_t i = 0; i < size_; ++i) {
      const Node& n = *nodes[i];
      number_of[&n] = i;
      if (n.is_source() || n.is_view()) continue;  // the host's, before the step; nothing at all
      for (const Node* w : n.waits) follow(i, number_of.at(w));
      if (auto it = newest.find(n.stream); it != newest.end()) follow(i, it->second);
      newest[n.stream] = i;
    }
  }

  bool several_streams() const { return several_; }
  bool done_before(size_t a, size_t b) const {
    return several_ ? (done_[b * words_ + a / 64] >> a % 64 & 1) != 0 : a < b;
  }

 private:
  void follow(size_t later, size_t earlier) {
    uint64_t* to = &done_[later * words_];
    to[earlier / 64] |= uint64_t{1} << earlier % 64;
    for (size_t i = 0; i <= earlier / 64; ++i) to[i] |= done_[earlier * words_ + i];
  }

  size_t size_, words_ = 0;
  bool several_ = false;
  std::vector<uint64_t> done_;  // a row of bits per node: which are done before it
};

// Bytes, and the nodes that touch them, the first of which makes them.
struct Block {
  std::vector<size_t> touches;
  bool for_ever = false;
  size_t begin = 0, end = 0;
  std::string what;
  const Node* def = nullptr;

  bool shares_bytes_with(const Block& other) const { return begin < other.end && other.begin < end; }
  bool over_before(const Block& later, const Order& order) const {
    return !for_ever && std::all_of(touches.begin(), touches.end(),
                                    [&](size_t t) { return order.done_before(t, later.touches.front()); });
  }
};

Status check_arena(const std::vector<Block>& blocks, size_t bytes, const Order& order) {
  for (size_t a = 0; a < blocks.size(); ++a) {
    if (blocks[a].end > bytes)
      return error(Code::Internal, "memory plan: {} ends at {} of {} bytes", blocks[a].what, blocks[a].end, bytes);
    for (size_t b = a + 1; b < blocks.size(); ++b) {
      if (!blocks[a].shares_bytes_with(blocks[b])) continue;
      if (!blocks[a].over_before(blocks[b], order) && !blocks[b].over_before(blocks[a], order))
        return error(Code::Internal, "memory plan: {} and {} overlap while both are alive", blocks[a].what,
                     blocks[b].what);
    }
  }
  return Status::ok();
}

// Whether a collective that `later` depends on comes behind all that touch `first`, or is the last of these.
bool left_behind(const Block& first, const Node* later, const Order& order,
                 const std::unordered_map<const Node*, size_t>& number_of) {
  if (first.for_ever) return false;
  std::vector<const Node*> open{later};
  std::unordered_set<const Node*> seen;
  while (!open.empty()) {
    const Node* n = open.back();
    open.pop_back();
    for (const Value* v : n->in) {
      const Node* def = v->def;
      if (!seen.insert(def).second) continue;
      const size_t meeting = number_of.at(def);
      if (def->op->has(op_trait::kCollective) && std::all_of(first.touches.begin(), first.touches.end(), [&](size_t t) {
            return t == meeting || order.done_before(t, meeting);
          }))
        return true;
      open.push_back(def);
    }
  }
  return false;
}

Status check_exchange(const std::vector<Block>& shared, size_t bytes, const Order& order,
                      const std::unordered_map<const Node*, size_t>& number_of) {
  for (size_t a = 0; a < shared.size(); ++a) {
    if (shared[a].end > bytes)
      return error(Code::Internal, "memory plan: {} ends at {} of {} exchanged bytes", shared[a].what, shared[a].end,
                   bytes);
    for (size_t b = a + 1; b < shared.size(); ++b) {
      const Block& first = shared[a].touches.front() < shared[b].touches.front() ? shared[a] : shared[b];
      const Block& second = &first == &shared[a] ? shared[b] : shared[a];
      if (first.shares_bytes_with(second) && !left_behind(first, second.def, order, number_of))
        return error(Code::Internal, "memory plan: {} takes the bytes of {}, which other ranks may still read",
                     second.what, first.what);
    }
  }
  return Status::ok();
}

using Touches = std::unordered_map<const Value*, std::vector<size_t>>;  // root -> nodes, in order

Touches touches_of(const std::vector<const Node*>& nodes, const Order& order) {
  Touches out;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (order.several_streams() && nodes[i]->is_view()) continue;
    for (auto& v : nodes[i]->out) out[storage_root(v.get())].push_back(i);
    for (const Value* v : nodes[i]->in) out[storage_root(v)].push_back(i);
  }
  for (auto& [root, list] : out) std::reverse(list.begin(), list.end());
  return out;
}

bool writes(const Node& n, const Value* root) {
  for (auto& v : n.out)
    if (storage_root(v.get()) == root) return true;
  for (const size_t i : mutated_operands(*n.op))
    if (i < n.in.size() && storage_root(n.in[i]) == root) return true;
  return false;
}

// Between streams the order of the list is worth nothing: a launch that writes has waited for all launches before that
// touch the bytes, and those behind it wait for it.
Status check_waits(const std::vector<const Node*>& nodes, const Touches& touches, const Order& order) {
  if (!order.several_streams()) return Status::ok();
  for (auto& [root, list] : touches) {
    for (size_t a = 0; a < list.size(); ++a) {
      const Node& first = *nodes[list[a]];
      if (first.is_source()) continue;
      for (size_t b = a + 1; b < list.size(); ++b) {
        const Node& second = *nodes[list[b]];
        if (list[a] == list[b] || (!writes(first, root) && !writes(second, root))) continue;
        if (!order.done_before(list[a], list[b]))
          return error(Code::Internal, "streams: {} {} touches %{} and does not wait for {} {}", second.op->name,
                       node_label(second), root->id, first.op->name, node_label(first));
      }
    }
  }
  return Status::ok();
}

}  // namespace

Status check_plan(const Graph& graph, const MemoryPlan& plan) {
  std::vector<const Node*> nodes;
  std::unordered_map<const Node*, size_t> number_of;
  for (const Node* n = graph.first(); n; n = n->next) {
    number_of[n] = nodes.size();
    nodes.push_back(n);
  }
  const Order order(nodes);
  const Touches touches = touches_of(nodes, order);
  RETURN_IF_ERROR(check_waits(nodes, touches, order));
  std::unordered_set<const Value*> outputs;
  for (auto& o : graph.outputs()) outputs.insert(storage_root(o.value));
  const LiveSizes bounds = graph.bounds();
  std::vector<Block> blocks, shared;
  for (auto& [root, list] : touches) {
    if (root->def->is_source()) continue;
    auto it = plan.storage_of.find(root);
    if (it == plan.storage_of.end()) return error(Code::Internal, "memory plan: %{} has no place", root->id);
    const PlannedStorage& s = plan.storages[it->second];
    const size_t bytes = static_cast<size_t>(root->type.shape.elements(bounds)) * size_of(root->type.dtype);
    const bool exchanged = root->def->op->has(op_trait::kCollective);
    if (s.exchanged != exchanged) return error(Code::Internal, "memory plan: %{} is in the wrong memory", root->id);
    (exchanged ? shared : blocks)
        .push_back({list, outputs.contains(root), s.offset, s.offset + bytes, fmt::format("%{}", root->id), root->def});
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (auto it = plan.workspace_of.find(nodes[i]); it != plan.workspace_of.end()) {
      const PlannedStorage& s = plan.storages[it->second];
      blocks.push_back(
          {{i}, false, s.offset, s.offset + s.bytes, fmt::format("workspace of {}", nodes[i]->op->name), nodes[i]});
    }
  RETURN_IF_ERROR(check_exchange(shared, plan.exchange_bytes, order, number_of));
  return check_arena(blocks, plan.arena_bytes, order);
}

}  // namespace reprise
