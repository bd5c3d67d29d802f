// Rotary positions in the four forms of the vendor.
#include <cmath>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class Rotary : public OpsTest {};

std::vector<double> turned_half(const std::vector<double>& x, const std::vector<double>& angles, int64_t heads,
                                int64_t width, bool neox) {
  std::vector<double> y(x.size());
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(width)) {
    const double* angle = &angles[at / static_cast<size_t>(heads * width) * static_cast<size_t>(width / 2)];
    for (int64_t i = 0; i < width / 2; ++i) {
      const size_t a = at + static_cast<size_t>(neox ? i : 2 * i),
                   b = at + static_cast<size_t>(neox ? i + width / 2 : 2 * i + 1);
      y[a] = x[a] * std::cos(angle[i]) - x[b] * std::sin(angle[i]);
      y[b] = x[b] * std::cos(angle[i]) + x[a] * std::sin(angle[i]);
    }
  }
  return y;
}

// cos or sin of [tokens][width / 2] angles as wide as a head.
std::vector<double> wide(const std::vector<double>& angles, int64_t width, bool pairs, double (*f)(double)) {
  std::vector<double> all;
  const auto half = static_cast<size_t>(width / 2);
  for (size_t at = 0; at < angles.size(); at += half) {
    for (size_t i = 0; i < 2 * half; ++i) all.push_back(f(angles[at + (pairs ? i / 2 : i % half)]));
  }
  return all;
}

TEST_F(Rotary, RotaryPositionsInEveryForm) {
  const int64_t tokens = 3, q_heads = 4, k_heads = 2, width = 64;
  const auto cosine = +[](double x) { return std::cos(x); }, sine = +[](double x) { return std::sin(x); };
  for (const aclDataType dtype : kFloats) {
    const auto q = kept(dtype, numbers(tokens * q_heads * width, 1)),
               k = kept(dtype, numbers(tokens * k_heads * width, 2));
    const auto angles = numbers(tokens * width / 2, 3, 0, 3);
    const double floor = dtype == kFloat ? 1e-5 : dtype == kHalf ? 2e-3 : 2e-2;  // cos and sin are rounded, too
    for (const int64_t layout : {1, 4}) {
      const auto shape = [&](int64_t heads) {
        return layout == 1 ? Dims{1, tokens, heads, width} : Dims{tokens, heads, width};
      };
      Array query(dtype, shape(q_heads), q), key(dtype, shape(k_heads), k);
      Array cos(dtype, shape(1), wide(angles, width, false, cosine)),
          sin(dtype, shape(1), wide(angles, width, false, sine));
      ASSERT_EQ(RUN_OP(aclnnApplyRotaryPosEmb, query, key, cos, sin, layout), 0);
      expect_close(query.get_all(), turned_half(q, angles, q_heads, width, true), dtype, floor);
      expect_close(key.get_all(), turned_half(k, angles, k_heads, width, true), dtype, floor);
    }
    for (const bool neox : {true, false}) {
      Array x(dtype, {tokens, q_heads, width}, q), out(dtype, {tokens, q_heads, width});
      Array cos(dtype, {tokens, 1, width}, wide(angles, width, !neox, cosine));
      Array sin(dtype, {tokens, 1, width}, wide(angles, width, !neox, sine));
      ASSERT_EQ(RUN_OP(aclnnRotaryPositionEmbedding, x, cos, sin, neox ? 0 : 1, out), 0);
      expect_close(out.get_all(), turned_half(q, angles, q_heads, width, neox), dtype, floor);
      // The cache holds position 5 - t for token t: cos of half a head, then sin.
      std::vector<double> cache(static_cast<size_t>(6 * width));
      std::vector<double> positions;
      for (int64_t t = 0; t < tokens; ++t) {
        positions.push_back(static_cast<double>(5 - t));
        for (int64_t i = 0; i < width / 2; ++i) {
          cache[(5 - t) * width + i] = std::cos(angles[t * width / 2 + i]);
          cache[(5 - t) * width + width / 2 + i] = std::sin(angles[t * width / 2 + i]);
        }
      }
      Array at(kInt64, {tokens}, positions), table(dtype, {6, width}, cache);
      Array q_in(dtype, {tokens, q_heads * width}, q), k_in(dtype, {tokens, k_heads * width}, k);
      Array q_out(dtype, {tokens, q_heads * width}), k_out(dtype, {tokens, k_heads * width});
      ASSERT_EQ(RUN_OP(aclnnRopeWithSinCosCache, at, q_in, k_in, table, nullptr, width, neox, q_out, k_out), 0);
      expect_close(q_out.get_all(), turned_half(q, angles, q_heads, width, neox), dtype, floor);
      expect_close(k_out.get_all(), turned_half(k, angles, k_heads, width, neox), dtype, floor);
      at.set({0, 1, 6});
      EXPECT_NE(RUN_OP(aclnnRopeWithSinCosCache, at, q_in, k_in, table, nullptr, width, neox, q_out, k_out), 0);
    }
  }
}

TEST_F(Rotary, InterleavedRotationSortsPairsFirst) {
  const int64_t heads = 2, tokens = 3, width = 64;
  const auto x = kept(kBf16, numbers(heads * tokens * width, 1)), angles = numbers(tokens * width / 2, 2, 0, 3);
  Array in(kBf16, {1, heads, tokens, width}, x), out(kBf16, {1, heads, tokens, width});
  Array cos(kBf16, {1, 1, tokens, width},
            wide(
                angles, width, false, +[](double a) { return std::cos(a); }));
  Array sin(kBf16, {1, 1, tokens, width},
            wide(
                angles, width, false, +[](double a) { return std::sin(a); }));
  std::vector<double> want(x.size());
  for (int64_t row = 0; row < heads * tokens; ++row) {
    for (int64_t i = 0; i < width / 2; ++i) {
      const double a = x[row * width + 2 * i], b = x[row * width + 2 * i + 1],
                   angle = angles[row % tokens * width / 2 + i];
      want[row * width + i] = a * std::cos(angle) - b * std::sin(angle);
      want[row * width + width / 2 + i] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  ASSERT_EQ(RUN_OP(aclnnInterleaveRope, in, cos, sin, out), 0);
  expect_close(out.get_all(), want, kBf16, 2e-2);
  Array narrow(kBf16, {1, 1, 1, 32});
  EXPECT_EQ(REFUSED(aclnnInterleaveRope, narrow, narrow, narrow, narrow), kLimit);
}

TEST_F(Rotary, RotaryLimits) {
  const auto apply = [](int64_t heads, int64_t width, int64_t layout) {
    Array q(kBf16, {1, heads, width}), k(kBf16, {1, 1, width}), cos(kBf16, {1, 1, width}), sin(kBf16, {1, 1, width});
    return REFUSED(aclnnApplyRotaryPosEmb, q, k, cos, sin, layout);
  };
  EXPECT_EQ(apply(75, 128, 4), 0);
  EXPECT_EQ(apply(76, 128, 4), kLimit);  // with the key's 77: more than the unified buffer
  EXPECT_EQ(apply(2, 96, 4), kLimit);
  EXPECT_EQ(apply(2, 64, 2), kLimit);
  EXPECT_EQ(apply(2, 64, 1), kBad);
  Array x(kBf16, {1, 2, 64}), cos(kBf16, {1, 1, 64}), sin(kBf16, {1, 1, 64}), odd(kBf16, {1, 2, 65}),
      two(kBf16, {2, 1, 64});
  EXPECT_EQ(REFUSED(aclnnRotaryPositionEmbedding, x, cos, sin, 2, x), kLimit);
  EXPECT_EQ(REFUSED(aclnnRotaryPositionEmbedding, odd, odd, odd, 0, odd), kLimit);
  EXPECT_EQ(REFUSED(aclnnRotaryPositionEmbedding, x, two, two, 0, x), kLimit);
  Array at(kInt64, {1}), q(kBf16, {1, 96}), table(kBf16, {4, 32}), odd_table(kBf16, {4, 48}), at3(kInt64, {3, 1});
  const Ints sections({16, 24, 24}), wrong({1, 2, 3});
  EXPECT_EQ(REFUSED(aclnnRopeWithSinCosCache, at, q, q, table, nullptr, 96, true, q, q), 0);
  EXPECT_EQ(REFUSED(aclnnRopeWithSinCosCache, at, q, q, table, nullptr, 48, true, q, q), kLimit);
  EXPECT_EQ(REFUSED(aclnnRopeWithSinCosCache, at, q, q, odd_table, nullptr, 96, true, q, q), kLimit);
  EXPECT_EQ(REFUSED(aclnnRopeWithSinCosCache, at3, q, q, table, wrong, 96, true, q, q), kLimit);
  EXPECT_EQ(REFUSED(aclnnRopeWithSinCosCache, at3, q, q, table, sections, 96, true, q, q), kLimit);  // 128 wide, not 32
}

// Sections of pairs take their angles from different rows of positions.
TEST_F(Rotary, SectionsHavePositionsOfTheirOwn) {
  const int64_t tokens = 2, width = 64, rows = 9;
  const auto q = numbers(tokens * width, 1), cache = numbers(rows * width, 2);
  const std::vector<double> positions{1, 2, 3, 4, 5, 8};
  Array at(kInt64, {3, tokens}, positions), query(kFloat, {tokens, width}, q), key(kFloat, {tokens, width}, q);
  Array table(kFloat, {rows, width}, cache), q_out(kFloat, {tokens, width}), k_out(kFloat, {tokens, width});
  const Ints sections({8, 12, 12});
  ASSERT_EQ(RUN_OP(aclnnRopeWithSinCosCache, at, query, key, table, sections, width, true, q_out, k_out), 0)
      << bench().error;
  std::vector<double> want(q.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < 32; ++i) {
      const auto position = static_cast<int64_t>(positions[(i < 8 ? 0 : i < 20 ? 1 : 2) * tokens + t]);
      const double cos = cache[position * width + i], sin = cache[position * width + 32 + i];
      want[t * width + i] = q[t * width + i] * cos - q[t * width + 32 + i] * sin;
      want[t * width + 32 + i] = q[t * width + 32 + i] * cos + q[t * width + i] * sin;
    }
  }
  expect_close(q_out.get_all(), want, kFloat, 1e-5);
  EXPECT_EQ(k_out.get_all(), q_out.get_all());
}

}  // namespace
}  // namespace sim_test
