// FusionBound: how far a fused run may be from the unfused one where the device's fused operators round less often than
// their parts (KernelEntry::exact), and FusionTally: whether rows that were compared keep to it.
//
// Two runs that round differently once differ in every rounding from there on, as any two runs of independent roundings
// do. So the bound follows from the unit roundoffs of the dtypes that the plan rounds to and from how many launches
// round, one behind the other; docs/graph-mode.md has the derivation and what was measured. Where every kernel of the
// plan is exact there is no bound, and runs are compared bit for bit. Plain values; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compile/compiled_model.h"

namespace reprise::engine {

struct FusionBound {
  std::vector<std::string> ops;  // fused ops of the plans that run inexact kernels, each once; empty: bits are equal
  double relative = 0;           // root mean square of a row's differences, over that of its values
  bool routes = false;           // a rounding may send a row to another expert
  bool exact() const { return ops.empty(); }
};

// The bound of the fused plans; the largest where they differ.
FusionBound fusion_bound(std::span<const CompiledModel* const> plans);

// All fused ops that the device runs by inexact kernels, whether a plan has them or not.
std::vector<std::string> inexact_ops(const KernelRegistry& kernels, DeviceKind device);

// Root mean square of the differences over that of the reference's values about their mean.
double row_distance(std::span<const float> row, std::span<const float> reference);

class FusionTally {
 public:
  explicit FusionTally(FusionBound bound) : bound_(std::move(bound)) {}

  void add(double distance);
  // Where rows are routed a few may be outside, since those that took another expert cannot be told from wrong ones.
  bool holds() const;
  int64_t rows() const { return rows_; }
  int64_t outside() const { return outside_; }
  double largest() const { return largest_; }
  const FusionBound& bound() const { return bound_; }
  // "3 of 40 rows are farther ..."
  std::string words() const;

 private:
  FusionBound bound_;
  int64_t rows_ = 0, outside_ = 0;
  double largest_ = 0;
};

}  // namespace reprise::engine
