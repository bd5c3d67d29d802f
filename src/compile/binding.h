// Binding: a graph matched to a device: which kernel runs each node and in which layout each parameter is stored.
//
// select_kernels() is the one place where a graph meets the kernel registry. The result points into the graph and the
// registry and lives no longer than they do. A pure function; any thread that may read the graph.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "ops/platform.h"

namespace reprise {

struct ParamPlan {
  std::string name;
  TensorType type;
  const ParamLayout* layout = nullptr;  // null: row-major
  size_t bytes = 0;
};

struct KernelSelection {
  std::unordered_map<const Node*, const KernelEntry*> kernel;  // none for sources and views
  std::vector<ParamPlan> params;                               // in the order of the graph
  std::unordered_map<std::string, size_t> param_index;
  std::unordered_map<const Node*, size_t> workspace;  // bytes at the bounds
};

// Errors: an op without an accepting kernel (with every refusal), a parameter whose users accept no common layout.
Result<KernelSelection> select_kernels(const Graph& graph, const Platform& platform);

}  // namespace reprise
