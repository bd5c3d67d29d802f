// Copies a small graph into a large one: how replacements and expanded fused ops get into the model. A plain function.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace reprise {

// Adds the nodes of `body` before `before` (null: at the end); its inputs named "0", "1", ... become in[0], in[1], ...
// Gives the values of body's outputs, in order. Types follow from the operands.
Result<std::vector<Value*>> inline_graph(Graph& graph, const Graph& body, std::span<Value* const> in,
                                         const std::string& made_by, Node* before);

}  // namespace reprise
