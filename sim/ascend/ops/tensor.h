// View: what an aclTensor said when an operator looked at it, and the reading and writing of its elements.
//
// A value: operators note views in phase 1 and give kernels their own copies, so nothing a caller does to its tensors
// afterwards is seen. Elements are read and written only while a kernel computes; addresses are device addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ascend/kernel.h"
#include "ascend/ops/numbers.h"

namespace ascend_sim {

using Dims = std::vector<int64_t>;

inline int64_t product(const Dims& dims, size_t from = 0) {
  int64_t result = 1;
  for (size_t i = from; i < dims.size(); ++i) result *= dims[i];
  return result;
}

inline Dims packed_strides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

inline std::string text_of(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

struct View {
  bool given = false;  // false: an optional operand that was null
  aclDataType dtype = -1;
  aclFormat format = kNd;
  Dims shape, strides, storage;
  int64_t offset = 0;       // in elements
  void* address = nullptr;  // of the storage
  int64_t reach = 0;        // elements that a kernel touches where those are more than the view's

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  // The size of a dimension, the last one being -1; 1 for those it lacks.
  int64_t dim(int64_t index) const {
    if (index < 0) index += rank();
    return index < 0 || index >= rank() ? 1 : shape[static_cast<size_t>(index)];
  }
  int64_t count() const { return product(shape); }
  int64_t element() const { return size_of(dtype); }
  bool fractal() const { return format == kFractalNz; }
  bool packed() const;      // row after row without gaps
  bool transposed() const;  // packed once its last two dimensions are swapped
  double bytes() const { return static_cast<double>(count()) * static_cast<double>(element()); }
  // The memory that its elements lie in.
  Touch touch(bool written) const;
  void* first() const { return static_cast<char*>(address) + offset * element(); }
};

// The first element of a view, where the host finds it; null where there is none.
template <typename T>
T* at(const View& view) {
  return view.count() == 0 ? nullptr : host<T>(view.first());
}

// Calls f(offset in elements from the first, number) for each run along the last dimension, in order.
template <typename F>
void for_rows(const Dims& shape, const Dims& strides, F&& f) {
  if (product(shape) == 0) return;
  if (shape.empty()) return f(int64_t{0}, int64_t{0});
  Dims index(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t row = 0;; ++row) {
    f(offset, row);
    size_t axis = shape.size() - 1;
    for (;;) {
      if (axis-- == 0) return;
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

// `count` elements that lie `stride` apart, as numbers of another type.
template <typename To>
void read_run(aclDataType dtype, const void* from, int64_t stride, int64_t count, To* to) {
  visit(dtype, [&](auto tag) {
    const auto* source = static_cast<const decltype(tag)*>(from);
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = convert<To>(source[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = convert<To>(source[i * stride]);
    }
  });
}

template <typename From>
void write_run(aclDataType dtype, void* to, int64_t stride, int64_t count, const From* from) {
  visit(dtype, [&](auto tag) {
    auto* target = static_cast<decltype(tag)*>(to);
    for (int64_t i = 0; i < count; ++i) target[i * stride] = convert<decltype(tag)>(from[i]);
  });
}

// All elements in logical order, regardless of the strides.
template <typename To = float>
std::vector<To> read(const View& view) {
  std::vector<To> values(static_cast<size_t>(view.count()));
  if (values.empty()) return values;
  char* base = at<char>(view);
  const int64_t width = view.rank() ? view.shape.back() : 1, stride = view.rank() ? view.strides.back() : 1;
  for_rows(view.shape, view.strides, [&](int64_t offset, int64_t row) {
    read_run(view.dtype, base + offset * view.element(), stride, width, values.data() + row * width);
  });
  return values;
}

template <typename From>
void write(const View& view, const std::vector<From>& values) {
  if (values.empty()) return;
  char* base = at<char>(view);
  const int64_t width = view.rank() ? view.shape.back() : 1, stride = view.rank() ? view.strides.back() : 1;
  for_rows(view.shape, view.strides, [&](int64_t offset, int64_t row) {
    write_run(view.dtype, base + offset * view.element(), stride, width, values.data() + row * width);
  });
}

// Row `row` of a packed view whose rows have `width` elements.
template <typename To = float>
void read_row(const View& view, int64_t row, int64_t width, To* to) {
  read_run(view.dtype, at<char>(view) + row * width * view.element(), 1, width, to);
}
template <typename From>
void write_row(const View& view, int64_t row, int64_t width, const From* from) {
  write_run(view.dtype, at<char>(view) + row * width * view.element(), 1, width, from);
}

// One float rounded to a data type and widened again: what a later part of a fused kernel sees.
inline float rounded(aclDataType dtype, float value) {
  return dtype == kBf16 ? widen(to_bf16(value)) : dtype == kHalf ? widen(to_half(value)) : value;
}

}  // namespace ascend_sim
