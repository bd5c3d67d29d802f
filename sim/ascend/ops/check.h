// Small rules that many operators share: negative dimensions, broadcast shapes, promoted types.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <optional>

#include "ascend/ops/executor.h"

namespace ascend_sim {

// A dimension as an index from the front; -1 where there is none such.
inline int64_t axis_of(int64_t dim, int64_t rank) {
  if (rank == 0) rank = 1;
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank ? dim : -1;
}

inline std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

// The strides with which a view walks a shape it is broadcast to.
inline Dims strides_in(const View& view, const Dims& shape) {
  Dims strides(shape.size(), 0);
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const size_t from = view.shape.size() - 1 - i, to = shape.size() - 1 - i;
    if (view.shape[from] != 1) strides[to] = view.strides[from];
  }
  return strides;
}

// All elements in the order of the shape that the view is broadcast to.
template <typename To>
std::vector<To> read_as(const View& view, const Dims& shape) {
  View wide = view;
  wide.strides = strides_in(view, shape);
  wide.shape = shape;
  return read<To>(wide);
}

// Where two types meet: floats win over integers, wider over narrower, two different 16-bit floats become FLOAT.
inline aclDataType promoted(aclDataType a, aclDataType b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) return a == kDouble || b == kDouble ? kDouble : kFloat;
  return size_of(a) >= size_of(b) ? a : b;
}

// outer x size x inner around one dimension of a packed shape.
struct Split {
  int64_t outer = 1, size = 1, inner = 1;
};
inline Split split_at(const Dims& shape, int64_t axis) {
  Split split;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    (i < axis ? split.outer : i == axis ? split.size : split.inner) *= shape[static_cast<size_t>(i)];
  }
  return split;
}

}  // namespace ascend_sim
