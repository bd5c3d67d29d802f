// Dim, Shape, TensorType: sizes as the graph knows them.
//
// A Dim is a constant, or a constant factor times one symbol whose upper bound the graph states ("T <= 2048"). Model
// code cannot branch on a symbolic size: comparisons of Dim do not compile. Shape functions and kernels use same_dim()
// and Dim::value(). All are small values, usable from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"

namespace reprise {

// Index of a symbol in its graph's symbol table; 0 is "no symbol" and always has the value 1.
using SymbolId = uint8_t;
constexpr int kMaxSymbols = 8;

// The live value of every symbol in one step; entry 0 is 1.
struct LiveSizes {
  std::array<int64_t, kMaxSymbols> value{1, 0, 0, 0, 0, 0, 0, 0};
};

struct Dim {
  int64_t factor = 0;
  SymbolId symbol = 0;

  constexpr Dim() = default;
  constexpr Dim(int64_t constant) : factor(constant) {}  // NOLINT: a number is a size
  constexpr Dim(int64_t f, SymbolId s) : factor(f), symbol(s) {}

  constexpr bool is_constant() const { return symbol == 0; }
  // The size in one step.
  constexpr int64_t value(const LiveSizes& live) const { return factor * live.value[symbol]; }

  bool operator==(const Dim&) const = delete;  // would silently specialise the trace; see same_dim
  auto operator<=>(const Dim&) const = delete;
};

constexpr bool same_dim(Dim a, Dim b) { return a.factor == b.factor && a.symbol == b.symbol; }

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
