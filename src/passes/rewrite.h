// Rewrite: "where the graph computes this, compute that instead", declared by two traced functions.
//
// The engine sees to the rest: inner values must have no readers outside, no input may depend on the match's own
// outputs, nothing between the matched nodes may touch bytes that they write (or write bytes that they touch), and the
// types must stay. Every refusal has a reason. A rewrite is a plain value; matching the same graph twice gives
// the same result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/fused.h"
#include "passes/pattern.h"

namespace reprise {

struct Rewrite {
  std::string name;
  size_t operands = 0;
  nn::Meaning search;
  nn::Meaning replace;
  std::vector<nn::FusedExample> examples;
  // Called on a legal match; its error is the reason to leave the graph alone. May be empty.
  std::function<Status(const Match&, const PassContext&)> guard;
  bool needs_kernels = true;   // refused where the device has no kernel for an op of the replacement
  bool report_partial = true;  // tell of places where only a part of the pattern fits
  int roundings = 0;           // that the replacement leaves out; without any it gives the same bits
};

// Search for the meaning, put the op itself.
Rewrite rewrite_from(const nn::FusedOp& op, const OpRegistry& ops);

// Applies the rewrite until it fits nowhere.
Status run_rewrite(const Rewrite& rewrite, Graph& graph, PassContext& context);

// As a pass. Errors of the rewrite itself (an example that cannot be traced) are found here.
Result<Pass> pass_from(Rewrite rewrite, const OpRegistry& ops);

}  // namespace reprise
