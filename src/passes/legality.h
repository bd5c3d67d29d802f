// May a set of nodes be replaced by one call at the place of its last node? The rules that need no types and no
// meaning. A pure function; the thread that owns the graph. The result points into the graph.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "passes/pattern.h"

namespace reprise {

struct Placement {
  Node* last = nullptr;     // the replacement goes right behind this node
  std::vector<Node*> late;  // nodes between the matched ones that read an output: they move behind the replacement
};

// The error says which value or node is in the way.
Result<Placement> place_match(const Match& match, const std::unordered_map<const Node*, size_t>& position);

}  // namespace reprise
