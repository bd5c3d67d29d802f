#include "compile/memory_plan.h"

#include <algorithm>
#include <unordered_set>

namespace reprise {
namespace {

size_t align(size_t n) { return (n + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// By node: the last collective that it depends on; -1 without one.
std::unordered_map<const Node*, int64_t> collectives_before(const Graph& graph) {
  std::unordered_map<const Node*, int64_t> last, number_of;
  int64_t number = 0;
  for (const Node* n = graph.first(); n; n = n->next, ++number) {
    int64_t found = -1;
    for (const Value* v : n->in)
      found = std::max({found, last.at(v->def), v->def->op->has(op_trait::kCollective) ? number_of.at(v->def) : -1});
    last[n] = found;
    number_of[n] = number;
  }
  return last;
}

// Those of one memory, largest first, each at the lowest offset where it meets nothing that it may not share bytes
// with.
template <typename Apart>
void place(std::vector<PlannedStorage>& storages, bool exchanged, const Apart& apart, size_t& arena_bytes) {
  std::vector<size_t> order;
  for (size_t i = 0; i < storages.size(); ++i)
    if (storages[i].exchanged == exchanged) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return storages[a].bytes > storages[b].bytes; });
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    PlannedStorage& s = storages[i];
    const size_t size = align(s.bytes);
    size_t at = 0;
    for (size_t j : placed) {
      const PlannedStorage& o = storages[j];
      if (apart(o, s)) continue;
      if (at + size <= o.offset) break;
      at = std::max(at, o.offset + align(o.bytes));
    }
    s.offset = at;
    arena_bytes = std::max(arena_bytes, at + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return storages[a].offset < storages[b].offset; }),
                  i);
  }
}

PlannedStorage storage_of_root(const Value* root, int64_t first, int64_t last, const LiveSizes& bounds) {
  return {root, first,
          last, static_cast<size_t>(root->type.shape.elements(bounds)) * size_of(root->type.dtype),
          0,    root->def->op->has(op_trait::kCollective)};
}

// For check_plan: bytes and the steps in which they are alive.
struct Block {
  int64_t first, last;
  size_t begin, end;
  std::string what;
  const Node* def = nullptr;

  bool shares_bytes_with(const Block& other) const { return begin < other.end && other.begin < end; }
};

Status check_arena(const std::vector<Block>& blocks, size_t bytes) {
  for (size_t a = 0; a < blocks.size(); ++a) {
    if (blocks[a].end > bytes)
      return error(Code::Internal, "memory plan: {} ends at {} of {} bytes", blocks[a].what, blocks[a].end, bytes);
    for (size_t b = a + 1; b < blocks.size(); ++b) {
      const bool together = blocks[a].first <= blocks[b].last && blocks[b].first <= blocks[a].last;
      if (together && blocks[a].shares_bytes_with(blocks[b]))
        return error(Code::Internal, "memory plan: {} and {} overlap while both are alive", blocks[a].what,
                     blocks[b].what);
    }
  }
  return Status::ok();
}

// `number_of` is a node's place in the graph.
Status check_exchange(const std::vector<Block>& shared, size_t bytes,
                      const std::unordered_map<const Node*, int64_t>& number_of) {
  // Whether some collective that `later` depends on stands at or behind `last`.
  const auto left_behind = [&](int64_t last, const Node* later) {
    std::vector<const Node*> open{later};
    std::unordered_set<const Node*> seen;
    while (!open.empty()) {
      const Node* n = open.back();
      open.pop_back();
      for (const Value* v : n->in) {
        if (number_of.at(v->def) < last || !seen.insert(v->def).second) continue;
        if (v->def->op->has(op_trait::kCollective)) return true;
        open.push_back(v->def);
      }
    }
    return false;
  };
  for (size_t a = 0; a < shared.size(); ++a) {
    if (shared[a].end > bytes)
      return error(Code::Internal, "memory plan: {} ends at {} of {} exchanged bytes", shared[a].what, shared[a].end,
                   bytes);
    for (size_t b = a + 1; b < shared.size(); ++b) {
      const Block& first = shared[a].first < shared[b].first ? shared[a] : shared[b];
      const Block& second = &first == &shared[a] ? shared[b] : shared[a];
      if (first.shares_bytes_with(second) && !left_behind(first.last, second.def))
        return error(Code::Internal, "memory plan: {} takes the bytes of {}, which other ranks may still read",
                     second.what, first.what);
    }
  }
  return Status::ok();
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const std::unordered_map<const Node*, size_t>& workspace) {
  MemoryPlan plan;
  const LiveSizes bounds = graph.bounds();
  int64_t number = 0;
  for (const Node* n = graph.first(); n; n = n->next, ++number) {
    for (const Value* v : n->in) {
      auto it = plan.storage_of.find(storage_root(v));
      if (it != plan.storage_of.end()) plan.storages[it->second].last = number;
    }
    if (n->is_source()) continue;
    for (auto& v : n->out) {
      const Value* root = storage_root(v.get());
      if (root->def->is_source()) continue;
      auto [it, fresh] = plan.storage_of.try_emplace(root, plan.storages.size());
      if (fresh) plan.storages.push_back(storage_of_root(root, number, number, bounds));
    }
    if (auto it = workspace.find(n); it != workspace.end() && it->second > 0) {
      plan.workspace_of[n] = plan.storages.size();
      plan.storages.push_back({nullptr, number, number, it->second, 0});
    }
  }
  for (auto& o : graph.outputs()) {
    auto it = plan.storage_of.find(storage_root(o.value));
    if (it != plan.storage_of.end()) plan.storages[it->second].last = number;  // outputs live past the last node
  }
  place(
      plan.storages, false,
      [](const PlannedStorage& a, const PlannedStorage& b) { return a.last < b.first || b.last < a.first; },
      plan.arena_bytes);
  const auto before = collectives_before(graph);
  const auto left_behind = [&](const PlannedStorage& a, const PlannedStorage& b) {
    return a.last <= before.at(b.root->def);
  };
  place(
      plan.storages, true,
      [&](const PlannedStorage& a, const PlannedStorage& b) { return left_behind(a, b) || left_behind(b, a); },
      plan.exchange_bytes);
  return plan;
}

Status check_plan(const Graph& graph, const MemoryPlan& plan) {
  // Recomputes lifetimes by walking the graph backwards, so that a mistake of the planner is not repeated here.
  std::unordered_map<const Value*, std::pair<int64_t, int64_t>> alive;  // root -> first, last
  std::vector<const Node*> nodes;
  for (const Node* n = graph.first(); n; n = n->next) nodes.push_back(n);
  auto touch = [&](const Value* v, int64_t at) {
    auto [it, fresh] = alive.try_emplace(storage_root(v), at, at);
    it->second.first = std::min(it->second.first, at);
    it->second.second = std::max(it->second.second, at);
  };
  for (auto& o : graph.outputs()) touch(o.value, static_cast<int64_t>(nodes.size()));
  for (int64_t i = static_cast<int64_t>(nodes.size()) - 1; i >= 0; --i) {
    for (auto& v : nodes[static_cast<size_t>(i)]->out) touch(v.get(), i);
    for (const Value* v : nodes[static_cast<size_t>(i)]->in) touch(v, i);
  }
  const LiveSizes bounds = graph.bounds();
  std::vector<Block> blocks, shared;
  for (auto& [root, span] : alive) {
    if (root->def->is_source()) continue;
    auto it = plan.storage_of.find(root);
    if (it == plan.storage_of.end()) return error(Code::Internal, "memory plan: %{} has no place", root->id);
    const PlannedStorage& s = plan.storages[it->second];
    const size_t bytes = static_cast<size_t>(root->type.shape.elements(bounds)) * size_of(root->type.dtype);
    const bool exchanged = root->def->op->has(op_trait::kCollective);
    if (s.exchanged != exchanged) return error(Code::Internal, "memory plan: %{} is in the wrong memory", root->id);
    (exchanged ? shared : blocks)
        .push_back({span.first, span.second, s.offset, s.offset + bytes, fmt::format("%{}", root->id), root->def});
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (auto it = plan.workspace_of.find(nodes[i]); it != plan.workspace_of.end()) {
      const PlannedStorage& s = plan.storages[it->second];
      blocks.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i), s.offset, s.offset + s.bytes,
                        fmt::format("workspace of {}", nodes[i]->op->name)});
    }
  std::unordered_map<const Node*, int64_t> number_of;
  for (size_t i = 0; i < nodes.size(); ++i) number_of[nodes[i]] = static_cast<int64_t>(i);
  RETURN_IF_ERROR(check_exchange(shared, plan.exchange_bytes, number_of));
  return check_arena(blocks, plan.arena_bytes);
}

}  // namespace reprise
