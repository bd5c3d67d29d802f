// Both 16-bit floats against a reference that works on exact doubles and knows nothing of bit tricks: the neighbours of
// a value are found by decoding every pattern, the nearer one wins, a tie goes to the even pattern.
#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace reprise::half_test {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
};
constexpr Format kHalf{5, 10};
constexpr Format kBf16{8, 7};

// The value of a finite pattern by the definition of the format. The infinity pattern reads as the next power of two.
double decode(Format f, uint32_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const double mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

uint32_t infinity_bits(Format f) { return ((1u << f.exponent_bits) - 1) << f.mantissa_bits; }

// Values of all patterns 0 .. infinity, ascending.
std::vector<double> magnitudes(Format f) {
  std::vector<double> values;
  for (uint32_t b = 0; b <= infinity_bits(f); ++b) values.push_back(decode(f, b));
  return values;
}

uint16_t reference(Format f, const std::vector<double>& table, float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0;
  const double a = std::fabs(static_cast<double>(value));
  if (a >= table.back()) return static_cast<uint16_t>(sign | infinity_bits(f));
  const auto above = static_cast<uint32_t>(std::upper_bound(table.begin(), table.end(), a) - table.begin());
  const uint32_t below = above - 1;
  const double to_below = a - table[below];
  const double to_above = table[above] - a;
  const bool up = to_above < to_below || (to_above == to_below && below % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? above : below));
}

float from_bits(uint32_t u) { return std::bit_cast<float>(u); }

TEST(Half, EveryPatternDecodesExactlyAndRoundTrips) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const auto h = static_cast<uint16_t>(b);
    const float v = half_to_float(h);
    if ((b & 0x7c00u) == 0x7c00u) {
      if ((b & 0x3ffu) == 0) {
        ASSERT_TRUE(std::isinf(v));
        ASSERT_EQ(std::signbit(v), b >> 15 != 0);
        ASSERT_EQ(float_to_half(v), h);
      } else {
        ASSERT_TRUE(std::isnan(v)) << b;
        const uint16_t back = float_to_half(v);
        ASSERT_EQ(back, h | 0x200u);  // a NaN stays one, made quiet, with its sign and payload
      }
      continue;
    }
    ASSERT_EQ(static_cast<double>(v), decode(kHalf, b)) << b;
    ASSERT_EQ(std::signbit(v), b >> 15 != 0) << b;
    ASSERT_EQ(float_to_half(v), h) << b;
  }
}

TEST(Bf16, EveryPatternDecodesExactlyAndRoundTrips) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const auto h = static_cast<uint16_t>(b);
    const float v = bf16_to_float(h);
    if ((b & 0x7f80u) == 0x7f80u) {
      if ((b & 0x7fu) == 0) {
        ASSERT_TRUE(std::isinf(v));
        ASSERT_EQ(float_to_bf16(v), h);
      } else {
        ASSERT_TRUE(std::isnan(v)) << b;
        ASSERT_EQ(float_to_bf16(v), h | 0x40u);
      }
      continue;
    }
    ASSERT_EQ(static_cast<double>(v), decode(kBf16, b)) << b;
    ASSERT_EQ(float_to_bf16(v), h) << b;
  }
}

// Each pattern's value, the midpoint to the next one, and the floats on either side of both.
template <typename Convert>
void check_boundaries(Format f, Convert convert) {
  const auto table = magnitudes(f);
  for (uint32_t b = 0; b + 1 < table.size(); ++b) {
    const auto middle = static_cast<float>((table[b] + table[b + 1]) / 2);  // exact in both formats
    for (const float v : {static_cast<float>(table[b]), middle}) {
      for (const float x : {v, std::nextafterf(v, 0.0f), std::nextafterf(v, INFINITY)}) {
        ASSERT_EQ(convert(x), reference(f, table, x)) << x;
        ASSERT_EQ(convert(-x), reference(f, table, -x)) << -x;
      }
    }
  }
}

TEST(Half, RoundsToNearestEvenAtEveryBoundary) { check_boundaries(kHalf, float_to_half); }
TEST(Bf16, RoundsToNearestEvenAtEveryBoundary) { check_boundaries(kBf16, float_to_bf16); }

TEST(Half, RandomPatternsMatchTheReference) {
  const auto half_table = magnitudes(kHalf);
  const auto bf16_table = magnitudes(kBf16);
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    uint32_t u = random();
    if (i % 2 == 0) u = (u & 0x80ffffffu) | ((100u + random() % 46) << 23 & 0x7f000000u);  // near half's range
    const float v = from_bits(u);
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(half_to_float(float_to_half(v))));
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(v))));
      continue;
    }
    ASSERT_EQ(float_to_half(v), reference(kHalf, half_table, v)) << std::hex << u;
    ASSERT_EQ(float_to_bf16(v), reference(kBf16, bf16_table, v)) << std::hex << u;
  }
}

TEST(Half, Extremes) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);
  EXPECT_EQ(float_to_half(std::nextafterf(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bf16(from_bits(0x7f7f7fff)), 0x7f7f);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(from_bits(0x7f800001)))));  // payload only in the lost bits
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(from_bits(0xff800001)))));
}

}  // namespace
}  // namespace reprise::half_test
