// W8A8 experts on the Ascend backend over the simulator: stacks in FRACTAL_NZ give the bits of stacks of rows, the
// fused gate is no farther from its formula than its parts, and rows take the numbers of their own group.
#include <cmath>
#include <optional>

#include "backends/ascend_entry.h"
#include "base/half.h"
#include "support/setting.h"

namespace reprise::ascend_experts_test {
namespace {

struct Case {
  int64_t s, e, n, k;
  std::vector<int32_t> starts;
};

// Odd sizes, groups without rows, one matrix.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{{1, 1, 16, 32, {0, 1}},
                                     {5, 3, 50, 70, {0, 2, 2, 5}},
                                     {9, 4, 84, 17, {0, 0, 8, 9, 9}},
                                     {6, 3, 64, 48, {0, 2, 2, 6}},
                                     {17, 2, 96, 64, {0, 3, 17}}};
  return all;
}

class AscendExperts : public AscendEntryTest {
 protected:
  static int8_t value(int64_t row, int64_t column) { return static_cast<int8_t>((row * 31 + column * 7) % 251 - 125); }
  static std::vector<int8_t> matrix(int64_t rows, int64_t columns) {
    std::vector<int8_t> out;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) out.push_back(value(r, c));
    return out;
  }
  static std::vector<float> scales(int64_t count, float first, float step) {
    std::vector<float> out(static_cast<size_t>(count));
    for (size_t i = 0; i < out.size(); ++i) out[i] = first + step * static_cast<float>(i % 97);
    return out;
  }
  static bool fills_blocks(const Case& c) { return c.n % 32 == 0 && c.k % 16 == 0; }
  static TensorType stack_type(const Case& c) { return {DType::I8, {Dim(c.e), Dim(c.n), Dim(c.k)}}; }

  std::vector<int8_t> packed(const TensorType& type, int64_t rows_at_once) const {
    const ParamLayout* layout = platform_.kernels->layout(DeviceKind::Ascend, "fractal_nz_stack");
    EXPECT_NE(layout, nullptr);
    const int64_t all = type.shape[0].factor * type.shape[1].factor, k = type.shape[2].factor;
    const std::vector<int8_t> rows = matrix(all, k);
    std::vector<int8_t> out(layout->bytes(type), 0);
    for (int64_t first = 0; first < all; first += rows_at_once)
      layout->pack(type, out.data(), rows.data() + first * k, first, std::min(rows_at_once, all - first));
    return out;
  }

  static std::vector<AscendOperand> dynamic(const Case& c, const std::vector<int8_t>& stack) {
    return {operand({DType::I8, {Dim(c.s), Dim(c.k)}}, matrix(c.s, c.k)),
            operand({DType::F32, {Dim(c.s), Dim(1)}}, scales(c.s, 0.01f, 0.001f)),
            operand({DType::I32, {Dim(c.e + 1)}}, c.starts), operand(stack_type(c), stack),
            operand({DType::F32, {Dim(c.e * c.n)}}, scales(c.e * c.n, 0.0002f, 0.000003f))};
  }
  static std::vector<AscendOperand> fixed(const Case& c, const std::vector<int8_t>& stack) {
    std::vector<int32_t> bias;
    for (int64_t i = 0; i < c.e * c.n; ++i) bias.push_back(static_cast<int32_t>(i * 37 % 4001 - 2000));
    return {operand({DType::I8, {Dim(c.s), Dim(c.k)}}, matrix(c.s, c.k)),
            operand({DType::I32, {Dim(c.e + 1)}}, c.starts), operand(stack_type(c), stack),
            operand({DType::F32, {Dim(c.e * c.n)}}, scales(c.e * c.n, 0.0002f, 0.000003f)),
            operand({DType::I32, {Dim(c.e * c.n)}}, bias)};
  }
  // Of row s and column n, in double precision.
  static double product(const Case& c, int64_t s, int64_t n, bool is_static) {
    int64_t e = 0;
    while (s >= c.starts[static_cast<size_t>(e + 1)]) ++e;
    const int64_t row = e * c.n + n;
    int64_t sum = is_static ? row * 37 % 4001 - 2000 : 0;
    for (int64_t i = 0; i < c.k; ++i) sum += int64_t{value(s, i)} * value(row, i);
    const double of_row = is_static ? 1 : static_cast<double>(0.01f + 0.001f * static_cast<float>(s % 97));
    return static_cast<double>(sum) * static_cast<double>(0.0002f + 0.000003f * static_cast<float>(row % 97)) * of_row;
  }

  Attrs attrs(DType out) const { return {{"out", std::string(dtype_name(out))}}; }
};

TEST_F(AscendExperts, ColumnsOfEveryMatrixGoToTheirBlocks) {
  const TensorType type{DType::I8, {Dim(3), Dim(50), Dim(70)}};
  const std::vector<int8_t> all = packed(type, 150);
  ASSERT_EQ(all.size(), 3u * 2u * 5u * 16u * 32u);  // [3, 50 / 32, 70 / 16, 16, 32]
  for (const int64_t at_once : {1, 7, 33, 64}) EXPECT_EQ(packed(type, at_once), all) << at_once;
  for (int64_t e = 0; e < 3; ++e)
    for (int64_t k = 0; k < 80; ++k)
      for (int64_t n = 0; n < 64; ++n) {
        const auto at = static_cast<size_t>((((e * 2 + n / 32) * 5 + k / 16) * 16 + k % 16) * 32 + n % 32);
        ASSERT_EQ(all[at], n < 50 && k < 70 ? value(e * 50 + n, k) : 0) << e << " " << n << " " << k;
      }
}

TEST_F(AscendExperts, ProductsAreThoseOfRowsAndOfTheFormula) {
  for (const Case& c : cases())
    for (const bool is_static : {false, true})
      for (const DType out : {DType::BF16, DType::F16}) {
        const std::string name = is_static ? "ascend.grouped_linear_w8a8_static" : "ascend.grouped_linear_w8a8_dynamic";
        SCOPED_TRACE(name + fmt::format(" {} to {}", c.s, dtype_name(out)));
        const std::vector<int8_t> plain = matrix(c.e * c.n, c.k), blocks = packed(stack_type(c), c.e * c.n);
        const auto of_rows = run(name, is_static ? fixed(c, plain) : dynamic(c, plain), attrs(out));
        ASSERT_EQ(of_rows.size(), 1u);
        if (fills_blocks(c)) {
          EXPECT_EQ(of_rows, run(name + ".nz", is_static ? fixed(c, blocks) : dynamic(c, blocks), attrs(out)));
        }
        const auto bits = numbers_of<uint16_t>(of_rows[0]);
        for (int64_t s = 0; s < c.s; ++s)
          for (int64_t n = 0; n < c.n; ++n) {
            const double want = product(c, s, n, is_static);
            const uint16_t b = bits[static_cast<size_t>(s * c.n + n)];
            const float got = out == DType::BF16 ? bf16_to_float(b) : half_to_float(b);
            // A product of bf16 takes scales of bf16, so it is rounded twice.
            ASSERT_NEAR(static_cast<double>(got), want, std::fabs(want) * (out == DType::BF16 ? 8e-3 : 5e-4) + 1e-6)
                << s << " " << n;
          }
      }
}

// Every version's own operator for it: CANN 8.1 has the one that takes the blocks as the view.
class GateOfVersions : public AscendExperts, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    version_.emplace("ASCEND_SIM_CANN", GetParam());
    AscendExperts::SetUp();
  }

 private:
  std::optional<testing_support::Setting> version_;
};

TEST_P(GateOfVersions, IsNotFartherFromItsFormulaThanItsParts) {
  const auto gated = chosen("grouped_silu_mul_quant",
                            {{DType::I8, {Dim(4), Dim(32)}},
                             {DType::F32, {Dim(4), Dim(1)}},
                             {DType::I32, {Dim(3)}},
                             {DType::I8, {Dim(2), Dim(64), Dim(32)}},
                             {DType::F32, {Dim(128)}}},
                            attrs(DType::BF16));
  ASSERT_TRUE(gated.is_ok()) << gated.status().message();
  double off[2] = {0, 0};
  for (const Case& c : cases()) {
    if (!fills_blocks(c)) continue;
    const std::vector<int8_t> blocks = packed(stack_type(c), c.e * c.n);
    const auto fused = run("ascend.grouped_silu_mul_quant.nz", dynamic(c, blocks), attrs(DType::BF16));
    const auto product_bits = run("ascend.grouped_linear_w8a8_dynamic.nz", dynamic(c, blocks), attrs(DType::BF16));
    const TensorType between{DType::BF16, {Dim(c.s), Dim(c.n)}};
    const auto parts = run("ascend.silu_mul_quant", {{between, product_bits.at(0)}}, {});
    ASSERT_EQ(fused.size(), 2u);
    for (const bool of_parts : {false, true}) {
      const auto values = numbers_of<int8_t>((of_parts ? parts : fused)[0]);
      const auto steps = numbers_of<float>((of_parts ? parts : fused)[1]);
      for (int64_t s = 0; s < c.s; ++s)
        for (int64_t i = 0; i < c.n / 2; ++i) {
          const double gate = product(c, s, i, false), up = product(c, s, c.n / 2 + i, false);
          const double want = gate / (1 + std::exp(-gate)) * up,
                       step = static_cast<double>(steps[static_cast<size_t>(s)]);
          const double error = std::fabs(values[static_cast<size_t>(s * c.n / 2 + i)] * step - want);
          off[of_parts] += error;
          if (!of_parts) {
            ASSERT_LE(error, step * 0.501 + 1e-6) << s << " " << i;
          }
        }
    }
  }
  EXPECT_LE(off[0], off[1]);
}

INSTANTIATE_TEST_SUITE_P(Cann, GateOfVersions, testing::Values("8.1", "8.5", "9.1"), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST_F(AscendExperts, RowsTakeTheNumbersOfTheirGroup) {
  for (const Case& c : cases()) {
    std::vector<float> x(static_cast<size_t>(c.s * c.k)), by, shift;
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int64_t>(i * 29 % 401) - 200) / 32;
    std::vector<uint16_t> bits;
    for (const float v : x) bits.push_back(float_to_bf16(v));
    for (int64_t e = 0; e < c.e; ++e) {
      by.push_back(3.1f + 1.7f * static_cast<float>(e));
      shift.push_back(static_cast<float>(11 * e - 9));
    }
    const auto got =
        run("ascend.quantize_groups",
            {operand({DType::BF16, {Dim(c.s), Dim(c.k)}}, bits), operand({DType::I32, {Dim(c.e + 1)}}, c.starts),
             operand({DType::F32, {Dim(c.e)}}, by), operand({DType::F32, {Dim(c.e)}}, shift)},
            {});
    ASSERT_EQ(got.size(), 1u);
    const auto values = numbers_of<int8_t>(got[0]);
    for (int64_t s = 0; s < c.s; ++s) {
      size_t e = 0;
      while (s >= c.starts[e + 1]) ++e;
      for (int64_t i = 0; i < c.k; ++i) {
        const auto at = static_cast<size_t>(s * c.k + i);
        const float scaled = x[at] * by[e] + shift[e];
        ASSERT_EQ(values[at], std::fmin(127.0f, std::fmax(-128.0f, std::nearbyint(scaled)))) << s << " " << i;
      }
    }
  }
}

// What the vendor refuses runs on rows, and a gate that its fusion refuses, as parts.
TEST_F(AscendExperts, WhatTheVendorRefusesRunsAsItCan) {
  const auto types = [](int64_t n) {
    return std::vector<TensorType>{{DType::I8, {Dim(4), Dim(32)}},
                                   {DType::F32, {Dim(4), Dim(1)}},
                                   {DType::I32, {Dim(3)}},
                                   {DType::I8, {Dim(2), Dim(n), Dim(32)}},
                                   {DType::F32, {Dim(2 * n)}}};
  };
  auto narrow = chosen("grouped_linear_w8a8_dynamic", types(1), attrs(DType::BF16));
  ASSERT_TRUE(narrow.is_ok()) << narrow.status().message();
  EXPECT_EQ((*narrow)->name, "ascend.grouped_linear_w8a8_dynamic");
  EXPECT_TRUE((*narrow)->param_layouts.empty());
  auto usual = chosen("grouped_linear_w8a8_dynamic", types(64), attrs(DType::BF16));
  ASSERT_TRUE(usual.is_ok()) << usual.status().message();
  EXPECT_EQ((*usual)->name, "ascend.grouped_linear_w8a8_dynamic.nz");
  const auto wide = chosen("grouped_silu_mul_quant", types(10272), attrs(DType::BF16));
  ASSERT_FALSE(wide.is_ok());
  EXPECT_NE(wide.status().message().find("10240"), std::string::npos) << wide.status().message();
  const auto gated = chosen("grouped_silu_mul_quant", types(64), attrs(DType::BF16));
  ASSERT_TRUE(gated.is_ok()) << gated.status().message();
  const auto padded = chosen("grouped_silu_mul_quant", types(42), attrs(DType::BF16));
  ASSERT_FALSE(padded.is_ok());
  EXPECT_NE(padded.status().message().find("do not fill blocks of 32"), std::string::npos);
  const auto floats = chosen("grouped_linear_w8a8_dynamic", types(64), attrs(DType::F32));
  ASSERT_FALSE(floats.is_ok());
  EXPECT_NE(floats.status().message().find("BF16"), std::string::npos) << floats.status().message();
}

}  // namespace
}  // namespace reprise::ascend_experts_test
