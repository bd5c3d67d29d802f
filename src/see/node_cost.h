// NodeCost: what a node must read, write and multiply at given sizes; the machine's limit follows from it. Plain
// functions of a graph and of sizes.
#pragma once

#include "graph/graph.h"
#include "see/machine_speed.h"

namespace reprise::see {

// The sizes of one step, with what the graph's symbols do not say.
struct StepSizes {
  LiveSizes live;
  double cached_tokens = 0;  // keys and values that attention reads in one layer, over all sequences
  double score_pairs = 0;    // pairs of a query and a key in one layer, over all sequences
};

struct NodeCost {
  double param_bytes = 0;       // weights, read from memory in every step
  double kv_bytes = 0;          // keys and values read or written
  double activation_bytes = 0;  // operands and results; they usually lie in a cache
  double flops = 0;             // of matrix products and attention; a multiply-add counts twice
  DType dtype = DType::F32;     // of the products' operands

  double bytes() const { return param_bytes + kv_bytes + activation_bytes; }
  // Whether memory or arithmetic bounds it; else it lives in the caches, where those limits say nothing.
  bool has_limit() const { return param_bytes + kv_bytes > activation_bytes || flops > 0; }
  // The least seconds this machine needs: weights and KV at the read bandwidth, or the products at the peak.
  double limit_s(const MachineSpeed& machine) const;
};

NodeCost cost_of(const Node& node, const StepSizes& sizes);

// Multiply-adds of this dtype at best, in GFLOP/s.
double peak_gflops(const MachineSpeed& machine, DType dtype);

}  // namespace reprise::see
