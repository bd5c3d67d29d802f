// Gathers, norms, matrix products and cache writes against plain sums in double.
#include <array>
#include <cmath>

#include "ascend/ops/matrix.h"
#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class Dense : public OpsTest {};

std::vector<double> product_of(const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t k,
                               int64_t n) {
  std::vector<double> out(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t d = 0; d < k; ++d) sum += a[i * k + d] * b[d * n + j];
      out[i * n + j] = sum;
    }
  }
  return out;
}

TEST_F(Dense, RowsByIndex) {
  for (const aclDataType dtype : {kFloat, kHalf, kBf16, kInt32, kInt64, kInt8}) {
    Array table(dtype, {5, 3}, {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42});
    Array indices(kInt32, {2, 2}, {4, 0, 2, 2}), rows(dtype, {2, 2, 3});
    ASSERT_EQ(RUN_OP(aclnnEmbedding, table, indices, rows), 0);
    EXPECT_EQ(rows.get_all(), (std::vector<double>{40, 41, 42, 0, 1, 2, 20, 21, 22, 20, 21, 22}));
    Array columns(kInt64, {2}, {2, 0}), picked(dtype, {5, 2});
    ASSERT_EQ(RUN_OP(aclnnIndexSelect, table, -1, columns, picked), 0);
    EXPECT_EQ(picked.get_all(), (std::vector<double>{2, 0, 12, 10, 22, 20, 32, 30, 42, 40}));
    ASSERT_EQ(RUN_OP(aclnnGatherV2, table, 1, columns, picked), 0);
    EXPECT_EQ(picked.get_all()[0], 2);
  }
  Array table(kBf16, {5, 3}, numbers(15, 1)), out(kBf16, {2, 3}), past(kInt64, {2}, {5, 1}),
      before(kInt64, {2}, {0, -1});
  ASSERT_EQ(RUN_OP(aclnnEmbedding, table, past, out), 0);  // no error, but nothing to trust
  EXPECT_TRUE(std::isnan(out.get_all()[0]));
  EXPECT_NE(RUN_OP(aclnnEmbedding, table, before, out), 0);
  Array real(kFloat, {2}), wrong(kBf16, {3, 3}), square(kInt64, {1, 2});
  EXPECT_EQ(REFUSED(aclnnEmbedding, table, real, out), kBad);
  EXPECT_EQ(REFUSED(aclnnEmbedding, table, past, wrong), kBad);
  EXPECT_EQ(REFUSED(aclnnIndexSelect, table, 2, past, out), kBad);
  EXPECT_EQ(REFUSED(aclnnIndexSelect, table, 0, square, out), kBad);
}

TEST_F(Dense, Norms) {
  const int64_t rows = 3, width = 37;
  const double eps = 1e-5;
  for (const aclDataType dtype : kFloats) {
    const auto a = kept(dtype, numbers(rows * width, 1)), b = kept(dtype, numbers(rows * width, 2));
    const auto g = kept(dtype, numbers(width, 3, 0.5, 1.5));
    const auto norm = [&](const std::vector<double>& x) {
      std::vector<double> y(x.size());
      for (int64_t r = 0; r < rows; ++r) {
        double squares = 0;
        for (int64_t i = 0; i < width; ++i) squares += x[r * width + i] * x[r * width + i];
        for (int64_t i = 0; i < width; ++i)
          y[r * width + i] = x[r * width + i] * g[i] / std::sqrt(squares / width + eps);
      }
      return y;
    };
    std::vector<double> sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = kept(dtype, a[i] + b[i]);
    Array x1(dtype, {rows, width}, a), x2(dtype, {rows, width}, b), gamma(dtype, {width}, g);
    Array y(dtype, {rows, width}), rstd(kFloat, {rows, 1}), x(dtype, {rows, width}), wide(kFloat, {width}, g);
    ASSERT_EQ(RUN_OP(aclnnRmsNorm, x1, gamma, eps, y, rstd), 0);
    expect_close(y.get_all(), norm(a), dtype);
    ASSERT_EQ(RUN_OP(aclnnRmsNorm, x1, wide, eps, y, rstd), 0);
    expect_close(y.get_all(), norm(a), dtype);
    ASSERT_EQ(RUN_OP(aclnnAddRmsNorm, x1, x2, gamma, eps, y, rstd, x), 0);
    EXPECT_EQ(x.get_all(), sum);
    expect_close(y.get_all(), norm(sum), dtype);
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += sum[i] * sum[i];
    expect_close({rstd.get_all()[0]}, {1 / std::sqrt(squares / width + eps)}, kFloat);
    ASSERT_EQ(RUN_OP(aclnnInplaceAddRmsNorm, x1, x2, gamma, eps, rstd), 0);
    EXPECT_EQ(x2.get_all(), sum);
    expect_close(x1.get_all(), norm(sum), dtype);
  }
}

TEST_F(Dense, NormsOverTwoDimensionsAndOverHeads) {
  Array x(kFloat, {2, 3, 4}, {8, 4, 1}, 0, 28), gamma(kFloat, {3, 4}, std::vector<double>(12, 1)), y(kFloat, {2, 3, 4});
  Array rstd(kFloat, {2, 1, 1}), wrong(kFloat, {2, 3, 1});
  x.set(std::vector<double>(24, 2));
  ASSERT_EQ(RUN_OP(aclnnRmsNorm, x, gamma, 0.0, y, rstd), 0);
  EXPECT_EQ(y.get_all(), std::vector<double>(24, 1));
  EXPECT_EQ(rstd.get_all(), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(bench().kernels.size(), 2u);  // x overlaps itself and is packed first
  EXPECT_EQ(REFUSED(aclnnRmsNorm, x, gamma, 0.0, y, wrong), kBad);
  EXPECT_EQ(REFUSED(aclnnRmsNorm, x, gamma, 0.0, y, nullptr), kNull);
  Array half(kHalf, {3, 4}), other(kFloat, {4, 3});
  EXPECT_EQ(REFUSED(aclnnRmsNorm, x, half, 0.0, y, rstd), kBad);
  EXPECT_EQ(REFUSED(aclnnRmsNorm, x, other, 0.0, y, rstd), kBad);
  Array a(kBf16, {2, 4}, numbers(8, 1)), row(kBf16, {1, 4}, numbers(4, 2)), out(kBf16, {2, 4}), flat(kBf16, {4});
  EXPECT_EQ(REFUSED(aclnnAddRmsNorm, a, a, row, 1e-5, out, nullptr, nullptr), 0);
  EXPECT_EQ(REFUSED(aclnnAddRmsNorm, a, a, flat, 1e-5, out, nullptr, nullptr), kNull);
  bench().machine.cann = ascend_sim::Cann::V8_1;
  EXPECT_EQ(REFUSED(aclnnAddRmsNorm, a, a, row, 1e-5, out, nullptr, nullptr), kNull);
}

TEST_F(Dense, ProductsOfEveryTypeAndForm) {
  for (const aclDataType dtype : kFloats) {
    for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 33, 70}, {5, 17, 3}, {4, 64, 129}}) {
      const auto a = kept(dtype, numbers(m * k, 1)), b = kept(dtype, numbers(k * n, 2));
      const auto want = product_of(a, b, m, k, n);
      Array left(dtype, {m, k}, a), right(dtype, {k, n}, b), out(dtype, {m, n}), wide(kFloat, {m, n});
      ASSERT_EQ(RUN_OP(aclnnMm, left, right, out, 0), 0);
      expect_close(out.get_all(), want, dtype, 1e-5);
      EXPECT_EQ(bench().kernels.size(), 1u);
      EXPECT_EQ(bench().kernels[0].work.operations, 2.0 * m * k * n);
      EXPECT_EQ(bench().kernels[0].unit, ascend_sim::Unit::Cube);
      Array turned(dtype, {k, n}, {1, k}, 0, k * n);  // the weight [n, k] as it lies in a checkpoint
      turned.set(b);
      ASSERT_EQ(RUN_OP(aclnnMatmul, left, turned, wide, 1), 0);
      EXPECT_EQ(bench().kernels.size(), 1u) << "a transposed weight costs nothing";
      expect_close(wide.get_all(), want, kFloat, 1e-5);
      Array gaps(dtype, {k, n}, {n + 3, 1}, 1, k * (n + 3) + 1);
      gaps.set(b);
      ASSERT_EQ(RUN_OP(aclnnMatmul, left, gaps, out, 0), 0);
      EXPECT_EQ(bench().kernels.size(), 2u);
      expect_close(out.get_all(), want, dtype, 1e-5);
    }
  }
}

TEST_F(Dense, BatchesBroadcast) {
  const auto a = numbers(2 * 3 * 4, 1), b = numbers(4 * 5, 2), c = numbers(2 * 4 * 5, 3);
  Array left(kFloat, {2, 3, 4}, a), right(kFloat, {4, 5}, b), three(kFloat, {2, 4, 5}, c), out(kFloat, {2, 3, 5});
  ASSERT_EQ(RUN_OP(aclnnMatmul, left, right, out, 0), 0);
  expect_close(out.get_all(), product_of(a, b, 6, 4, 5), kFloat, 1e-5);
  ASSERT_EQ(RUN_OP(aclnnBatchMatMul, left, three, out, 0), 0);
  auto want = product_of({a.begin(), a.begin() + 12}, {c.begin(), c.begin() + 20}, 3, 4, 5);
  const auto second = product_of({a.begin() + 12, a.end()}, {c.begin() + 20, c.end()}, 3, 4, 5);
  want.insert(want.end(), second.begin(), second.end());
  expect_close(out.get_all(), want, kFloat, 1e-5);
  Array vector(kFloat, {4}, {1, 0, 0, 0}), row(kFloat, {5}), column(kFloat, {2, 3});
  ASSERT_EQ(RUN_OP(aclnnMatmul, vector, right, row, 0), 0);
  expect_close(row.get_all(), {b.begin(), b.begin() + 5}, kFloat);
  ASSERT_EQ(RUN_OP(aclnnMatmul, left, vector, column, 0), 0);
  EXPECT_NEAR(column.get_all()[1], a[4], 1e-6);
  EXPECT_EQ(REFUSED(aclnnMm, left, right, out, 0), kBad);
  EXPECT_EQ(REFUSED(aclnnBatchMatMul, left, right, out, 0), kBad);
  EXPECT_EQ(REFUSED(aclnnMatmul, left, left, out, 0), kBad);
  EXPECT_EQ(REFUSED(aclnnMatmul, left, right, row, 0), kBad);
  EXPECT_EQ(REFUSED(aclnnMatmul, left, right, out, 5), kBad);
  Array half(kHalf, {4, 5});
  EXPECT_EQ(REFUSED(aclnnMatmul, left, half, out, 0), kBad);
}

TEST_F(Dense, AddsABias) {
  const auto a = kept(kBf16, numbers(6, 1)), b = kept(kBf16, numbers(12, 2)), c = kept(kBf16, numbers(4, 3));
  Array left(kBf16, {2, 3}, a), right(kBf16, {3, 4}, b), bias(kBf16, {4}, c), out(kBf16, {2, 4});
  auto want = product_of(a, b, 2, 3, 4);
  for (size_t i = 0; i < want.size(); ++i) want[i] = 2 * want[i] + 0.5 * c[i % 4];
  const Number beta(0.5f), alpha(2.0f);
  ASSERT_EQ(RUN_OP(aclnnAddmm, bias, left, right, beta, alpha, out, 0), 0);
  expect_close(out.get_all(), want, kBf16);
  EXPECT_EQ(REFUSED(aclnnAddmm, bias, left, right, nullptr, alpha, out, 0), kNull);
  Array wrong(kBf16, {3});
  EXPECT_EQ(REFUSED(aclnnAddmm, wrong, left, right, beta, alpha, out, 0), kBad);
}

TEST_F(Dense, FractalWeights) {
  for (const aclDataType dtype : {kHalf, kBf16}) {
    for (const bool turned : {false, true}) {
      const int64_t m = 3, k = 21, n = 35, rows = turned ? n : k, columns = turned ? k : n;
      const auto a = kept(dtype, numbers(m * k, 1)), b = kept(dtype, numbers(k * n, 2));
      std::vector<double> stored(b.size());
      for (int64_t i = 0; i < k * n; ++i) stored[turned ? i % n * k + i / n : i] = b[i];
      const Ints dims({rows, columns});
      uint64_t elements = 0;
      ASSERT_EQ(aclnnCalculateMatmulWeightSizeV2(dims, dtype, &elements), 0);
      EXPECT_EQ(elements, static_cast<uint64_t>((columns + 15) / 16 * ((rows + 15) / 16) * 256));
      Array weight(dtype, {rows, columns}, {columns, 1}, 0, static_cast<int64_t>(elements));
      weight.set(stored);
      ASSERT_EQ(RUN_OP(aclnnTransMatmulWeight, weight), 0);
      aclFormat format = 0;
      aclGetFormat(weight, &format);
      EXPECT_EQ(format, ascend_sim::kFractalNz);
      // Element (r, c) lies at [c / 16][r / 16][r % 16][c % 16].
      const auto* bits = reinterpret_cast<const uint16_t*>(weight.memory().data());
      const int64_t r = 17, c = 18, place = (c / 16 * ((rows + 15) / 16) + r / 16) * 256 + r % 16 * 16 + c % 16;
      double value = 0;
      ascend_sim::read_run(dtype, bits + place, 1, 1, &value);
      EXPECT_EQ(value, stored[r * columns + c]);
      EXPECT_EQ(bits[elements - 1], 0) << "padding is zero";
      Array left(dtype, {m, k}, a), out(dtype, {m, n}), plain(dtype, {k, n});
      const Dims storage{(columns + 15) / 16, (rows + 15) / 16, 16, 16};
      weight.describe({k, n}, turned ? Dims{1, k} : Dims{n, 1}, ascend_sim::kFractalNz, storage);
      ASSERT_EQ(RUN_OP(aclnnMatmulWeightNz, left, weight, out, 0), 0) << bench().error;
      expect_close(out.get_all(), product_of(a, b, m, k, n), dtype, 1e-5);
      EXPECT_EQ(REFUSED(aclnnMatmulWeightNz, left, plain, out, 0), kBad);
      weight.describe({k, n}, turned ? Dims{1, k} : Dims{n, 1}, ascend_sim::kFractalNz, {k, n});
      EXPECT_EQ(REFUSED(aclnnMatmulWeightNz, left, weight, out, 0), kBad);
      EXPECT_EQ(REFUSED(aclnnTransMatmulWeight, weight), kBad);
    }
  }
  Array thin(kBf16, {1, 16}), row(kBf16, {2, 1}), out(kBf16, {2, 16});
  thin.describe({1, 16}, {16, 1}, ascend_sim::kFractalNz, {1, 1, 16, 16});
  EXPECT_EQ(REFUSED(aclnnMatmulWeightNz, row, thin, out, 0), kLimit);
  uint64_t elements = 0;
  const Ints dims({3, 40});
  ASSERT_EQ(aclnnCalculateMatmulWeightSizeV2(dims, kInt8, &elements), 0);
  EXPECT_EQ(elements, 2u * 1 * 16 * 32);
  EXPECT_EQ(aclnnCalculateMatmulWeightSizeV2(dims, kInt64, &elements), kBad);
  EXPECT_EQ(aclnnCalculateMatmulWeightSize(nullptr, &elements), kNull);
  const Ints batched({2, 3, 40});
  EXPECT_EQ(aclnnCalculateMatmulWeightSize(dims, &elements), 0);
  EXPECT_EQ(elements, 16u * 48);
  EXPECT_EQ(aclnnCalculateMatmulWeightSize(batched, &elements), kBad);
  EXPECT_EQ(aclnnCalculateMatmulWeightSizeV2(batched, kBf16, &elements), 0);
  EXPECT_EQ(elements, 2u * 16 * 48);
}

TEST_F(Dense, WritesPagesInEveryLayout) {
  const int64_t tokens = 3, heads = 2, width = 32, value_width = 16, blocks = 3, size = 4;
  const auto k = kept(kBf16, numbers(tokens * heads * width, 1)),
             v = kept(kBf16, numbers(tokens * heads * value_width, 2));
  const std::vector<double> where{5, 0, 11};
  for (const aclDataType index : {kInt32, kInt64}) {
    Array key(kBf16, {tokens, heads, width}, k), value(kBf16, {tokens, heads, value_width}, v),
        slots(index, {tokens}, where);
    Array rows(kBf16, {blocks, size, heads, width}), value_rows(kBf16, {blocks, size, heads, value_width});
    char norm[] = "Norm", none[] = "None", nhsd[] = "NHSD", nz[] = "PA_NZ";
    const Ints ones({1, 1}), zeros({0, 0});
    ASSERT_EQ(RUN_OP(aclnnScatterPaKvCache, key, rows, slots, value, value_rows, nullptr, nullptr, nullptr, nullptr,
                     nullptr, ones, zeros),
              0);
    Array major(kBf16, {blocks, heads, size, width}), value_major(kBf16, {blocks, heads, size, value_width});
    ASSERT_EQ(RUN_OP(aclnnScatterPaKvCache, key, major, slots, value, value_major, nullptr, nullptr, nullptr, norm,
                     nhsd, nullptr, nullptr),
              0);
    Array fractal(kBf16, {blocks, heads * width / 16, size, 16}), value_fractal(kBf16, {blocks, heads, size, 16});
    ASSERT_EQ(RUN_OP(aclnnScatterPaKvCache, key, fractal, slots, value, value_fractal, nullptr, nullptr, nullptr, nz,
                     none, nullptr, nullptr),
              0);
    Array alone(kBf16, {blocks, size, heads, width}), no_value(kBf16, {}), no_cache(kBf16, {});
    for (Array* array : {&no_value, &no_cache}) array->describe({}, {}, ascend_sim::kNd, {});
    ASSERT_EQ(RUN_OP(aclnnScatterPaKvCache, key, alone, slots, no_value, no_cache, nullptr, nullptr, nullptr, nullptr,
                     nullptr, nullptr, nullptr),
              0);
    EXPECT_EQ(alone.raw(), rows.raw());
    const auto in_rows = rows.get_all(), in_major = major.get_all(), in_fractal = fractal.get_all();
    for (int64_t t = 0; t < tokens; ++t) {
      const auto slot = static_cast<int64_t>(where[t]), page = slot / size, at = slot % size;
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < width; ++d) {
          const double want = k[(t * heads + h) * width + d];
          const int64_t column = h * width + d;
          EXPECT_EQ(in_rows[(slot * heads + h) * width + d], want);
          EXPECT_EQ(in_major[((page * heads + h) * size + at) * width + d], want);
          EXPECT_EQ(in_fractal[((page * (heads * width / 16) + column / 16) * size + at) * 16 + column % 16], want);
        }
      }
    }
    EXPECT_EQ(value_rows.get_all()[11 * heads * value_width], v[2 * heads * value_width]);
    EXPECT_EQ(value_major.get_all()[(2 * heads * size + 3) * value_width], v[2 * heads * value_width]);
    EXPECT_TRUE(std::isnan(in_rows[heads * width])) << "slot 1 stays as it was";
    EXPECT_LT(bench().kernels[0].work.bytes, 2 * key.memory().size() + 100.0) << "rows count, not the whole cache";
  }
}

TEST_F(Dense, CacheWriteLimits) {
  Array key(kBf16, {2, 1, 16}, numbers(32, 1)), cache(kBf16, {2, 4, 1, 16}), slots(kInt32, {2}, {0, 8}),
      flat(kBf16, {8, 16});
  Array no_value(kBf16, {}), no_cache(kBf16, {});
  for (Array* array : {&no_value, &no_cache}) array->describe({}, {}, ascend_sim::kNd, {});
  Array wide(kBf16, {2, 4, 1, 32}), floats(kFloat, {2, 1, 16}), float_cache(kFloat, {2, 4, 1, 16}), three(kInt32, {3});
  const auto write = [&](aclTensor* k, aclTensor* c, aclTensor* s, const char* mode, const char* scatter,
                         aclTensor* lens, const aclIntArray* strides) {
    return REFUSED(aclnnScatterPaKvCache, k, c, s, no_value, no_cache, lens, nullptr, nullptr, const_cast<char*>(mode),
                   const_cast<char*>(scatter), strides, nullptr);
  };
  EXPECT_EQ(write(key, cache, slots, nullptr, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(write(key, flat, slots, nullptr, nullptr, nullptr, nullptr), kLimit);
  EXPECT_EQ(write(key, wide, slots, nullptr, nullptr, nullptr, nullptr), kLimit);
  EXPECT_EQ(write(key, cache, three, nullptr, nullptr, nullptr, nullptr), kLimit);
  EXPECT_EQ(write(key, cache, slots, "PA", nullptr, nullptr, nullptr), kLimit);
  EXPECT_EQ(write(key, cache, slots, "Norm", "Rope", nullptr, nullptr), kLimit);
  EXPECT_EQ(write(key, cache, slots, nullptr, nullptr, slots, nullptr), kLimit);
  EXPECT_EQ(write(floats, float_cache, slots, nullptr, nullptr, nullptr, nullptr), kBad);
  EXPECT_EQ(write(key, float_cache, slots, nullptr, nullptr, nullptr, nullptr), kBad);
  const Ints two({2, 1});
  EXPECT_EQ(write(key, cache, slots, nullptr, nullptr, nullptr, two), 0) << "only the mode Nct looks at strides";
  EXPECT_EQ(write(key, cache, slots, "PA_NZ", "Nct", nullptr, two), kLimit);
  for (const double slot : {8.0, -1.0}) {
    slots.set({0, slot});
    EXPECT_NE(RUN_OP(aclnnScatterPaKvCache, key, cache, slots, no_value, no_cache, nullptr, nullptr, nullptr, nullptr,
                     nullptr, nullptr, nullptr),
              0);
    EXPECT_NE(bench().error.find("slot"), std::string::npos);
  }
  bench().machine.cann = ascend_sim::Cann::V8_1;
  EXPECT_EQ(write(key, cache, slots, nullptr, nullptr, nullptr, nullptr), 561003);
}

TEST_F(Dense, ScattersRowsAndElements) {
  Array cache(kBf16, {4, 2}, std::vector<double>(8, 0)), rows(kBf16, {2, 2}, {1, 2, 3, 4}), at(kInt64, {2, 1}, {3, 1});
  ASSERT_EQ(RUN_OP(aclnnScatterNdUpdate, cache, at, rows), 0);
  EXPECT_EQ(cache.get_all(), (std::vector<double>{0, 0, 3, 4, 0, 0, 1, 2}));
  Array places(kInt32, {1, 2}, {2, 1}), one(kBf16, {1}, {9});
  ASSERT_EQ(RUN_OP(aclnnScatterNdUpdate, cache, places, one), 0);
  EXPECT_EQ(cache.get_all()[5], 9);
  at.set({4, 0});
  EXPECT_NE(RUN_OP(aclnnScatterNdUpdate, cache, at, rows), 0);
  Array wrong(kBf16, {2, 3}), deep(kInt32, {1, 3}), floats(kFloat, {2, 2});
  EXPECT_EQ(REFUSED(aclnnScatterNdUpdate, cache, at, wrong), kBad);
  EXPECT_EQ(REFUSED(aclnnScatterNdUpdate, cache, deep, one), kBad);
  EXPECT_EQ(REFUSED(aclnnScatterNdUpdate, cache, at, floats), kBad);
}

}  // namespace
}  // namespace sim_test
