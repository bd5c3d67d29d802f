#include "compile/memory_plan.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "graph/streams.h"

namespace reprise {
namespace {

size_t align(size_t n) { return (n + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// By node: the last collective that it depends on; null without one.
std::unordered_map<const Node*, const Node*> collectives_before(const Graph& graph, const StreamClocks& clocks) {
  std::unordered_map<const Node*, const Node*> last;
  const auto later = [&](const Node* a, const Node* b) {
    return !a || (b && clocks.number(a) < clocks.number(b)) ? b : a;
  };
  for (const Node* n = graph.first(); n; n = n->next) {
    const Node* found = nullptr;
    for (const Value* v : n->in) {
      found = later(found, last.at(v->def));
      if (v->def->op->has(op_trait::kCollective)) found = later(found, v->def);
    }
    last[n] = found;
  }
  return last;
}

// Who touches a storage: the last node of each stream, and the one that makes it.
struct Life {
  const Node* def = nullptr;
  StreamClock last;

  void touch(uint8_t stream, int64_t number) { last[stream] = std::max(last[stream], number); }
  bool over(const StreamClock& done) const {
    for (size_t s = 0; s < last.size(); ++s)
      if (last[s] > done[s]) return false;
    return true;
  }
};

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

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

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const std::unordered_map<const Node*, size_t>& workspace, bool one_stream) {
  MemoryPlan plan;
  const LiveSizes bounds = graph.bounds();
  const StreamClocks clocks(graph, one_stream);
  const bool streams = !one_stream && has_side_streams(graph);
  const auto stream_of = [&](const Node* n) { return one_stream ? kMainStream : n->stream; };
  std::vector<Life> lives;  // as plan.storages
  const auto add = [&](PlannedStorage storage, const Node* def) {
    plan.storages.push_back(storage);
    lives.push_back({def, {}});
    lives.back().last.fill(-1);
    lives.back().touch(stream_of(def), storage.first);
  };
  int64_t number = 0;
  for (const Node* n = graph.first(); n; n = n->next, ++number) {
    // Between streams a view is nothing: its readers count.
    for (const Value* v : n->in) {
      auto it = plan.storage_of.find(storage_root(v));
      if (it == plan.storage_of.end() || (streams && n->is_view())) continue;
      plan.storages[it->second].last = number;
      lives[it->second].touch(stream_of(n), number);
    }
    if (n->is_source()) continue;
    for (auto& v : n->out) {
      const Value* root = storage_root(v.get());
      if (root->def->is_source()) continue;
      auto [it, fresh] = plan.storage_of.try_emplace(root, plan.storages.size());
      if (fresh) add(storage_of_root(root, number, number, bounds), n);
    }
    if (auto it = workspace.find(n); it != workspace.end() && it->second > 0) {
      plan.workspace_of[n] = plan.storages.size();
      add({nullptr, number, number, it->second, 0}, n);
    }
  }
  for (auto& o : graph.outputs()) {
    auto it = plan.storage_of.find(storage_root(o.value));
    if (it == plan.storage_of.end()) continue;
    plan.storages[it->second].last = number;  // outputs live past the last node
    lives[it->second].touch(kMainStream, kForEver);
  }
  const auto life = [&](const PlannedStorage& s) -> const Life& { return lives[&s - plan.storages.data()]; };
  const auto before = [&](const PlannedStorage& a, const PlannedStorage& b) {
    return life(a).over(clocks.before(life(b).def));
  };
  place(
      plan.storages, false,
      [&](const PlannedStorage& a, const PlannedStorage& b) { return before(a, b) || before(b, a); }, plan.arena_bytes);
  const auto collectives = collectives_before(graph, clocks);
  const auto left_behind = [&](const PlannedStorage& a, const PlannedStorage& b) {
    const Node* meeting = collectives.at(b.root->def);
    return meeting && life(a).over(clocks.after(meeting));
  };
  place(
      plan.storages, true,
      [&](const PlannedStorage& a, const PlannedStorage& b) { return left_behind(a, b) || left_behind(b, a); },
      plan.exchange_bytes);
  return plan;
}

}  // namespace reprise
