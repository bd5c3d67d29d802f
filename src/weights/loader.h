// The loader: fills a ParamStore from a checkpoint, or with random numbers.
//
// Tensors stream in row blocks, several threads at once; each block is made by its recipe (mostly: converted to the
// model's dtype), checked for NaN and infinity, and packed into its place, so that only one copy of the weights is ever
// whole. Stateless.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "compile/param_store.h"
#include "passes/derived_param.h"

namespace reprise::weights {

struct LoadOptions {
  int threads = 1;
  bool progress = false;
  bool tied_head = false;  // a stored lm_head.weight is then not needed
  int64_t layers = 0;      // of the configuration; 0: not told. And those that it explains behind them
  int64_t nextn_layers = 0;
  std::vector<DerivedParam> derived;      // parameters that are not one tensor as it stands, as the passes decided
  std::unordered_set<std::string> known;  // tensors that need no parameter: they were read before, or another serves
};

// One error lists every parameter that the checkpoint lacks and every tensor that no parameter takes; wrong shapes and
// non-finite weights name the tensor.
Status load_params(const checkpoint::Checkpoint& checkpoint, ParamStore& params, const LoadOptions& options);

// The random rows of load_recipes.h; the same seed gives the same weights for any number of threads.
Status fill_random(ParamStore& params, uint64_t seed, const LoadOptions& options);

}  // namespace reprise::weights
