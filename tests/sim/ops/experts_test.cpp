// Experts: choosing, sorting, products per group, combining.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class Experts : public OpsTest {};

std::vector<size_t> best(const std::vector<double>& values, size_t count) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  places.resize(count);
  return places;
}

TEST_F(Experts, ChosenBySoftmax) {
  const int64_t rows = 4, experts = 11, k = 3;
  for (const aclDataType dtype : {kFloat, kHalf, kBf16}) {
    const auto a = kept(dtype, numbers(rows * experts, 1, -3, 3));
    Array x(dtype, {rows, experts}, a), y(dtype, {rows, k}), index(kInt32, {rows, k}), all(kFloat, {rows, experts});
    Array finished(kBool, {rows}, {0, 0, 1, 0});
    for (const int64_t renorm : {0, 1}) {
      std::vector<double> want, places, softmax;
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<double> row(a.begin() + r * experts, a.begin() + (r + 1) * experts);
        double sum = 0, chosen = 0;
        for (double& value : row) sum += value = std::exp(value);
        for (double& value : row) softmax.push_back(value /= sum);
        const auto order = best(row, k);
        for (const size_t e : order) chosen += row[e];
        for (const size_t e : order) {
          want.push_back(renorm ? row[e] / chosen : row[e]);
          places.push_back(r == 2 ? experts : static_cast<double>(e));
        }
      }
      ASSERT_EQ(RUN_OP(aclnnMoeGatingTopKSoftmaxV2, x, finished, k, renorm, renorm == 0, y, index,
                       renorm ? nullptr : all.get()),
                0);
      expect_close(y.get_all(), want, dtype);
      EXPECT_EQ(index.get_all(), places);
      if (!renorm) expect_close(all.get_all(), softmax, kFloat);
    }
    EXPECT_EQ(REFUSED(aclnnMoeGatingTopKSoftmaxV2, x, nullptr, 12, 0, false, y, index, nullptr), kLimit);
    EXPECT_EQ(REFUSED(aclnnMoeGatingTopKSoftmaxV2, x, nullptr, k, 1, true, y, index, all), kLimit);
    EXPECT_EQ(REFUSED(aclnnMoeGatingTopKSoftmaxV2, x, nullptr, k, 0, true, y, index, nullptr), kNull);
    EXPECT_EQ(REFUSED(aclnnMoeGatingTopKSoftmaxV2, x, nullptr, k, 0, false, y, y, nullptr), kBad);
  }
}

TEST_F(Experts, ChosenWithinGroupsByBiasedScores) {
  const int64_t rows = 5, experts = 12, k = 3, groups = 4, size = 3;
  const auto a = numbers(rows * experts, 1, -3, 3), bias = numbers(experts, 2, -0.5, 0.5);
  Array x(kFloat, {rows, experts}, a), b(kFloat, {experts}, bias), y(kFloat, {rows, k}), index(kInt32, {rows, k}),
      all(kFloat, {rows, experts});
  for (const bool sigmoid : {false, true}) {
    for (const int64_t select : {0, 1}) {
      std::vector<double> want, places, scores;
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<double> row(a.begin() + r * experts, a.begin() + (r + 1) * experts), biased, by_group;
        double sum = 0, chosen = 0;
        for (double& value : row) sum += value = sigmoid ? 1 / (1 + std::exp(-value)) : std::exp(value);
        for (double& value : row) value /= sigmoid ? 1 : sum;
        scores.insert(scores.end(), row.begin(), row.end());
        for (int64_t e = 0; e < experts; ++e) biased.push_back(row[e] + bias[e]);
        for (int64_t g = 0; g < groups; ++g) {
          std::vector<double> members(biased.begin() + g * size, biased.begin() + (g + 1) * size);
          std::sort(members.rbegin(), members.rend());
          by_group.push_back(members[0] + (select ? members[1] : 0));
        }
        const auto open = best(by_group, 2);
        for (int64_t e = 0; e < experts; ++e) {
          if (std::find(open.begin(), open.end(), static_cast<size_t>(e / size)) == open.end()) biased[e] = -1e9;
        }
        const auto order = best(biased, k);
        for (const size_t e : order) chosen += row[e];
        for (const size_t e : order) {
          want.push_back(2.5 * (sigmoid ? row[e] / (chosen + 1e-20) : row[e]));
          places.push_back(static_cast<double>(e));
        }
      }
      ASSERT_EQ(RUN_OP(aclnnMoeGatingTopK, x, b, k, 2, groups, select, 0, sigmoid, true, 2.5, 1e-20, y, index, all), 0);
      EXPECT_EQ(index.get_all(), places);
      expect_close(y.get_all(), want, kFloat);
      expect_close(all.get_all(), scores, kFloat);
    }
  }
  const auto gate = [&](int64_t top, int64_t kept_groups, int64_t group_count, int64_t select, int64_t norm) {
    return REFUSED(aclnnMoeGatingTopK, x, b, top, kept_groups, group_count, select, 0, norm, false, 1.0, 1e-20, y,
                   index, nullptr);
  };
  EXPECT_EQ(gate(3, 1, 1, 0, 0), 0);
  EXPECT_EQ(REFUSED(aclnnMoeGatingTopK, x, b, k, 2, groups, 0, 2, 1, false, 1.0, 1e-20, y, index, nullptr), kLimit)
      << "renorm 2";
  EXPECT_EQ(gate(3, 2, 5, 0, 0), kLimit);
  EXPECT_EQ(gate(7, 2, 4, 0, 0), kLimit);
  EXPECT_EQ(gate(3, 5, 4, 0, 0), kLimit);
  EXPECT_EQ(gate(3, 1, 1, 2, 0), kLimit);
  EXPECT_EQ(gate(3, 1, 1, 0, 2), kLimit);
  Array many(kFloat, {1, 2080}), one(kFloat, {1, 1}), at(kInt32, {1, 1});
  EXPECT_EQ(REFUSED(aclnnMoeGatingTopK, many, nullptr, 1, 1, 1, 0, 0, 0, false, 1.0, 0.0, one, at, nullptr), kLimit);
  Array split(kFloat, {1, 1024});  // 128 groups of 8, each padded to 32
  EXPECT_EQ(REFUSED(aclnnMoeGatingTopK, split, nullptr, 1, 1, 128, 0, 0, 0, false, 1.0, 0.0, one, at, nullptr), kLimit);
  bench().machine.cann = ascend_sim::Cann::V8_1;
  EXPECT_EQ(gate(3, 1, 1, 0, 0), kAbsent);
}

TEST_F(Experts, SortedAndCombinedAgain) {
  const int64_t rows = 4, k = 2, width = 5, experts = 3;
  const auto a = kept(kBf16, numbers(rows * width, 1));
  const std::vector<double> choice{2, 0, 1, 2, 0, 1, 2, 1};
  Array x(kBf16, {rows, width}, a), chosen(kInt32, {rows, k}, choice), sorted(kBf16, {rows * k, width}),
      places(kInt32, {rows * k});
  Array ends(kInt32, {experts}), unused(kInt32, {experts});
  ASSERT_EQ(RUN_OP(aclnnMoeInitRoutingV2, x, chosen, 0, 0, experts, 0, 1, false, sorted, places, ends, unused), 0);
  EXPECT_EQ(ends.get_all(), (std::vector<double>{2, 5, 8}));
  EXPECT_EQ(places.get_all(), (std::vector<double>{5, 0, 2, 6, 1, 3, 7, 4}));
  const auto rows_out = sorted.get_all();
  for (int64_t i = 0; i < rows * k; ++i) {
    for (int64_t d = 0; d < width; ++d)
      EXPECT_EQ(rows_out[static_cast<int64_t>(places.get_all()[i]) * width + d], a[i / k * width + d]);
  }
  ASSERT_EQ(RUN_OP(aclnnMoeInitRoutingV2, x, chosen, 0, 0, experts, 0, 2, false, sorted, places, ends, unused), 0);
  EXPECT_EQ(ends.get_all(), (std::vector<double>{2, 3, 3}));

  const auto s = numbers(rows * k, 2, 0, 1), extra = kept(kBf16, numbers(rows * width, 3)),
             b = kept(kBf16, numbers(experts * width, 4));
  Array scales(kFloat, {rows, k}, s), shared(kBf16, {rows, width}, extra), bias(kBf16, {experts, width}, b),
      out(kBf16, {rows, width});
  std::vector<double> want(a.size());
  for (int64_t i = 0; i < rows * width; ++i) {
    want[i] = extra[i];
    for (int64_t j = 0; j < k; ++j)
      want[i] += s[i / width * k + j] * (a[i] + b[static_cast<int64_t>(choice[i / width * k + j]) * width + i % width]);
  }
  ASSERT_EQ(RUN_OP(aclnnMoeFinalizeRoutingV2, sorted, places, shared, nullptr, bias, scales, chosen, 2, out), 0);
  expect_close(out.get_all(), want, kBf16, 1e-5);
  // The old order of row numbers: choice by choice.
  std::vector<double> columns(rows * k);
  for (int64_t i = 0; i < rows * k; ++i) columns[i % k * rows + i / k] = places.get_all()[i];
  places.set(columns);
  ASSERT_EQ(RUN_OP(aclnnMoeFinalizeRoutingV2, sorted, places, shared, nullptr, bias, scales, chosen, 0, out), 0);
  expect_close(out.get_all(), want, kBf16, 1e-5);
  EXPECT_EQ(REFUSED(aclnnMoeFinalizeRoutingV2, sorted, places, nullptr, shared, nullptr, scales, nullptr, 2, out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeFinalizeRoutingV2, sorted, places, nullptr, nullptr, bias, scales, nullptr, 2, out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeFinalizeRoutingV2, sorted, places, nullptr, nullptr, nullptr, nullptr, nullptr, 2, out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeFinalizeRoutingV2, sorted, places, nullptr, nullptr, nullptr, scales, nullptr, 4, out),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV2, x, chosen, 0, 0, experts, 1, 1, false, sorted, places, ends, unused),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV2, x, chosen, 0, 0, experts, 0, 3, false, sorted, places, ends, unused),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV2, x, chosen, 0, 0, 4, 0, 1, false, sorted, places, ends, unused), kBad);
  chosen.set({2, 0, 1, 2, 0, 1, 2, 9});
  EXPECT_NE(RUN_OP(aclnnMoeInitRoutingV2, x, chosen, 0, 0, experts, 0, 1, false, sorted, places, ends, unused), 0);
}

TEST_F(Experts, ARangeOfThemWithInt8Rows) {
  const int64_t rows = 4, k = 2, width = 16, experts = 4;
  const auto a = kept(kBf16, numbers(rows * width, 1));
  const std::vector<double> choice{2, 0, 1, 2, 0, 3, 2, 1};
  Array x(kBf16, {rows, width}, a), chosen(kInt32, {rows, k}, choice), plain(kBf16, {rows * k, width}),
      places(kInt32, {rows * k});
  Array counts(kInt64, {2}), pairs(kInt64, {experts, 2}), bytes(kInt8, {rows * k, width}), scales(kFloat, {rows * k});
  const Ints range({1, 3}), wrong({3, 1});
  ASSERT_EQ(RUN_OP(aclnnMoeInitRoutingV3, x, chosen, nullptr, nullptr, 0, 0, experts, 0, 1, true, -1, range, 0, plain,
                   places, counts, nullptr),
            0)
      << bench().error;
  EXPECT_EQ(counts.get_all(), (std::vector<double>{2, 3}));
  EXPECT_EQ(places.get_all(), (std::vector<double>{2, -1, 0, 3, -1, -1, 4, 1}));
  EXPECT_EQ(plain.get_all()[0], a[width]);
  EXPECT_TRUE(std::isnan(plain.get_all()[5 * width])) << "rows of no expert are not written";
  ASSERT_EQ(RUN_OP(aclnnMoeInitRoutingV3, x, chosen, nullptr, nullptr, 0, 0, experts, 0, 2, true, 1, range, 1, bytes,
                   places, pairs, scales),
            0)
      << bench().error;
  EXPECT_EQ(pairs.get_all(), (std::vector<double>{1, 2, 2, 3, 0, 0, 0, 0}));
  const auto from = places.get_all(), got = bytes.get_all(), steps = scales.get_all();
  EXPECT_EQ(std::vector<double>(from.begin(), from.begin() + 5), (std::vector<double>{2, 7, 0, 3, 6}));
  for (int64_t i = 0; i < 5; ++i) {
    const auto token = static_cast<int64_t>(from[i]) / k;
    for (int64_t d = 0; d < width; ++d)
      EXPECT_NEAR(got[i * width + d] * steps[i], a[token * width + d], steps[i] * 0.51);
  }
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV3, x, chosen, nullptr, nullptr, 0, 0, experts, 0, 1, true, -1, wrong, 0, plain,
                    places, counts, nullptr),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV3, x, chosen, nullptr, nullptr, 0, 0, experts, 0, 1, true, 2, range, 0, plain,
                    places, counts, nullptr),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV3, x, chosen, nullptr, nullptr, 0, 0, experts, 0, 1, true, 0, range, 0, bytes,
                    places, counts, nullptr),
            kLimit);
  EXPECT_EQ(REFUSED(aclnnMoeInitRoutingV3, x, chosen, nullptr, nullptr, 0, 0, experts, 0, 1, true, 1, range, 0, plain,
                    places, counts, scales),
            kBad);
}

aclnnStatus grouped(Array& x, const List& weight, const List* bias, const List* scale, const List* tokens,
                    aclTensor* groups, int64_t kind, int64_t activation, Array& out, bool phase1_only = false) {
  const aclTensor *xs[] = {x.get()}, *outs[] = {out.get()};
  aclTensorList *in = aclCreateTensorList(xs, 1), *to = aclCreateTensorList(outs, 1);
  x.release();
  out.release();
  const Phase1 phase1 = [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnGroupedMatmulV4GetWorkspaceSize(in, weight, bias ? static_cast<aclTensorList*>(*bias) : nullptr,
                                                scale ? static_cast<aclTensorList*>(*scale) : nullptr, nullptr, nullptr,
                                                nullptr, tokens ? static_cast<aclTensorList*>(*tokens) : nullptr,
                                                groups, nullptr, nullptr, nullptr, 2, 0, kind, activation, to, nullptr,
                                                nullptr, size, executor);
  };
  const aclnnStatus status = phase1_only ? refused(phase1) : run(phase1, aclnnGroupedMatmulV4);
  aclDestroyTensorList(in);
  aclDestroyTensorList(to);
  return status;
}

TEST_F(Experts, ProductsPerGroup) {
  const int64_t rows = 6, depth = 9, columns = 70, experts = 3;
  const std::vector<double> counts{2, 0, 3}, ends{2, 2, 5}, pairs{2, 3, 0, 1, 1, 0};
  for (const aclDataType dtype : {kFloat, kHalf, kBf16}) {
    const auto a = kept(dtype, numbers(rows * depth, 1)), w = kept(dtype, numbers(experts * depth * columns, 2));
    const auto b = kept(dtype == kHalf ? kHalf : kFloat, numbers(experts * columns, 3));
    for (const int64_t kind : {0, 1, 2}) {
      for (const bool turned : {false, true}) {
        Array x(dtype, {rows, depth}, a), out(dtype, {rows, columns});
        Array weight(dtype, {experts, depth, columns},
                     turned ? Dims{depth * columns, 1, depth} : Dims{depth * columns, columns, 1}, 0,
                     experts * depth * columns);
        weight.set(w);
        Array bias(dtype == kHalf ? kHalf : kFloat, {experts, columns}, b);
        Array groups(kInt64, kind == 2 ? Dims{3, 2} : Dims{3}, kind == 0 ? ends : kind == 1 ? counts : pairs);
        const List weights({&weight}), biases({&bias});
        ASSERT_EQ(grouped(x, weights, &biases, nullptr, nullptr, groups, kind, 0, out), 0) << bench().error;
        EXPECT_EQ(bench().kernels.size(), 1u) << "a transposed weight costs nothing";
        std::vector<double> want;
        const std::vector<int64_t> owner =
            kind == 2 ? std::vector<int64_t>{2, 2, 2, 0} : std::vector<int64_t>{0, 0, 2, 2, 2};
        for (size_t r = 0; r < owner.size(); ++r) {
          for (int64_t n = 0; n < columns; ++n) {
            double sum = b[owner[r] * columns + n];
            for (int64_t d = 0; d < depth; ++d) sum += a[r * depth + d] * w[(owner[r] * depth + d) * columns + n];
            want.push_back(sum);
          }
        }
        const auto got = out.get_all();
        expect_close({got.begin(), got.begin() + static_cast<int64_t>(want.size())}, want, dtype, 1e-5);
        EXPECT_TRUE(std::isnan(got.back())) << "rows of no group are not written";
      }
    }
  }
  Array x(kBf16, {rows, depth}, numbers(rows * depth, 4)), out(kBf16, {rows, columns}),
      weight(kBf16, {experts, depth, columns}, numbers(experts * depth * columns, 5));
  Array past(kInt64, {3}, {2, 2, 7});
  const List weights({&weight});
  EXPECT_NE(grouped(x, weights, nullptr, nullptr, nullptr, past, 0, 0, out), 0);
}

TEST_F(Experts, Int8ProductsPerGroup) {
  const int64_t rows = 5, depth = 48, columns = 64, experts = 2;
  auto a = numbers(rows * depth, 1, -128, 127), w = numbers(experts * depth * columns, 2, -128, 127);
  for (double& value : a) value = std::nearbyint(value);
  for (double& value : w) value = std::nearbyint(value);
  const auto s = kept(kBf16, numbers(experts * columns, 3, 0.001, 0.01)),
             t = kept(kFloat, numbers(rows, 4, 0.001, 0.01));
  const auto value = [&](int64_t r, int64_t n) {
    const int64_t e = r >= 2;
    double sum = 0;
    for (int64_t d = 0; d < depth; ++d) sum += a[r * depth + d] * w[(e * depth + d) * columns + n];
    return sum * s[e * columns + n] * t[r];
  };
  Array ends(kInt64, {experts}, {2, 5});
  std::vector<double> want;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < columns; ++n) want.push_back(value(r, n) / (1 + std::exp(-value(r, n))));
  }
  Array weight(kInt8, {experts, depth, columns}, w);
  Array fractal(kInt8, {experts, depth, columns}, {depth * columns, columns, 1}, 0, experts * 2 * 3 * 16 * 32);
  fractal.set(w);
  ASSERT_EQ(RUN_OP(aclnnTransMatmulWeight, fractal), 0);
  // Gated and quantised at once.
  Array flat(kInt8, {rows, depth}, a), wide_scales(kFloat, {experts, columns}, s), per_token(kFloat, {rows}, t);
  Array bytes(kInt8, {rows, columns / 2}), steps(kFloat, {rows});
  ASSERT_EQ(RUN_OP(aclnnGroupedMatmulSwigluQuantWeightNZ, flat, fractal, nullptr, nullptr, wide_scales, per_token, ends,
                   bytes, steps, nullptr),
            0)
      << bench().error;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns / 2; ++i) {
      const double gate = value(r, i), up = value(r, columns / 2 + i), step = steps.get_all()[r];
      EXPECT_NEAR(bytes.get_all()[r * columns / 2 + i] * step, gate / (1 + std::exp(-gate)) * up, step * 0.51);
    }
  }
  EXPECT_EQ(REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, flat, weight, nullptr, nullptr, wide_scales, per_token, ends,
                    bytes, steps, nullptr),
            kBad);
  EXPECT_EQ(REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, flat, fractal, per_token, nullptr, wide_scales, per_token,
                    ends, bytes, steps, nullptr),
            kLimit);
  Array scales(kBf16, {experts, columns}, s), tokens(kFloat, {rows}, t), float_scales(kFloat, {experts, columns}, s);
  const List plain({&weight}), nz({&fractal}), scale({&scales}), token({&tokens}), wide({&float_scales});
  const auto product = [&](const List& with, const List* by, aclDataType type, int64_t activation,
                           std::vector<double>* got) {
    Array x(kInt8, {rows, depth}, a), out(type, {rows, columns});
    const aclnnStatus status = grouped(x, with, nullptr, by, &token, ends, 0, activation, out, got == nullptr);
    if (got) *got = out.get_all();
    return status;
  };
  std::vector<double> got;
  ASSERT_EQ(product(plain, &scale, kBf16, 5, &got), 0) << bench().error;
  expect_close(got, want, kBf16, 1e-4);
  ASSERT_EQ(product(nz, &scale, kBf16, 5, &got), 0) << bench().error;
  expect_close(got, want, kBf16, 1e-4);
  ASSERT_EQ(product(plain, &wide, kHalf, 5, &got), 0) << bench().error;
  expect_close(got, want, kHalf, 1e-4);
  EXPECT_EQ(product(plain, &wide, kBf16, 0, nullptr), kBad);
  EXPECT_EQ(product(nz, &wide, kBf16, 0, nullptr), kBad);
  EXPECT_EQ(product(plain, nullptr, kBf16, 0, nullptr), kBad);
  EXPECT_EQ(product(plain, &scale, kBf16, 3, nullptr), kLimit);
}

// What the documents allow besides: integers added before the scales; rows of nobody stay, experts of nobody are not
// read.
TEST_F(Experts, Int8SumsTakeABiasAndLeaveRowsOfNobody) {
  const int64_t rows = 4, depth = 32, columns = 64, experts = 8;
  auto a = numbers(rows * depth, 1, -128, 127), w = numbers(experts * depth * columns, 2, -128, 127);
  auto b = numbers(experts * columns, 3, -900, 900);
  for (auto* values : {&a, &w, &b})
    for (double& value : *values) value = std::nearbyint(value);
  const auto s = kept(kBf16, numbers(experts * columns, 4, 0.001, 0.01)), t = kept(kFloat, numbers(rows, 5, 0.01, 0.1));
  const Dims owner{1, 1, 6};
  Array ends(kInt64, {experts}, {0, 2, 2, 2, 2, 2, 3, 3});
  Array weight(kInt8, {experts, depth, columns}, w), scales(kBf16, {experts, columns}, s), tokens(kFloat, {rows}, t),
      bias(kInt32, {experts, columns}, b), floats(kFloat, {experts, columns}, b);
  Array fractal(kInt8, {experts, depth, columns}, {depth * columns, columns, 1}, 0, experts * 2 * 2 * 16 * 32);
  fractal.set(w);
  ASSERT_EQ(RUN_OP(aclnnTransMatmulWeight, fractal), 0);
  std::vector<double> want;
  for (size_t r = 0; r < owner.size(); ++r)
    for (int64_t n = 0; n < columns; ++n) {
      double sum = b[owner[r] * columns + n];
      for (int64_t d = 0; d < depth; ++d) sum += a[r * depth + d] * w[(owner[r] * depth + d) * columns + n];
      want.push_back(sum * s[owner[r] * columns + n] * t[r]);
    }
  const List plain({&weight}), nz({&fractal}), by({&scales}), of_rows({&tokens}), added({&bias}), wrong({&floats});
  Array x(kInt8, {rows, depth}, a), out(kBf16, {rows, columns});
  ASSERT_EQ(grouped(x, nz, &added, &by, &of_rows, ends, 0, 0, out), 0) << bench().error;
  const auto got = out.get_all();
  expect_close({got.begin(), got.begin() + static_cast<int64_t>(want.size())}, want, kBf16, 1e-4);
  for (int64_t n = 0; n < columns; ++n) EXPECT_TRUE(std::isnan(got[want.size() + n])) << "rows of no group stay";
  const double read = static_cast<double>(rows * depth + rows * depth * columns);
  EXPECT_LT(bench().kernels.back().work.bytes, read + 6.0 * rows * columns + 8.0 * experts * columns + 200)
      << "as many experts as there are rows";
  Array y(kInt8, {rows, depth}, a), other(kBf16, {rows, columns});
  EXPECT_EQ(grouped(y, nz, &wrong, &by, &of_rows, ends, 0, 0, other, true), kBad) << "a bias is INT32";

  const auto fifth = [&](const List& with, const List& scale, Array& in, Array& to) {
    const aclTensor *xs[] = {in.get()}, *ys[] = {to.get()};
    aclTensorList *from = aclCreateTensorList(xs, 1), *into = aclCreateTensorList(ys, 1);
    in.release(), to.release();
    const aclnnStatus status =
        RUN_OP(aclnnGroupedMatmulV5, from, with, added, scale, nullptr, nullptr, nullptr, of_rows, ends, nullptr,
               nullptr, nullptr, 2, 0, 0, 0, nullptr, into, nullptr, nullptr);
    aclDestroyTensorList(from), aclDestroyTensorList(into);
    return status;
  };
  Array v(kInt8, {rows, depth}, a), u(kBf16, {rows, columns});
  ASSERT_EQ(fifth(plain, by, v, u), 0) << bench().error;
  EXPECT_EQ(std::vector<double>(got.begin(), got.begin() + static_cast<int64_t>(want.size())), [&] {
    auto all = u.get_all();
    all.resize(want.size());
    return all;
  }());
  bench().machine.cann = ascend_sim::Cann::V8_1;
  Array v1(kInt8, {rows, depth}, a), u1(kBf16, {rows, columns});
  EXPECT_EQ(fifth(plain, by, v1, u1), kAbsent);
}

TEST_F(Experts, TheGatedProductHasLimits) {
  const int64_t rows = 3, depth = 32, columns = 64, experts = 2;
  Array x(kInt8, {rows, depth}, std::vector<double>(rows * depth, 3)), tokens(kFloat, {rows}, {1, 1, 1}),
      ends(kInt64, {experts}, {1, 2}), counts(kInt32, {experts}, {1, 1});
  Array scales(kFloat, {experts, columns}, std::vector<double>(experts * columns, 0.01));
  Array out(kInt8, {rows, columns / 2}, std::vector<double>(rows * columns / 2, 77)),
      steps(kFloat, {rows}, {-1, -1, -1});
  const auto weight = [&](int64_t wide, bool turned) {
    auto w = std::make_unique<Array>(kInt8, Dims{experts, depth, wide}, Dims{depth * wide, wide, 1}, 0,
                                     experts * depth * wide);
    w->set(std::vector<double>(experts * depth * wide, 2));
    const Dims shape{experts, depth, wide};
    if (turned) {
      w->describe(shape, {depth * wide, 1, depth}, 29, {experts, depth / 32, wide / 16, 16, 32});
    } else {
      w->describe(shape, {depth * wide, wide, 1}, 29, {experts, wide / 32, depth / 16, 16, 32});
    }
    return w;
  };
  const auto usual = weight(columns, false), turned = weight(columns, true), wide = weight(10272, false);
  ASSERT_EQ(RUN_OP(aclnnGroupedMatmulSwigluQuantWeightNZ, x, *usual, nullptr, nullptr, scales, tokens, ends, out, steps,
                   nullptr),
            0)
      << bench().error;
  EXPECT_EQ(out.get_all()[0], 127);
  EXPECT_EQ(out.get_all().back(), 77) << "rows of no group stay";
  EXPECT_EQ(steps.get_all().back(), -1);
  EXPECT_EQ(REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, x, *turned, nullptr, nullptr, scales, tokens, ends, out,
                    steps, nullptr),
            kBad);
  EXPECT_EQ(REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, x, *usual, nullptr, nullptr, scales, tokens, counts, out,
                    steps, nullptr),
            kBad);
  EXPECT_EQ(REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, x, *usual, nullptr, nullptr, scales, nullptr, ends, out,
                    steps, nullptr),
            kNull);
  EXPECT_EQ(REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, x, *wide, nullptr, nullptr, scales, tokens, ends, out, steps,
                    nullptr),
            kLimit);
}

}  // namespace
}  // namespace sim_test
