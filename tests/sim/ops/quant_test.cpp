// Int8: quantisation, norms that quantise, products and what follows them.
#include <bit>
#include <cmath>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class Quants : public OpsTest {};

double int8_of(double value) { return std::fmin(127, std::fmax(-128, std::nearbyint(value))); }

std::vector<double> whole(int64_t count, unsigned seed, double low = -128, double high = 127) {
  auto values = numbers(count, seed, low, high);
  for (double& value : values) value = std::nearbyint(value);
  return values;
}

// At most one step apart, and nearly all equal: float and double may round a tie differently.
void expect_bytes(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  size_t off = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - want[i]), 1) << "at " << i;
    off += got[i] != want[i];
  }
  EXPECT_LE(off, got.size() / 50 + 1);
}

struct Rows {
  std::vector<double> bytes, scales;
};
Rows by_rows(const std::vector<double>& x, int64_t width) {
  Rows rows;
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(width)) {
    double largest = 0;
    for (int64_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(x[at + i]));
    rows.scales.push_back(largest / 127);
    for (int64_t i = 0; i < width; ++i) rows.bytes.push_back(int8_of(largest > 0 ? x[at + i] * 127 / largest : 0));
  }
  return rows;
}

TEST_F(Quants, WithGivenScales) {
  for (const aclDataType dtype : {kFloat, kHalf, kBf16}) {
    const auto a = kept(dtype, numbers(21, 1, -2, 2)), s = kept(dtype, numbers(7, 2, 20, 90)),
               o = kept(dtype, numbers(7, 3, -9, 9));
    Array x(dtype, {3, 7}, a), scale(dtype, {7}, s), offset(dtype, {7}, o), y(kInt8, {3, 7}), one(dtype, {1}, {4});
    std::vector<double> want, floors, columns;
    for (size_t i = 0; i < 21; ++i) want.push_back(int8_of(a[i] * s[i % 7] + o[i % 7]));
    for (size_t i = 0; i < 21; ++i) floors.push_back(std::floor(a[i] * 16));
    ASSERT_EQ(RUN_OP(aclnnAscendQuantV3, x, scale, offset, false, "round", 2, -1, y), 0);
    expect_bytes(y.get_all(), want);
    ASSERT_EQ(RUN_OP(aclnnAscendQuant, x, scale, offset, false, "round", 2, y), 0);
    expect_bytes(y.get_all(), want);
    ASSERT_EQ(RUN_OP(aclnnAscendQuantV3, x, one, nullptr, true, "floor", 2, -1, y), 0);
    EXPECT_EQ(y.get_all(), floors);
    Array by_row(dtype, {3}, {1, 10, 100});
    for (size_t i = 0; i < 21; ++i) columns.push_back(int8_of(a[i] * std::pow(10, static_cast<double>(i / 7))));
    ASSERT_EQ(RUN_OP(aclnnAscendQuantV3, x, by_row, nullptr, false, "round", 2, 0, y), 0);
    expect_bytes(y.get_all(), columns);
    EXPECT_EQ(REFUSED(aclnnAscendQuantV3, x, scale, offset, false, "nearest", 2, -1, y), kBad);
    EXPECT_EQ(REFUSED(aclnnAscendQuantV3, x, scale, offset, false, "round", 5, -1, y), kBad);
    EXPECT_EQ(REFUSED(aclnnAscendQuantV3, x, scale, offset, false, "round", 29, -1, y), kAbsent);
    EXPECT_EQ(REFUSED(aclnnAscendQuantV3, x, by_row, nullptr, false, "round", 2, -1, y), kBad);
    EXPECT_EQ(REFUSED(aclnnAscendQuantV3, x, nullptr, nullptr, false, "round", 2, -1, y), kNull);
  }
  Array x(kFloat, {5}, {0.5, 1.5, 2.5, -0.5, 300}), one(kFloat, {1}, {1}), y(kInt8, {5});
  ASSERT_EQ(RUN_OP(aclnnAscendQuantV3, x, one, nullptr, false, "round", 2, -1, y), 0);
  EXPECT_EQ(y.get_all(), (std::vector<double>{0, 2, 2, 0, 127}));  // half to even, and saturated
}

TEST_F(Quants, WithAScalePerRow) {
  for (const aclDataType dtype : {kHalf, kBf16}) {
    auto a = kept(dtype, numbers(2 * 3 * 33, 1, -2, 2));
    std::fill(a.begin(), a.begin() + 33, 0);  // a row of zeros
    const auto f = kept(dtype, numbers(33, 2, 0.5, 2));
    Array x(dtype, {2, 3, 33}, a), smooth(dtype, {33}, f), y(kInt8, {2, 3, 33}), scale(kFloat, {2, 3});
    ASSERT_EQ(RUN_OP(aclnnDynamicQuant, x, nullptr, y, scale), 0);
    const Rows plain = by_rows(a, 33);
    expect_bytes(y.get_all(), plain.bytes);
    expect_close(scale.get_all(), plain.scales, kFloat);
    auto b = a;
    for (size_t i = 0; i < b.size(); ++i) b[i] *= f[i % 33];
    ASSERT_EQ(RUN_OP(aclnnDynamicQuant, x, smooth, y, scale), 0);
    expect_bytes(y.get_all(), by_rows(b, 33).bytes);
    Array wrong(kFloat, {6}), floats(kFloat, {2, 3, 33});
    EXPECT_EQ(REFUSED(aclnnDynamicQuant, x, nullptr, y, wrong), kBad);
    EXPECT_EQ(REFUSED(aclnnDynamicQuant, floats, nullptr, y, scale), kBad);
  }
}

TEST_F(Quants, NormsThatQuantise) {
  const int64_t rows = 3, width = 40;
  const double eps = 1e-6;
  for (const aclDataType dtype : {kHalf, kBf16}) {
    const auto a = kept(dtype, numbers(rows * width, 1)), b = kept(dtype, numbers(rows * width, 2));
    const auto g = kept(dtype, numbers(width, 3, 0.5, 1.5)), f1 = kept(dtype, numbers(width, 4, 0.5, 2)),
               f2 = kept(dtype, numbers(width, 5, 0.5, 2));
    std::vector<double> sum(a.size()), norm(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = kept(dtype, a[i] + b[i]);
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += sum[r * width + i] * sum[r * width + i];
      for (int64_t i = 0; i < width; ++i)
        norm[r * width + i] = sum[r * width + i] * g[i] / std::sqrt(squares / width + eps);
    }
    Array x1(dtype, {rows, width}, a), x2(dtype, {rows, width}, b), gamma(dtype, {width}, g), x(dtype, {rows, width});
    Array y1(kInt8, {rows, width}), y2(kInt8, {rows, width}), none(kInt8, {1}), no_scale(kFloat, {1});
    Array s1(kFloat, {rows}), s2(kFloat, {rows}), smooth1(dtype, {width}, f1), smooth2(dtype, {width}, f2);
    auto first = norm, second = norm;
    for (size_t i = 0; i < norm.size(); ++i) first[i] *= f1[i % width], second[i] *= f2[i % width];
    ASSERT_EQ(RUN_OP(aclnnAddRmsNormDynamicQuant, x1, x2, gamma, smooth1, smooth2, eps, y1, y2, x, s1, s2), 0);
    EXPECT_EQ(x.get_all(), sum);
    expect_bytes(y1.get_all(), by_rows(first, width).bytes);
    expect_bytes(y2.get_all(), by_rows(second, width).bytes);
    expect_close(s2.get_all(), by_rows(second, width).scales, kFloat);
    ASSERT_EQ(RUN_OP(aclnnAddRmsNormDynamicQuant, x1, x2, gamma, nullptr, nullptr, eps, y1, none, x, s1, no_scale), 0);
    expect_bytes(y1.get_all(), by_rows(norm, width).bytes);
    EXPECT_EQ(REFUSED(aclnnAddRmsNormDynamicQuant, x1, x2, gamma, nullptr, smooth2, eps, y1, y2, x, s1, s2), kLimit);
    EXPECT_EQ(REFUSED(aclnnAddRmsNormDynamicQuant, x1, x2, gamma, smooth1, smooth2, eps, y1, none, x, s1, s2), kBad);

    const bool half = dtype == kHalf;
    const aclDataType scale_type = half ? kFloat : kBf16, zero_type = half ? kInt32 : kBf16;
    const auto d1 = kept(scale_type, numbers(width, 6, 0.01, 0.05)),
               d2 = kept(scale_type, numbers(width, 7, 0.01, 0.05));
    const auto z1 = whole(width, 8, -5, 5);
    Array scales1(scale_type, {width}, d1), scales2(scale_type, {width}, d2), zeros1(zero_type, {width}, z1);
    std::vector<double> want1, want2;
    for (size_t i = 0; i < norm.size(); ++i) {
      want1.push_back(int8_of(norm[i] / d1[i % width] + z1[i % width]));
      want2.push_back(int8_of(norm[i] / d2[i % width]));
    }
    // The sum may replace an operand.
    ASSERT_EQ(RUN_OP(aclnnAddRmsNormQuant, x1, x2, gamma, scales1, scales2, zeros1, nullptr, -1, eps, true, y1, y2, x1),
              0);
    expect_bytes(y1.get_all(), want1);
    expect_bytes(y2.get_all(), want2);
    EXPECT_EQ(x1.get_all(), sum);
    EXPECT_EQ(
        REFUSED(aclnnAddRmsNormQuant, x1, x2, gamma, scales1, nullptr, zeros1, nullptr, -1, eps, true, y1, none, x), 0);
    EXPECT_EQ(
        REFUSED(aclnnAddRmsNormQuant, x1, x2, gamma, scales1, nullptr, zeros1, nullptr, -1, eps, false, y1, y2, x),
        kLimit);
    EXPECT_EQ(REFUSED(aclnnAddRmsNormQuant, x1, x2, gamma, scales1, nullptr, zeros1, nullptr, 0, eps, true, y1, y2, x),
              kLimit);
    EXPECT_EQ(
        REFUSED(aclnnAddRmsNormQuant, x1, x2, gamma, smooth1, nullptr, nullptr, nullptr, -1, eps, true, y1, y2, x),
        half ? kBad : 0);
  }
}

struct Product {
  int64_t m = 3, k = 37, n = 70;
  std::vector<double> a = whole(m * k, 1), b = whole(k * n, 2), tokens = kept(kFloat, numbers(m, 3, 0.001, 0.01));
  std::vector<double> scales = kept(kFloat, numbers(n, 4, 0.001, 0.01)), bias = whole(n, 5, -1000, 1000);
  double sum(int64_t i, int64_t j) const {
    double total = 0;
    for (int64_t d = 0; d < k; ++d) total += a[i * k + d] * b[d * n + j];
    return total;
  }
  std::vector<double> turned() const {
    std::vector<double> t(b.size());
    for (int64_t d = 0; d < k; ++d) {
      for (int64_t j = 0; j < n; ++j) t[j * k + d] = b[d * n + j];
    }
    return t;
  }
  template <typename F>
  std::vector<double> want(F f) const {
    std::vector<double> all;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) all.push_back(f(sum(i, j), i, j));
    }
    return all;
  }
};

TEST_F(Quants, ProductsPerTokenAndPerChannel) {
  const Product p;
  Array x1(kInt8, {p.m, p.k}, p.a), x2(kInt8, {p.k, p.n}, p.b), turned(kInt8, {p.n, p.k}, p.turned());
  Array left(kInt8, {p.k, p.m}), scale(kFloat, {p.n}, p.scales), tokens(kFloat, {p.m}, p.tokens),
      bias(kInt32, {p.n}, p.bias);
  Array float_bias(kFloat, {p.n}, p.bias), out(kBf16, {p.m, p.n}), half(kHalf, {p.m, p.n}), sums(kInt32, {p.m, p.n});
  const auto want = p.want([&](double s, int64_t i, int64_t j) { return (s + p.bias[j]) * p.scales[j] * p.tokens[i]; });
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV4, x1, x2, scale, nullptr, tokens, bias, false, false, out), 0) << bench().error;
  expect_close(out.get_all(), want, kBf16);
  EXPECT_EQ(bench().kernels[0].unit, ascend_sim::Unit::CubeInt8);
  EXPECT_EQ(bench().kernels[0].work.operations, 2.0 * p.m * p.k * p.n);
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV5, x1, turned, tokens, scale, nullptr, nullptr, nullptr, nullptr, bias, false, true,
                   0, half),
            0);
  expect_close(half.get_all(), want, kHalf);
  const auto late = p.want([&](double s, int64_t i, int64_t j) { return s * p.scales[j] * p.tokens[i] + p.bias[j]; });
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV4, x1, turned, scale, nullptr, tokens, float_bias, false, true, out), 0);
  expect_close(out.get_all(), late, kBf16);
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV3, x1, turned, scale, nullptr, nullptr, false, true, sums), 0);
  EXPECT_EQ(sums.get_all(), p.want([](double s, int64_t, int64_t) { return s; }));
  std::vector<double> columns(p.a.size());
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t d = 0; d < p.k; ++d) columns[d * p.m + i] = p.a[i * p.k + d];
  }
  left.set(columns);
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV4, left, x2, scale, nullptr, tokens, bias, true, false, out), 0);
  expect_close(out.get_all(), want, kBf16);
}

TEST_F(Quants, PackedScalesKeepNineteenBits) {
  const Product p;
  Array scale(kFloat, {p.n}, p.scales), packed(kUint64, {p.n});
  ASSERT_EQ(RUN_OP(aclnnTransQuantParamV2, scale, nullptr, packed), 0);
  const auto words = packed.raw();
  std::vector<double> cut;
  for (int64_t j = 0; j < p.n; ++j) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(p.scales[j]));
    ASSERT_EQ(words[j], (bits & 0xFFFFE000u) | uint64_t{1} << 46);
    cut.push_back(std::bit_cast<float>(bits & 0xFFFFE000u));
  }
  Array x1(kInt8, {p.m, p.k}, p.a), x2(kInt8, {p.k, p.n}, p.b), half(kHalf, {p.m, p.n}), bytes(kInt8, {p.m, p.n});
  Array offset(kFloat, {1}, {3}), bf16(kBf16, {p.m, p.n}), tokens(kFloat, {p.m}, p.tokens);
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV3, x1, x2, packed, nullptr, nullptr, false, false, half), 0);
  expect_close(half.get_all(), p.want([&](double s, int64_t, int64_t j) { return s * cut[j]; }), kHalf);
  ASSERT_EQ(RUN_OP(aclnnQuantMatmulV3, x1, x2, packed, offset, nullptr, false, false, bytes), 0);
  expect_bytes(bytes.get_all(), p.want([&](double s, int64_t, int64_t j) { return int8_of(s * cut[j] + 3); }));
  EXPECT_EQ(REFUSED(aclnnQuantMatmulV3, x1, x2, packed, nullptr, nullptr, false, false, bf16), kBad);
  EXPECT_EQ(REFUSED(aclnnQuantMatmulV3, x1, x2, scale, nullptr, nullptr, false, false, half), kBad);
  EXPECT_EQ(REFUSED(aclnnQuantMatmulV4, x1, x2, packed, nullptr, tokens, nullptr, false, false, bytes), kBad);
  EXPECT_EQ(REFUSED(aclnnTransQuantParamV2, scale, offset, packed), kLimit);
}

TEST_F(Quants, FractalInt8Weights) {
  const Product p;
  Array x1(kInt8, {p.m, p.k}, p.a), scale(kFloat, {p.n}, p.scales), tokens(kFloat, {p.m}, p.tokens),
      out(kBf16, {p.m, p.n});
  const auto want = p.want([&](double s, int64_t i, int64_t j) { return s * p.scales[j] * p.tokens[i]; });
  for (const bool transposed : {false, true}) {
    const int64_t rows = transposed ? p.n : p.k, columns = transposed ? p.k : p.n;
    const Dims storage{(columns + 31) / 32, (rows + 15) / 16, 16, 32};
    Array weight(kInt8, {rows, columns}, {columns, 1}, 0, storage[0] * storage[1] * 512);
    weight.set(transposed ? p.turned() : p.b);
    EXPECT_EQ(REFUSED(aclnnQuantMatmulWeightNz, x1, weight, tokens, scale, nullptr, nullptr, nullptr, nullptr, nullptr,
                      false, transposed, 0, out),
              kBad);
    ASSERT_EQ(RUN_OP(aclnnTransMatmulWeight, weight), 0);
    ASSERT_EQ(RUN_OP(aclnnQuantMatmulWeightNz, x1, weight, tokens, scale, nullptr, nullptr, nullptr, nullptr, nullptr,
                     false, transposed, 0, out),
              0)
        << bench().error;
    expect_close(out.get_all(), want, kBf16);
    EXPECT_EQ(REFUSED(aclnnQuantMatmulWeightNz, x1, weight, tokens, scale, nullptr, nullptr, nullptr, nullptr, nullptr,
                      false, transposed, 32, out),
              kLimit);
  }
}

TEST_F(Quants, ProductLimits) {
  Array x1(kInt8, {2, 4}), x2(kInt8, {4, 3}), scale(kFloat, {3}), tokens(kFloat, {2}), out(kBf16, {2, 3}),
      wide(kFloat, {4});
  Array half_bias(kHalf, {3}), floats(kBf16, {2, 4}), wrong(kBf16, {3, 2}), three(kInt8, {1, 4, 3}),
      offset(kFloat, {3});
  const auto v4 = [&](aclTensor* a, aclTensor* b, aclTensor* s, aclTensor* o, aclTensor* t, aclTensor* bias, bool turn,
                      aclTensor* y) { return REFUSED(aclnnQuantMatmulV4, a, b, s, o, t, bias, false, turn, y); };
  EXPECT_EQ(v4(x1, x2, scale, nullptr, tokens, nullptr, false, out), 0);
  EXPECT_EQ(v4(x1, x2, nullptr, nullptr, tokens, nullptr, false, out), kNull);
  EXPECT_EQ(v4(x1, x2, scale, nullptr, tokens, nullptr, true, out), kBad);
  EXPECT_EQ(v4(x1, x2, wide, nullptr, tokens, nullptr, false, out), kBad);
  EXPECT_EQ(v4(x1, x2, scale, nullptr, scale, nullptr, false, out), kBad);
  EXPECT_EQ(v4(x1, x2, scale, nullptr, tokens, half_bias, false, out), kBad);
  EXPECT_EQ(v4(x1, x2, scale, offset, tokens, nullptr, false, out), kBad);
  EXPECT_EQ(v4(floats, x2, scale, nullptr, tokens, nullptr, false, out), kBad);
  EXPECT_EQ(v4(x1, three, scale, nullptr, tokens, nullptr, false, out), kBad);
  EXPECT_EQ(v4(x1, x2, scale, nullptr, tokens, nullptr, false, wrong), kBad);
  bench().machine.cann = ascend_sim::Cann::V8_1;
  EXPECT_EQ(REFUSED(aclnnQuantMatmulV5, x1, x2, tokens, scale, nullptr, nullptr, nullptr, nullptr, nullptr, false,
                    false, 0, out),
            kAbsent);
}

TEST_F(Quants, GatesAProductAndQuantisesIt) {
  const int64_t rows = 5, half = 24, width = 48;
  const auto x = whole(rows * width, 1, -3000, 3000), w = kept(kFloat, numbers(2 * width, 2, 0.001, 0.002));
  const auto t = kept(kFloat, numbers(rows, 3, 0.5, 2)), f = kept(kFloat, numbers(half, 4, 0.5, 2)),
             b = whole(width, 5, -100, 100);
  const auto gated = [&](bool left, bool grouped, bool biased) {
    std::vector<double> y;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t group = grouped && r >= 2;
      const auto value = [&](int64_t i) {
        return (x[r * width + i] + (biased ? b[i] : 0)) * w[group * width + i] * t[r];
      };
      for (int64_t i = 0; i < half; ++i) {
        const double gate = value(left ? i : half + i), up = value(left ? half + i : i);
        y.push_back(gate / (1 + std::exp(-gate)) * up);
      }
    }
    return y;
  };
  Array in(kInt32, {rows, width}, x), weight(kFloat, {width}, {w.begin(), w.begin() + width}),
      token(kFloat, {rows, 1}, t);
  Array bias(kInt32, {width}, b), smooth(kFloat, {half}, f), y(kInt8, {rows, half}), scale(kFloat, {rows});
  char dynamic[] = "dynamic", fixed[] = "static", other[] = "mixed";
  for (const bool left : {true, false}) {
    ASSERT_EQ(
        RUN_OP(aclnnDequantSwigluQuant, in, weight, token, bias, nullptr, nullptr, nullptr, left, dynamic, y, scale),
        0);
    const Rows want = by_rows(gated(left, false, true), half);
    expect_bytes(y.get_all(), want.bytes);
    expect_close(scale.get_all(), want.scales, kFloat, 1e-6, 4);
  }
  auto smoothed = gated(true, false, false), divided = smoothed;
  for (size_t i = 0; i < smoothed.size(); ++i) smoothed[i] *= f[i % half], divided[i] = int8_of(divided[i] / 0.25 + 4);
  ASSERT_EQ(
      RUN_OP(aclnnDequantSwigluQuant, in, weight, token, nullptr, smooth, nullptr, nullptr, true, dynamic, y, scale),
      0);
  expect_bytes(y.get_all(), by_rows(smoothed, half).bytes);
  Array one(kFloat, {1}, {0.25}), four(kFloat, {1}, {4});
  ASSERT_EQ(RUN_OP(aclnnDequantSwigluQuant, in, weight, token, nullptr, one, four, nullptr, true, fixed, y, scale), 0);
  expect_bytes(y.get_all(), divided);
  // Two experts with weights of their own; the last row belongs to nobody.
  Array weights(kFloat, {2, width}, w), counts(kInt64, {2}, {2, 2}), fresh(kInt8, {rows, half});
  ASSERT_EQ(RUN_OP(aclnnDequantSwigluQuant, in, weights, token, nullptr, nullptr, nullptr, counts, true, dynamic, fresh,
                   scale),
            0);
  auto want = by_rows(gated(true, true, false), half).bytes;
  std::fill(want.end() - half, want.end(), -1);  // the poison
  expect_bytes(fresh.get_all(), want);
  Array real(kBf16, {rows, width}, kept(kBf16, numbers(rows * width, 6))), big(kInt32, {1, 2 * 9400}),
      big_weight(kFloat, {2 * 9400});
  Array big_y(kInt8, {1, 9400}), big_scale(kFloat, {1});
  EXPECT_EQ(REFUSED(aclnnDequantSwigluQuant, real, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, true, dynamic,
                    y, scale),
            0);
  EXPECT_EQ(REFUSED(aclnnDequantSwigluQuant, real, weight, nullptr, nullptr, nullptr, nullptr, nullptr, true, dynamic,
                    y, scale),
            kBad);
  EXPECT_EQ(
      REFUSED(aclnnDequantSwigluQuant, in, nullptr, token, nullptr, nullptr, nullptr, nullptr, true, dynamic, y, scale),
      kBad);
  EXPECT_EQ(
      REFUSED(aclnnDequantSwigluQuant, in, weight, token, nullptr, nullptr, nullptr, nullptr, true, other, y, scale),
      kLimit);
  EXPECT_EQ(
      REFUSED(aclnnDequantSwigluQuant, in, weight, token, nullptr, nullptr, nullptr, nullptr, true, fixed, y, scale),
      kLimit);
  EXPECT_EQ(REFUSED(aclnnDequantSwigluQuant, big, big_weight, nullptr, nullptr, nullptr, nullptr, nullptr, true,
                    dynamic, big_y, big_scale),
            kLimit);
}

}  // namespace
}  // namespace sim_test
