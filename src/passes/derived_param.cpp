#include "passes/derived_param.h"

#include "nn/param_name.h"

namespace reprise {

std::vector<ParamPart> parts_of_name(const std::string& name, const Shape& shape) {
  const nn::ParamName parsed = nn::parse_param_name(name);
  const int64_t rows = rows_of(shape), matrices = shape.rank() > 2 ? shape[0].factor : 1;
  std::vector<ParamPart> parts;
  if (parsed.of > 0) {
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
