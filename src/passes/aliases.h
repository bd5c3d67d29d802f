// Which bytes a node touches, by their roots (storage_root of graph/graph.h). Plain functions of a graph.
#pragma once

#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace reprise {

// Roots of everything the node reads or writes.
std::vector<const Value*> touched_roots(const Node& node);
// Roots of what the node writes in place; none when it writes nothing but its results.
std::vector<const Value*> written_roots(const Node& node);
// Roots that some node of the graph writes in place.
std::unordered_set<const Value*> written_roots(const Graph& graph);

}  // namespace reprise
