// What encoders and vision towers need: attention of sequences that lie one behind the other, against a softmax in
// double; LayerNorm, both forms of GELU and tanh against their formulas in double.
#include <cmath>

#include "sim/ops/attention_cases.h"

namespace sim_test {
namespace {

class VarlenOps : public OpsTest {};

aclnnStatus varlen(const Problem& p, const Array& query, const Array& key, const Array& value, const Array& out,
                   const Dims& lengths, const Dims& kv_lengths) {
  const int64_t rows = query.shape()[0];
  Array most(kFloat, {rows, p.heads, 8}), sum(kFloat, {rows, p.heads, 8});
  const Ints ends_of(lengths), kv_ends(kv_lengths);
  char layout[] = "TND";
  return RUN_OP(aclnnFlashAttentionVarLenScore, query, key, value, nullptr, nullptr, nullptr, nullptr, nullptr, ends_of,
                kv_ends, p.scale(), 1.0, kFar, kFar, p.heads, layout, 0, 0, most, sum, nullptr, out);
}

TEST_F(VarlenOps, SequencesSeeAllOfTheirOwnRows) {
  for (const aclDataType dtype : kFloats)
    for (const int64_t width : {16, 20, 72}) {
      Problem p;
      p.lengths = {3, 0, 1, 70}, p.kv_lengths = {5, 0, 2, 70}, p.width = p.value_width = width;
      p.fill(dtype, 3);
      Array query(dtype, {74, 4, width}, join(p.q)), out(dtype, {74, 4, width});
      Array key(dtype, {77, 2, width}, join(p.k)), value(dtype, {77, 2, width}, join(p.v));
      ASSERT_EQ(varlen(p, query, key, value, out, ends(p.lengths), ends(p.kv_lengths)), 0) << bench().error;
      expect_close(out.get_all(), p.want(), dtype, 1e-5, 2);
      EXPECT_EQ(bench().kernels.size(), 1u) << "short sequences of small heads are not padded";
    }
}

// The number of kernels then depends on the lengths, which a task update does not forgive.
TEST_F(VarlenOps, LargeHeadsAndLongSequencesArePadded) {
  const auto kernels = [](int64_t width, int64_t rows) {
    Problem p;
    p.heads = p.kv_heads = 1, p.width = p.value_width = width, p.lengths = p.kv_lengths = {rows};
    Array x(kBf16, {rows, 1, width}, std::vector<double>(static_cast<size_t>(rows * width))),
        y(kBf16, {rows, 1, width});
    EXPECT_EQ(varlen(p, x, x, x, y, {rows}, {rows}), 0) << bench().error;
    return bench().kernels.size();
  };
  EXPECT_EQ(kernels(72, 1024), 1u);
  EXPECT_EQ(kernels(72, 1025), 5u);
  EXPECT_EQ(kernels(80, 1025), 1u);
  EXPECT_EQ(kernels(100, 4), 5u);
  EXPECT_EQ(kernels(112, 4), 1u);
  EXPECT_EQ(kernels(208, 4), 5u) << "of 196 numbers and more they are multiples of 128";
  EXPECT_EQ(kernels(448, 4), 1u);
}

TEST_F(VarlenOps, WhatItDoesNotTake) {
  Problem p;
  p.heads = p.kv_heads = 2;
  Array x(kBf16, {4, 2, 16}), half(kHalf, {4, 2, 16}), y(kBf16, {4, 2, 16}), other(kBf16, {4, 1, 16});
  EXPECT_EQ(varlen(p, x, half, x, y, {4}, {4}), kBad);
  EXPECT_EQ(varlen(p, x, x, x, other, {4}, {4}), kBad);
  EXPECT_EQ(varlen(p, x, x, x, y, {3}, {4}), kLimit) << "the last row belongs to nobody";
  EXPECT_EQ(varlen(p, x, x, x, y, {3, 2, 4}, {3, 3, 4}), kLimit);
  EXPECT_EQ(varlen(p, x, x, x, y, {2, 4}, {4}), kLimit);
  EXPECT_EQ(varlen(p, x, x, x, y, {2, 4}, {0, 4}), kLimit);
  p.heads = 3;
  EXPECT_EQ(varlen(p, x, x, x, y, {4}, {4}), kLimit);
}

TEST_F(VarlenOps, LayerNorm) {
  constexpr double kEps = 1e-5;
  for (const aclDataType dtype : kFloats)
    for (const int64_t width : {1, 7, 60}) {
      const auto a = kept(dtype, numbers(3 * width, 1)), g = kept(dtype, numbers(width, 2)),
                 b = kept(dtype, numbers(width, 3));
      Array x(dtype, {3, width}, a), weight(dtype, {width}, g), bias(dtype, {width}, b), y(dtype, {3, width});
      Array mean(kFloat, {3, 1}), rstd(kFloat, {3, 1}), wide(kFloat, {width}, g);
      const Ints shape({width});
      std::vector<double> want, plain, means, factors;
      for (int64_t r = 0; r < 3; ++r) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < width; ++i) sum += a[r * width + i];
        sum /= static_cast<double>(width);
        for (int64_t i = 0; i < width; ++i) squares += std::pow(a[r * width + i] - sum, 2);
        means.push_back(sum);
        factors.push_back(1 / std::sqrt(squares / static_cast<double>(width) + kEps));
        for (int64_t i = 0; i < width; ++i) {
          plain.push_back((a[r * width + i] - sum) * factors.back());
          want.push_back(plain.back() * g[i] + b[i]);
        }
      }
      ASSERT_EQ(RUN_OP(aclnnLayerNorm, x, shape, weight, bias, kEps, y, mean, rstd), 0) << bench().error;
      expect_close(y.get_all(), want, dtype, 1e-5, 2);
      expect_close(mean.get_all(), means, kFloat, 1e-5, 4);
      expect_close(rstd.get_all(), factors, kFloat, 1e-4, 64);
      ASSERT_EQ(RUN_OP(aclnnLayerNorm, x, shape, nullptr, nullptr, kEps, y, nullptr, nullptr), 0) << bench().error;
      expect_close(y.get_all(), plain, dtype, 1e-5, 2);
      EXPECT_EQ(RUN_OP(aclnnLayerNorm, x, shape, wide, nullptr, kEps, y, nullptr, nullptr), 0) << bench().error;
      EXPECT_EQ(REFUSED(aclnnLayerNorm, x, shape, wide, bias, kEps, y, nullptr, nullptr), dtype == kFloat ? 0 : kBad);
      EXPECT_EQ(REFUSED(aclnnLayerNorm, x, nullptr, weight, bias, kEps, y, nullptr, nullptr), kNull);
      const Ints wrong({width + 1});
      EXPECT_EQ(REFUSED(aclnnLayerNorm, x, wrong, nullptr, nullptr, kEps, y, nullptr, nullptr), kBad);
    }
}

TEST_F(VarlenOps, GeluAndTanh) {
  for (const aclDataType dtype : kFloats) {
    const auto a = kept(dtype, numbers(41, 1, -4, 4));
    Array x(dtype, {41}, a), y(dtype, {41});
    std::vector<double> exact, by_tanh, tanh;
    for (const double v : a) {
      exact.push_back(v * (1 + std::erf(v / std::sqrt(2.0))) / 2);
      by_tanh.push_back(v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v))) / 2);
      tanh.push_back(std::tanh(v));
    }
    ASSERT_EQ(RUN_OP(aclnnGeluV2, x, 0, y), 0);
    expect_close(y.get_all(), exact, dtype);
    ASSERT_EQ(RUN_OP(aclnnGeluV2, x, 1, y), 0);
    expect_close(y.get_all(), by_tanh, dtype);
    ASSERT_EQ(RUN_OP(aclnnTanh, x, y), 0);
    expect_close(y.get_all(), tanh, dtype);
  }
  Array whole(kInt32, {2});
  EXPECT_EQ(REFUSED(aclnnGeluV2, whole, 0, whole), kBad);
}

}  // namespace
}  // namespace sim_test
