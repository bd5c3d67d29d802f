// Element by element, along one dimension, and moving elements.
#include <cmath>
#include <limits>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class Vectors : public OpsTest {};

TEST_F(Vectors, SumsAndProductsBroadcastAndPromote) {
  for (const aclDataType dtype : kFloats) {
    const auto a = kept(dtype, numbers(6, 1)), b = kept(dtype, numbers(3, 2));
    Array x(dtype, {2, 3}, a), row(dtype, {3}, b), y(dtype, {2, 3});
    const Number half(0.5f), two(int64_t{2});
    std::vector<double> sum(6), product(6), scaled(6), shifted(6);
    for (size_t i = 0; i < 6; ++i) {
      sum[i] = a[i] + 0.5 * b[i % 3];
      product[i] = a[i] * b[i % 3];
      scaled[i] = a[i] * 2;
      shifted[i] = a[i] + 1;
    }
    ASSERT_EQ(RUN_OP(aclnnAdd, x, row, half, y), 0);
    expect_close(y.get_all(), sum, dtype);
    ASSERT_EQ(RUN_OP(aclnnMul, x, row, y), 0);
    expect_close(y.get_all(), product, dtype);
    ASSERT_EQ(RUN_OP(aclnnMuls, x, two, y), 0);
    expect_close(y.get_all(), scaled, dtype);
    ASSERT_EQ(RUN_OP(aclnnAdds, x, half, two, y), 0);
    expect_close(y.get_all(), shifted, dtype);
    ASSERT_EQ(RUN_OP(aclnnInplaceAdd, x, row, half), 0);
    expect_close(x.get_all(), sum, dtype);
  }
  Array whole(kInt64, {2}, {1, 1ll << 40}), small(kInt32, {2}, {3, 4}), real(kBf16, {2}, {0.5, 1}), out(kInt64, {2});
  Array real_out(kBf16, {2}), half(kHalf, {2}, {1, 2}), wide(kFloat, {2}), wrong(kInt64, {3});
  const Number one(int64_t{1}), fraction(0.5f);
  ASSERT_EQ(RUN_OP(aclnnAdd, whole, small, one, out), 0);
  EXPECT_EQ(out.get_all(), (std::vector<double>{4, (1ll << 40) + 4.0}));
  ASSERT_EQ(RUN_OP(aclnnMul, small, real, real_out), 0);
  EXPECT_EQ(real_out.get_all(), (std::vector<double>{1.5, 4}));
  ASSERT_EQ(RUN_OP(aclnnMul, half, real, wide), 0);
  EXPECT_EQ(REFUSED(aclnnMul, small, real, out), kBad);
  EXPECT_EQ(REFUSED(aclnnMuls, small, fraction, small), kBad);
  EXPECT_EQ(REFUSED(aclnnMul, whole, wrong, out), kBad);
  EXPECT_EQ(REFUSED(aclnnAdd, whole, whole, one, wrong), kBad);
  EXPECT_EQ(REFUSED(aclnnAdd, whole, whole, nullptr, out), kNull);
}

TEST_F(Vectors, Functions) {
  for (const aclDataType dtype : kFloats) {
    const auto a = kept(dtype, numbers(31, 1, 0.1, 3));
    Array x(dtype, {31}, a), y(dtype, {31});
    std::vector<double> cosine, sine, inverse, silu, sigmoid, clamped;
    for (const double value : a) {
      cosine.push_back(std::cos(value));
      sine.push_back(std::sin(value));
      inverse.push_back(1 / value);
      silu.push_back(value / (1 + std::exp(-value)));
      sigmoid.push_back(1 / (1 + std::exp(-value)));
      clamped.push_back(std::max(value, 1.5));
    }
    ASSERT_EQ(RUN_OP(aclnnCos, x, y), 0);
    expect_close(y.get_all(), cosine, dtype);
    ASSERT_EQ(RUN_OP(aclnnSin, x, y), 0);
    expect_close(y.get_all(), sine, dtype);
    ASSERT_EQ(RUN_OP(aclnnReciprocal, x, y), 0);
    expect_close(y.get_all(), inverse, dtype);
    ASSERT_EQ(RUN_OP(aclnnSilu, x, y), 0);
    expect_close(y.get_all(), silu, dtype);
    ASSERT_EQ(RUN_OP(aclnnSigmoid, x, y), 0);
    expect_close(y.get_all(), sigmoid, dtype);
    const Number least(1.5f);
    ASSERT_EQ(RUN_OP(aclnnClampMin, x, least, y), 0);
    EXPECT_EQ(y.get_all(), clamped);
  }
  Array whole(kInt32, {2}), other(kHalf, {31}), x(kBf16, {31});
  EXPECT_EQ(REFUSED(aclnnSilu, whole, whole), kBad);
  EXPECT_EQ(REFUSED(aclnnCos, x, other), kBad);
}

TEST_F(Vectors, CopiesAndCasts) {
  Array from(kFloat, {3, 2}, {1, 3}, 0, 6), to(kBf16, {2, 3, 2}, {12, 4, 2}, 1, 30);  // turned, into every other place
  from.set({1, 2, 3, 4, 5, 6});
  ASSERT_EQ(RUN_OP(aclnnInplaceCopy, to, from), 0);
  EXPECT_EQ(bench().kernels.size(), 1u);
  EXPECT_EQ(to.get_all(), (std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(REFUSED(aclnnInplaceCopy, from, to), kBad);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Array real(kFloat, {6}, {1.9, -1.9, nan, 1e20, -300, 0.5}), bytes(kInt8, {6}), flags(kBool, {6}), half(kHalf, {6});
  ASSERT_EQ(RUN_OP(aclnnCast, real, kInt8, bytes), 0);
  EXPECT_EQ(bytes.get_all(), (std::vector<double>{1, -1, 0, 127, -128, 0}));
  ASSERT_EQ(RUN_OP(aclnnCast, real, kBool, flags), 0);
  EXPECT_EQ(flags.get_all(), (std::vector<double>{1, 1, 1, 1, 1, 1}));
  ASSERT_EQ(RUN_OP(aclnnCast, real, kHalf, half), 0);
  EXPECT_TRUE(std::isinf(half.get_all()[3]));
  EXPECT_EQ(REFUSED(aclnnCast, real, kInt32, bytes), kBad);
  EXPECT_EQ(REFUSED(aclnnCast, real, 36, bytes), kBad);
  Array filled(kBf16, {2, 2}, {3, 1}, 0, 6);
  const Number value(2.5f);
  ASSERT_EQ(RUN_OP(aclnnInplaceFillScalar, filled, value), 0);
  EXPECT_EQ(filled.get_all(), std::vector<double>(4, 2.5));
  ASSERT_EQ(RUN_OP(aclnnInplaceZero, filled), 0);
  EXPECT_EQ(filled.get_all(), std::vector<double>(4, 0));
}

TEST_F(Vectors, SixteenBitFloatsRoundHalfToEven) {
  Array from(kFloat, {6}, {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20, 0x1p-140, -2.5, 3.4e38}), to(kBf16, {6});
  ASSERT_EQ(RUN_OP(aclnnCast, from, kBf16, to), 0);
  const auto got = to.get_all();
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 1 + 0x1p-6);
  EXPECT_EQ(got[2], 1 + 0x1p-7);
  EXPECT_EQ(got[3], 0x1p-133 * 0);
  EXPECT_EQ(got[4], -2.5);
  Array small(kFloat, {5}, {1 + 0x1p-11, 1 + 3 * 0x1p-11, 0x1p-24, 0x1p-25, 65520}), half(kHalf, {5});
  ASSERT_EQ(RUN_OP(aclnnCast, small, kHalf, half), 0);
  EXPECT_EQ(half.get_all(), (std::vector<double>{1, 1 + 0x1p-9, 0x1p-24, 0, std::numeric_limits<double>::infinity()}));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {  // every half survives the way there and back
    const ascend_sim::Half value{static_cast<uint16_t>(bits)};
    if ((bits & 0x7C00) == 0x7C00 && (bits & 0x3FF) != 0) continue;
    ASSERT_EQ(ascend_sim::to_half(ascend_sim::widen(value)).bits, bits);
    const ascend_sim::Bf16 other{static_cast<uint16_t>(bits)};
    if ((bits & 0x7F80) == 0x7F80 && (bits & 0x7F) != 0) continue;
    ASSERT_EQ(ascend_sim::to_bf16(ascend_sim::widen(other)).bits, bits);
  }
}

TEST_F(Vectors, ChoosingAndSorting) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const aclDataType dtype : kFloats) {
    Array x(dtype, {2, 4}, {1, 7, 7, -1, 3, 2, nan, 5}), best(kInt64, {2}), kept_dim(kInt32, {2, 1}),
        across(kInt64, {4});
    ASSERT_EQ(RUN_OP(aclnnArgMax, x, -1, false, best), 0);
    EXPECT_EQ(best.get_all(), (std::vector<double>{1, 2}));
    ASSERT_EQ(RUN_OP(aclnnArgMax, x, 1, true, kept_dim), 0);
    EXPECT_EQ(kept_dim.get_all(), (std::vector<double>{1, 2}));
    ASSERT_EQ(RUN_OP(aclnnArgMax, x, 0, false, across), 0);
    EXPECT_EQ(across.get_all(), (std::vector<double>{1, 0, 1, 1}));
    x.set({1, 7, 7, -1, 3, 2, 9, 5});
    Array values(dtype, {2, 3}), places(kInt64, {2, 3}), all(dtype, {2, 4}), order(kInt64, {2, 4});
    ASSERT_EQ(RUN_OP(aclnnTopk, x, 3, -1, true, true, values, places), 0);
    EXPECT_EQ(values.get_all(), (std::vector<double>{7, 7, 1, 9, 5, 3}));
    EXPECT_EQ(places.get_all(), (std::vector<double>{1, 2, 0, 2, 3, 0}));
    ASSERT_EQ(RUN_OP(aclnnSort, x, true, 1, false, all, order), 0);
    EXPECT_EQ(all.get_all(), (std::vector<double>{-1, 1, 7, 7, 2, 3, 5, 9}));
    EXPECT_EQ(order.get_all(), (std::vector<double>{3, 0, 1, 2, 1, 0, 3, 2}));
    EXPECT_EQ(REFUSED(aclnnTopk, x, 3, -1, true, false, values, places), kBad);
    EXPECT_EQ(REFUSED(aclnnTopk, x, 5, -1, true, true, values, places), kBad);
    EXPECT_EQ(REFUSED(aclnnTopk, x, 3, -1, true, true, values, best), kBad);
    EXPECT_EQ(REFUSED(aclnnArgMax, x, 2, false, best), kBad);
    EXPECT_EQ(REFUSED(aclnnArgMax, x, 1, false, x), kBad);
  }
}

// The vendor's two examples (ops-nn index/gather_elements_v2/docs/aclnnGather_en.md), and refusals.
TEST_F(Vectors, NumbersByIndices) {
  Array x(kFloat, {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), out(kFloat, {2, 2});
  Array rows(kInt32, {2, 2}, {0, 2, 1, 0}), columns(kInt64, {2, 2}, {0, 2, 1, -3});
  ASSERT_EQ(RUN_OP(aclnnGather, x, 0, rows, out), 0);
  EXPECT_EQ(out.get_all(), (std::vector<double>{1, 8, 4, 2}));
  ASSERT_EQ(RUN_OP(aclnnGather, x, 1, columns, out), 0);
  EXPECT_EQ(out.get_all(), (std::vector<double>{1, 3, 5, 4}));
  Array three(kInt32, {2, 3}), flat(kInt32, {2}), wrong(kHalf, {2, 2}), tall(kInt32, {4, 2}), four(kFloat, {4, 2});
  EXPECT_EQ(REFUSED(aclnnGather, x, 2, rows, out), kBad);
  EXPECT_EQ(REFUSED(aclnnGather, x, 1, three, out), kBad);
  EXPECT_EQ(REFUSED(aclnnGather, x, 1, flat, out), kBad);
  EXPECT_EQ(REFUSED(aclnnGather, x, 1, rows, wrong), kBad);
  EXPECT_EQ(REFUSED(aclnnGather, x, 1, tall, four), kBad);
  tall.set({0, 0, 0, 0, 1, 1, 2, 2});
  ASSERT_EQ(RUN_OP(aclnnGather, x, 0, tall, four), 0);
  EXPECT_EQ(four.get_all(), (std::vector<double>{1, 2, 1, 2, 4, 5, 7, 8}));
}

TEST_F(Vectors, SumsAlongDimensions) {
  for (const aclDataType dtype : kFloats) {
    const auto a = kept(dtype, numbers(24, 1));
    Array x(dtype, {2, 3, 4}, a), soft(dtype, {2, 3, 4}), running(kFloat, {2, 3, 4}), sum(kFloat, {2, 4}),
        total(kFloat, {});
    std::vector<double> want_soft(24), want_running(24), want_sum(8, 0.0);
    double want_total = 0;
    for (size_t i = 0; i < 24; ++i) {
      const size_t line = i / 4 * 4, column = i / 12 * 12 + i % 4;
      double powers = 0;
      for (size_t j = line; j < line + 4; ++j) powers += std::exp(a[j]);
      want_soft[i] = std::exp(a[i]) / powers;
      for (size_t j = column; j <= i; j += 4) want_running[i] += a[j];
      want_sum[i / 12 * 4 + i % 4] += a[i];
      want_total += a[i];
    }
    ASSERT_EQ(RUN_OP(aclnnSoftmax, x, -1, soft), 0);
    expect_close(soft.get_all(), want_soft, dtype);
    ASSERT_EQ(RUN_OP(aclnnCumsum, x, 1, kFloat, running), 0);
    expect_close(running.get_all(), want_running, kFloat, 1e-5);
    const Ints middle({1}), none({});
    ASSERT_EQ(RUN_OP(aclnnReduceSum, x, middle, false, kFloat, sum), 0);
    expect_close(sum.get_all(), want_sum, kFloat, 1e-5);
    ASSERT_EQ(RUN_OP(aclnnReduceSum, x, none, false, kFloat, total), 0);
    expect_close(total.get_all(), {want_total}, kFloat, 1e-5);
    EXPECT_EQ(REFUSED(aclnnCumsum, x, 1, kHalf, running), kBad);
    EXPECT_EQ(REFUSED(aclnnReduceSum, x, middle, true, kFloat, sum), kBad);
  }
  Array whole(kInt32, {3}, {1, 2, 3}), running(kInt64, {3}), sum(kInt64, {1});
  const Ints first({0});
  ASSERT_EQ(RUN_OP(aclnnCumsum, whole, 0, kInt64, running), 0);
  EXPECT_EQ(running.get_all(), (std::vector<double>{1, 3, 6}));
  ASSERT_EQ(RUN_OP(aclnnReduceSum, whole, first, true, kInt64, sum), 0);
  EXPECT_EQ(sum.get_all(), std::vector<double>{6});
}

TEST_F(Vectors, SwiGluHalvesADimension) {
  for (const aclDataType dtype : kFloats) {
    const auto a = kept(dtype, numbers(24, 1, -3, 3));
    Array x(dtype, {3, 8}, a), y(dtype, {3, 4}), odd(dtype, {3, 3});
    std::vector<double> want(12);
    for (size_t i = 0; i < 12; ++i) {
      const double gate = a[i / 4 * 8 + i % 4], up = a[i / 4 * 8 + 4 + i % 4];
      want[i] = gate / (1 + std::exp(-gate)) * up;
    }
    ASSERT_EQ(RUN_OP(aclnnSwiGlu, x, -1, y), 0);
    expect_close(y.get_all(), want, dtype);
    EXPECT_EQ(REFUSED(aclnnSwiGlu, odd, -1, y), kBad);
    EXPECT_EQ(REFUSED(aclnnSwiGlu, x, 0, y), kBad);
  }
}

TEST_F(Vectors, MovesElements) {
  for (const aclDataType dtype : {kFloat, kBf16, kInt64, kInt8}) {
    Array x(dtype, {2, 3}, {1, 2, 3, 4, 5, 6}), turned(dtype, {3, 2}), part(dtype, {2, 2}),
        row(dtype, {1, 3}, {7, 8, 9});
    const Ints axes({1, 0}), twice({1, 1});
    ASSERT_EQ(RUN_OP(aclnnPermute, x, axes, turned), 0);
    EXPECT_EQ(turned.get_all(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
    ASSERT_EQ(RUN_OP(aclnnSlice, x, 1, -3, 9, 2, part), 0);
    EXPECT_EQ(part.get_all(), (std::vector<double>{1, 3, 4, 6}));
    EXPECT_EQ(REFUSED(aclnnPermute, x, twice, turned), kBad);
    EXPECT_EQ(REFUSED(aclnnSlice, x, 1, 0, 2, 0, part), kBad);
    EXPECT_EQ(REFUSED(aclnnSlice, x, 1, 0, 3, 1, part), kBad);
    Array joined(dtype, {3, 3});
    const List list({&x, &row});
    ASSERT_EQ(RUN_OP(aclnnCat, list, 0, joined), 0);
    EXPECT_EQ(joined.get_all(), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(REFUSED(aclnnCat, list, 1, joined), kBad);
  }
  Array whole(kInt32, {2, 1}, {1, 2}), real(kBf16, {2, 2}, {0.5, 1.5, 2.5, 3.5}), out(kBf16, {2, 3}),
      wrong(kInt32, {2, 3});
  const List list({&whole, &real});
  ASSERT_EQ(RUN_OP(aclnnCat, list, 1, out), 0);
  EXPECT_EQ(out.get_all(), (std::vector<double>{1, 0.5, 1.5, 2, 2.5, 3.5}));
  EXPECT_EQ(REFUSED(aclnnCat, list, 1, wrong), kBad);
}

}  // namespace
}  // namespace sim_test
