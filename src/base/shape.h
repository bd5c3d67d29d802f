// Shape, TensorType: sizes and element type of a tensor as the graph knows them. Small values, usable from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/dim.h"
#include "base/dtype.h"

namespace reprise {

class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) {
    for (Dim d : dims) push_back(d);
  }
  int rank() const { return rank_; }
  Dim operator[](int i) const {
    CHECK(i >= 0 && i < rank_, "dimension {} of a shape of rank {}", i, rank_);
    return dims_[i];
  }
  Dim& operator[](int i) {
    CHECK(i >= 0 && i < rank_, "dimension {} of a shape of rank {}", i, rank_);
    return dims_[i];
  }
  Dim back() const { return (*this)[rank_ - 1]; }
  void push_back(Dim d) {
    CHECK(rank_ < kMaxRank, "a shape has at most {} dimensions", kMaxRank);
    dims_[rank_++] = d;
  }
  std::span<const Dim> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  // Number of elements with every symbol at the given value.
  int64_t elements(const LiveSizes& live) const {
    int64_t n = 1;
    for (Dim d : dims()) n *= d.value(live);
    return n;
  }

 private:
  std::array<Dim, kMaxRank> dims_{};
  uint8_t rank_ = 0;
};

inline bool same_shape(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i)
    if (!same_dim(a[i], b[i])) return false;
  return true;
}

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
};

inline bool same_type(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && same_shape(a.shape, b.shape);
}

}  // namespace reprise
