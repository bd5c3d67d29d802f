// MemoryPlan: where every value of a graph lives, as offsets into one arena; and the results of collectives, as offsets
// into the memory that ranks exchange them in.
//
// Values that alias (views, writes in place) share one storage. A storage lives from its definition to the last use of
// any of its names; storages that are never alive together may share bytes. Sizes are taken at the symbols' bounds, so
// one plan serves every live size. Inputs, params and what continues them are not in the arena. A plan is plain data
// about one graph.
//
// Where a graph has several streams "before" is a partial order: two storages, or workspaces, share bytes only if every
// launch that touches one is known to be done when the launch that makes the other begins (graph/streams.h).
//
// What ranks exchange is written by all of them. A rank that writes the result of collective d knows of the others only
// that they have come to the collectives which d depends on: before the last of these, they have read all they wanted.
// So a result whose bytes d takes over was last read before that one. Which collectives run in between does not count:
// heads leave theirs out.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace reprise {

constexpr size_t kArenaAlignment = 64;  // a cache line, and the widest vector

struct PlannedStorage {
  const Value* root = nullptr;  // null for a workspace
  int64_t first = 0, last = 0;  // node numbers, inclusive
  size_t bytes = 0;
  size_t offset = 0;
  bool exchanged = false;  // in the memory of what ranks exchange
};

struct MemoryPlan {
  std::vector<PlannedStorage> storages;
  std::unordered_map<const Value*, size_t> storage_of;   // root -> index
  std::unordered_map<const Node*, size_t> workspace_of;  // node -> index
  size_t arena_bytes = 0;
  size_t exchange_bytes = 0;
};

// `workspace` gives scratch bytes per node (missing: none). `one_stream`: as if all launches were on the main stream,
// to tell what the others cost; such a plan is not for a graph that has them.
MemoryPlan plan_memory(const Graph& graph, const std::unordered_map<const Node*, size_t>& workspace,
                       bool one_stream = false);

// Proves that no two storages alive at the same time overlap and that all lie inside the arena; and, where a graph has
// several streams, that its waits keep every dependency in order. Independent of how the plan and the waits were made.
Status check_plan(const Graph& graph, const MemoryPlan& plan);

}  // namespace reprise
