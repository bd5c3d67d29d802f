#include "base/shape.h"

#include <gtest/gtest.h>

#include <array>
#include <concepts>

#include "base/tensor_view.h"

namespace reprise::shape_test {
namespace {

// A model cannot branch on a symbolic size.
template <typename T>
concept Comparable = requires(T a, T b) {
  a == b;
}
|| requires(T a, T b) { a < b; }
|| requires(T a) { a == 1; };
static_assert(!Comparable<Dim>);
static_assert(Comparable<int64_t>);

constexpr SymbolId kTokens = 1;

TEST(Dim, ConstantsAndSymbols) {
  LiveSizes live;
  live.value[kTokens] = 5;
  EXPECT_TRUE(Dim(3).is_constant());
  EXPECT_EQ(Dim(3).value(live), 3);
  const Dim d(4, kTokens);
  EXPECT_FALSE(d.is_constant());
  EXPECT_EQ(d.value(live), 20);
  EXPECT_TRUE(same_dim(d, Dim(4, kTokens)));
  EXPECT_FALSE(same_dim(d, Dim(20)));  // equal in this step only
  EXPECT_FALSE(same_dim(d, Dim(4, 2)));
}

TEST(Shape, ElementsAndDims) {
  LiveSizes live;
  live.value[kTokens] = 7;
  Shape s{Dim(1, kTokens), 4, 64};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s.elements(live), 7 * 4 * 64);
  EXPECT_EQ(s.back().factor, 64);
  EXPECT_EQ(s.dims().size(), 3u);
  s[1] = Dim(2);
  EXPECT_EQ(s.elements(live), 7 * 2 * 64);
  live.value[kTokens] = 0;
  EXPECT_EQ(s.elements(live), 0);
  EXPECT_EQ(Shape{}.elements(live), 1);  // a scalar
}

TEST(Shape, SameShapeAndType) {
  const Shape a{Dim(1, kTokens), 8};
  EXPECT_TRUE(same_shape(a, Shape{Dim(1, kTokens), 8}));
  EXPECT_FALSE(same_shape(a, Shape{Dim(1, kTokens), 9}));
  EXPECT_FALSE(same_shape(a, Shape{Dim(1, kTokens)}));
  EXPECT_FALSE(same_shape(a, Shape{Dim(1, 2), 8}));
  EXPECT_TRUE(same_type({DType::BF16, a}, {DType::BF16, a}));
  EXPECT_FALSE(same_type({DType::BF16, a}, {DType::F32, a}));
}

using ShapeDeathTest = testing::Test;

TEST(ShapeDeathTest, StaysInItsBounds) {
  Shape s{1, 2, 3, 4, 5};
  EXPECT_DEATH(s.push_back(6), "at most 5 dimensions");
  EXPECT_DEATH(static_cast<void>(s[5]), "dimension 5 of a shape of rank 5");
  EXPECT_DEATH(static_cast<void>(s[-1]), "dimension -1");
  EXPECT_DEATH(static_cast<void>(Shape{}.back()), "rank 0");
}

TEST(TensorView, DenseStrides) {
  std::array<float, 24> data{};
  const auto v = TensorView::dense(data.data(), DType::F32, {2, 3, 4});
  EXPECT_EQ(v.rank, 3);
  EXPECT_EQ(v.elements(), 24);
  EXPECT_EQ(v.stride[0], 12);
  EXPECT_EQ(v.stride[1], 4);
  EXPECT_EQ(v.stride[2], 1);
  static_assert(std::is_trivially_copyable_v<TensorView>);
}

}  // namespace
}  // namespace reprise::shape_test
