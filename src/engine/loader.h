// The loader: fills a ParamStore from a checkpoint, or with random numbers.
//
// Tensors stream in row blocks, several threads at once; each block is converted to the model's dtype, checked for NaN
// and infinity, and packed into its place, so that only one copy of the weights is ever whole. Stateless.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "compile/param_store.h"
#include "passes/pass.h"

namespace reprise::engine {

struct LoadOptions {
  int threads = 1;
  bool progress = false;
  bool tied_head = false;           // a stored lm_head.weight is then not needed
  std::vector<PackedParam> packed;  // parameters made of several of the checkpoint's, as the passes decided
};

// One error lists every parameter that the checkpoint lacks and every tensor that no parameter takes; wrong shapes and
// non-finite weights name the tensor.
Status load_params(const checkpoint::Checkpoint& checkpoint, ParamStore& params, const LoadOptions& options);

// Uniform numbers of variance 1/K (matrices), near 1 (norms) and near 0 (biases); the same seed gives the same weights
// for any number of threads.
Status fill_random(ParamStore& params, uint64_t seed, const LoadOptions& options);

}  // namespace reprise::engine
