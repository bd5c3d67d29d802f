// Cases of the ops that extensions bring, for `reprise bench ops --extension`: on the sizes of a model in which their
// rewrites found them, or on their own examples. Plain functions; they open an engine of random weights for a while.
#pragma once

#include <string>
#include <vector>

#include "measurement/op_cases.h"
#include "ops/platform.h"

namespace reprise::measurement {

// Declared by the platform's extensions, in their order.
std::vector<nn::FusedOp> extension_ops(const Platform& platform);

struct ModelOfCases {
  std::string path;  // a folder with config.json; no weights are needed
  std::vector<std::string> extensions;
  std::string device, isa;
  int64_t threads = 0;
  DType dtype = DType::BF16;
};

// One case for each op of `ops` and each set of sizes at which the model's decode graph holds it, in the graph's order.
// None: what kept the rewrites from matching is in `why`, a line each.
Result<std::vector<OpCase>> cases_in_model(const ModelOfCases& model, const std::vector<std::string>& ops,
                                           int64_t max_tokens, std::vector<std::string>& why);

}  // namespace reprise::measurement
