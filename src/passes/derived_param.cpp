#include "passes/derived_param.h"

#include <algorithm>

#include "nn/param_name.h"
#include "nn/row_ranges.h"

namespace reprise {
namespace {

std::vector<ParamPart> parts_of_ranges(const nn::RowRanges& name, int64_t rows) {
  int64_t each = 0;  // rows of a group
  for (const nn::RowRange& r : name.ranges) each += r.rows;
  const int64_t groups = std::max<int64_t>(1, rows / each);
  std::vector<ParamPart> parts;
  for (const nn::RowRange& r : name.ranges)
    for (int64_t g = 0; g < groups; ++g) {
      ParamPart part{.tensor = name.tensor, .rows = r.rows};
      part.first = g * name.of + r.first;
      part.of = groups * name.of;
      parts.push_back(std::move(part));
    }
  return parts;
}

}  // namespace

std::vector<ParamPart> parts_of_name(const std::string& name, const Shape& shape) {
  const int64_t rows = rows_of(shape);
  if (const auto ranges = nn::parse_row_ranges(name)) return parts_of_ranges(*ranges, rows);
  const nn::ParamName parsed = nn::parse_param_name(name);
  std::vector<ParamPart> parts;
  if (parsed.of > 0) {
    // Matrices of their own, or the groups of one matrix or vector behind each other.
    const int64_t matrices = shape.rank() > 2 ? shape[0].factor : std::max<int64_t>(1, rows / parsed.rows);
    const int64_t each = rows / matrices;
    for (int64_t m = 0; m < matrices; ++m) {
      ParamPart part{.tensor = parsed.tensor, .rows = each};
      if (parsed.transposed) part.recipe = Recipe::Transposed, part.columns = parsed.rows;
      part.first = m * parsed.of + parsed.first;
      part.of = matrices * parsed.of;
      parts.push_back(std::move(part));
    }
    return parts;
  }
  for (int64_t i = parsed.from; i < parsed.to; ++i)
    parts.push_back({.tensor = parsed.tensor_of(i), .rows = rows / (parsed.to - parsed.from)});
  return parts;
}

}  // namespace reprise
