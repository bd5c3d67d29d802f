// A sum, its norm and the norm's int8 form with a given scale on the Ascend backend over the simulator: both ways to
// the vendor's operator against the formula, and what it refuses.
#include <cmath>

#include "backends/ascend_entry.h"
#include "base/half.h"

namespace reprise::ascend_quant_norm_test {
namespace {

constexpr double kEps = 1e-5;

struct Case {
  int64_t rows, width;
  bool per_column;
};
const Case kCases[] = {{1, 16, false}, {3, 48, true}, {7, 256, false}};

class AscendQuantNorm : public AscendEntryTest {
 protected:
  static uint16_t bits(DType t, float v) { return t == DType::BF16 ? float_to_bf16(v) : float_to_half(v); }
  static double kept(DType t, double v) {
    const uint16_t b = bits(t, static_cast<float>(v));
    return static_cast<double>(t == DType::BF16 ? bf16_to_float(b) : half_to_float(b));
  }
  static double number(int64_t i, uint32_t salt) {
    return static_cast<double>((static_cast<uint32_t>(i) * 2654435761u + salt * 40503u) >> 16 & 4095) / 1024 - 2;
  }
  static AscendOperand floats(DType t, const Shape& shape, int64_t count, uint32_t salt, double shift = 0) {
    std::vector<uint16_t> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(bits(t, static_cast<float>(number(i, salt) + shift)));
    return operand({t, shape}, out);
  }
  static double scale(int64_t column, const Case& c) {
    return 0.021 + (c.per_column ? 0.0003 * static_cast<double>(column) : 0);
  }
  static double offset(int64_t column, const Case& c) {
    return c.per_column ? static_cast<double>(column % 13 - 6) : 5;
  }

  // The norm over its scale, plus the offset; and the sum.
  static void formula(const Case& c, DType t, std::vector<double>& quotients, std::vector<double>& sums) {
    for (int64_t r = 0; r < c.rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < c.width; ++i) {
        const int64_t at = r * c.width + i;
        sums.push_back(kept(t, kept(t, number(at, 1)) + kept(t, number(at, 2))));
        squares += sums.back() * sums.back();
      }
      for (int64_t i = 0; i < c.width; ++i)
        quotients.push_back(sums[static_cast<size_t>(r * c.width + i)] /
                                std::sqrt(squares / static_cast<double>(c.width) + kEps) * kept(t, number(i, 3) + 3) /
                                scale(i, c) +
                            offset(i, c));
    }
  }

  static std::vector<AscendOperand> inputs(const Case& c, DType t) {
    const Shape rows{Dim(c.rows), Dim(c.width)};
    return {floats(t, rows, c.rows * c.width, 1), floats(t, rows, c.rows * c.width, 2),
            floats(t, {Dim(c.width)}, c.width, 3, 3)};
  }
};

// Scales of bf16 are off by one part in 512 at most, and so is what they divide; the sum has the bits of any other sum.
TEST_F(AscendQuantNorm, BothWaysAreTheFormulas) {
  for (const Case& c : kCases)
    for (const DType t : {DType::BF16, DType::F16}) {
      SCOPED_TRACE(fmt::format("{} x {} {}", c.rows, c.width, dtype_name(t)));
      std::vector<double> quotients, sums;
      formula(c, t, quotients, sums);
      const int64_t given = c.per_column ? c.width : 1;
      std::vector<float> reciprocals, offsets;
      for (int64_t i = 0; i < given; ++i) {
        reciprocals.push_back(static_cast<float>(1 / scale(i, c)));
        offsets.push_back(static_cast<float>(offset(i, c)));
      }
      auto by_reciprocals = inputs(c, t), by_divisors = by_reciprocals;
      by_reciprocals.push_back(operand({DType::F32, {Dim(given)}}, reciprocals));
      by_reciprocals.push_back(operand({DType::F32, {Dim(given)}}, offsets));
      std::vector<uint16_t> narrow, narrow_zeros;
      std::vector<float> wide;
      std::vector<int32_t> whole;
      for (int64_t i = 0; i < c.width; ++i) {
        wide.push_back(static_cast<float>(scale(i, c)));
        narrow.push_back(float_to_bf16(wide.back()));
        whole.push_back(static_cast<int32_t>(offset(i, c)));
        narrow_zeros.push_back(float_to_bf16(static_cast<float>(offset(i, c))));
      }
      const Shape vector{Dim(c.width)};
      if (t == DType::BF16) {
        by_divisors.push_back(operand({DType::BF16, vector}, narrow));
        by_divisors.push_back(operand({DType::BF16, vector}, narrow_zeros));
      } else {
        by_divisors.push_back(operand({DType::F32, vector}, wide));
        by_divisors.push_back(operand({DType::I32, vector}, whole));
      }
      const auto first = run("ascend.add_rms_norm_quant_static", by_reciprocals, {{"eps", kEps}}),
                 second = run("ascend.add_rms_norm_quant_divided", by_divisors, {{"eps", kEps}});
      for (const auto* got : {&first, &second}) {
        ASSERT_EQ(got->size(), 2u);
        const auto values = numbers_of<int8_t>((*got)[0]);
        const auto sum_bits = numbers_of<uint16_t>((*got)[1]);
        for (size_t i = 0; i < values.size(); ++i) {
          const double want = std::fmin(127, std::fmax(-128, quotients[i]));
          ASSERT_NEAR(values[i], want, 0.501 + (t == DType::BF16 ? std::fabs(quotients[i]) / 400 : 1e-3)) << i;
          ASSERT_EQ(sum_bits[i], bits(t, static_cast<float>(sums[i]))) << i;
        }
      }
    }
}

TEST_F(AscendQuantNorm, WhatTheVendorRefusesIsRefusedWithTheReason) {
  const auto types = [](int64_t width, bool bias) {
    const TensorType rows{DType::BF16, {Dim(4), Dim(width)}}, number{DType::F32, {Dim(1)}};
    std::vector<TensorType> in{rows, rows, {DType::BF16, {Dim(width)}}, number, number};
    if (bias) in.push_back({DType::BF16, {Dim(width)}});
    return in;
  };
  EXPECT_TRUE(chosen("add_rms_norm_quant_static", types(48, false), {{"eps", kEps}}).is_ok());
  const auto odd = chosen("add_rms_norm_quant_static", types(44, false), {{"eps", kEps}});
  ASSERT_FALSE(odd.is_ok());
  EXPECT_NE(odd.status().message().find("multiples of 16"), std::string::npos) << odd.status().message();
  const auto biased = chosen("add_rms_norm_quant_static", types(48, true), {{"eps", kEps}});
  ASSERT_FALSE(biased.is_ok());
  EXPECT_NE(biased.status().message().find("no bias"), std::string::npos) << biased.status().message();
}

}  // namespace
}  // namespace reprise::ascend_quant_norm_test
