#include "engine/step_costs.h"

#include <algorithm>

namespace reprise::engine {

void StepCosts::record(StepKind kind, int64_t rows, double microseconds) {
  auto& entries = entries_[static_cast<size_t>(kind)];
  if (rows < 1 || rows >= static_cast<int64_t>(entries.size())) return;
  Entry& e = entries[rows];
  ++e.count;
  // The plain average of the first steps, then an average in which a step fades within a few dozen.
  const double weight = std::max(1.0 / e.count, 1.0 / 16);
  e.microseconds += weight * (microseconds - e.microseconds);
}

void StepCosts::restore(StepKind kind, int64_t rows, Entry entry) {
  auto& entries = entries_[static_cast<size_t>(kind)];
  if (rows >= 1 && rows < static_cast<int64_t>(entries.size())) entries[rows] = entry;
}

std::optional<double> StepCosts::known(StepKind kind, int64_t rows) const {
  const auto& entries = this->entries(kind);
  if (rows < 1 || rows >= static_cast<int64_t>(entries.size()) || entries[rows].count < kEnough) return std::nullopt;
  return entries[rows].microseconds;
}

std::optional<double> StepCosts::estimate(StepKind kind, int64_t rows) const {
  if (auto exact = known(kind, rows)) return exact;
  const auto largest = static_cast<int64_t>(entries(kind).size()) - 1;
  int64_t below = std::min(rows - 1, largest), above = rows + 1;
  while (below >= 1 && !known(kind, below)) --below;
  while (above <= largest && !known(kind, above)) ++above;
  if (below < 1 || above > largest) return std::nullopt;
  const double low = *known(kind, below), high = *known(kind, above);
  return low + (high - low) * static_cast<double>(rows - below) / static_cast<double>(above - below);
}

}  // namespace reprise::engine
