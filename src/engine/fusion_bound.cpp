#include "engine/fusion_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise::engine {
namespace {

// Two runs, each as far from the exact result as its roundings take it, are at most so much farther apart than the sum
// of independent roundings says: what a launch was given may weigh more in its result than it did before.
constexpr double kGain = 2;
// The share of routed rows that may have taken another expert, and how many rows must have been seen to say so.
constexpr double kRerouted = 0.25;
constexpr int64_t kEnoughRows = 16;

// Largest relative error of one rounding to this type; of int8 rows relative to the largest number of the row.
double unit_roundoff(DType t) {
  switch (t) {
    case DType::BF16: return 0x1p-8;
    case DType::F16: return 0x1p-11;
    case DType::F32: return 0x1p-24;
    case DType::I8: return 0x1p-7;
    default: return 0;
  }
}

template <typename F>
void each_launch(const CompiledModel& plan, const F& f) {
  for (const Piece& piece : plan.pieces())
    for (const Thunk& t : piece.thunks) f(*plan.node(t.node), *plan.kernel(t.node));
}

double bound_of(const CompiledModel& plan) {
  double squares = 0;
  each_launch(plan, [&](const Node& n, const KernelEntry&) {
    double unit = 0;
    for (const TensorType& t : n.out_types()) unit = std::max(unit, unit_roundoff(t.dtype));
    squares += unit * unit / 3;  // errors are spread evenly up to the unit
  });
  return kGain * std::sqrt(2 * squares);  // of both runs
}

}  // namespace

FusionBound fusion_bound(std::span<const CompiledModel* const> plans) {
  FusionBound bound;
  for (const CompiledModel* plan : plans) {
    each_launch(*plan, [&](const Node& n, const KernelEntry& kernel) {
      bound.routes |= n.op->has(op_trait::kRoutes);
      if (!kernel.exact && std::find(bound.ops.begin(), bound.ops.end(), n.op->name) == bound.ops.end())
        bound.ops.push_back(n.op->name);
    });
    bound.relative = std::max(bound.relative, bound_of(*plan));
  }
  if (bound.exact()) bound.relative = 0;
  return bound;
}

std::vector<std::string> inexact_ops(const KernelRegistry& kernels, DeviceKind device) {
  std::vector<std::string> ops;
  for (const auto& e : kernels.entries())
    if (e->device == device && !e->exact && std::find(ops.begin(), ops.end(), e->op) == ops.end()) ops.push_back(e->op);
  return ops;
}

double row_distance(std::span<const float> row, std::span<const float> reference) {
  CHECK(row.size() == reference.size(), "rows of {} and {} numbers are compared", row.size(), reference.size());
  double mean = 0, differences = 0, values = 0;
  for (const float v : reference) mean += v;
  mean /= static_cast<double>(std::max<size_t>(1, reference.size()));
  for (size_t i = 0; i < row.size(); ++i) {
    const double gap = static_cast<double>(row[i]) - reference[i], value = reference[i] - mean;
    differences += gap * gap;
    values += value * value;
  }
  if (differences == 0) return 0;
  const double distance = std::sqrt(differences / values);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

void FusionTally::add(double distance) {
  ++rows_;
  if (distance > bound_.relative) ++outside_;
  largest_ = std::max(largest_, distance);
}

bool FusionTally::holds() const {
  if (!bound_.routes) return outside_ == 0;
  return rows_ < kEnoughRows || static_cast<double>(outside_) <= kRerouted * static_cast<double>(rows_);
}

std::string FusionTally::words() const {
  return fmt::format(
      "{} of {} rows differ from the unfused run by more than {:.3g} of their root mean square (largest {:.3g}; fused "
      "ops that are not exact: {})",
      outside_, rows_, bound_.relative, largest_, fmt::join(bound_.ops, ", "));
}

}  // namespace reprise::engine
