// int8 weights in FRACTAL_NZ on the Ascend backend over the simulator: packed in pieces, and multiplied to the bits
// that the same weights give as rows.
#include <tuple>

#include "backends/ascend_entry.h"

namespace reprise::ascend_fractal_test {
namespace {

class Fractal : public AscendEntryTest {
 protected:
  void SetUp() override {
    AscendEntryTest::SetUp();
    layout_ = platform_.kernels->layout(DeviceKind::Ascend, "fractal_nz");
    ASSERT_NE(layout_, nullptr);
  }

  static int8_t value(int64_t row, int64_t column) { return static_cast<int8_t>((row * 31 + column * 7) % 251 - 125); }
  static std::vector<int8_t> matrix(int64_t rows, int64_t columns) {
    std::vector<int8_t> out;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) out.push_back(value(r, c));
    return out;
  }

  std::vector<int8_t> packed(const TensorType& type, int64_t rows_at_once) const {
    const int64_t n = type.shape[0].factor, k = type.shape[1].factor;
    const std::vector<int8_t> rows = matrix(n, k);
    std::vector<int8_t> out(layout_->bytes(type), 0);
    for (int64_t first = 0; first < n; first += rows_at_once)
      layout_->pack(type, out.data(), rows.data() + first * k, first, std::min(rows_at_once, n - first));
    return out;
  }

  // linear_w8a8_dynamic by the entry of that name; the bits of bf16 results.
  std::vector<uint16_t> product(const std::string& name, int64_t t, int64_t n, int64_t k,
                                const std::vector<int8_t>& stored) {
    std::vector<float> row_scales(static_cast<size_t>(t)), scales(static_cast<size_t>(n));
    for (size_t i = 0; i < row_scales.size(); ++i) row_scales[i] = 0.01f + 0.001f * static_cast<float>(i);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.02f + 0.0003f * static_cast<float>(i);
    const auto out =
        run(name,
            {operand({DType::I8, {Dim(t), Dim(k)}}, matrix(t, k)), operand({DType::F32, {Dim(t), Dim(1)}}, row_scales),
             operand({DType::I8, {Dim(n), Dim(k)}}, stored), operand({DType::F32, {Dim(n)}}, scales)},
            {{"out", std::string("bf16")}});
    return out.empty() ? std::vector<uint16_t>{} : numbers_of<uint16_t>(out[0]);
  }

  const ParamLayout* layout_ = nullptr;
};

TEST_F(Fractal, RowsGoToTheirBlocks) {
  const TensorType type{DType::I8, {Dim(50), Dim(70)}};
  const std::vector<int8_t> all = packed(type, 50);
  ASSERT_EQ(all.size(), 3u * 4u * 16u * 32u);  // [70 / 32, 50 / 16, 16, 32]
  EXPECT_EQ(packed(type, 7), all);
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t c = 0; c < 96; ++c) {
      const auto at = static_cast<size_t>(((c / 32 * 4 + r / 16) * 16 + r % 16) * 32 + c % 32);
      ASSERT_EQ(all[at], r < 50 && c < 70 ? value(r, c) : 0) << r << " " << c;
    }
}

TEST_F(Fractal, ProductsAreThoseOfRows) {
  for (const auto& [t, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 16, 32}, {5, 50, 70}, {17, 96, 64}}) {
    const TensorType type{DType::I8, {Dim(n), Dim(k)}};
    const auto rows = product("ascend.linear_w8a8_dynamic", t, n, k, matrix(n, k));
    const auto blocks = product("ascend.linear_w8a8_dynamic.nz", t, n, k, packed(type, n));
    EXPECT_EQ(rows, blocks) << t << " " << n << " " << k;
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](uint16_t x) { return x != 0; }));
  }
}

// What the vendor refuses runs on rows.
TEST_F(Fractal, AMatrixOfOneRowIsNotFractal) {
  const std::vector<TensorType> in{{DType::I8, {Dim(4), Dim(32)}},
                                   {DType::F32, {Dim(4), Dim(1)}},
                                   {DType::I8, {Dim(1), Dim(32)}},
                                   {DType::F32, {Dim(1)}}};
  auto chosen = this->chosen("linear_w8a8_dynamic", in, {{"out", std::string("bf16")}});
  ASSERT_TRUE(chosen.is_ok()) << chosen.status().message();
  EXPECT_EQ((*chosen)->name, "ascend.linear_w8a8_dynamic");
  EXPECT_TRUE((*chosen)->param_layouts.empty());
}

// Floating-point weights as columns in blocks give the bits of weights as rows, to bf16, f16 and fp32.
TEST_F(Fractal, FloatingPointProductsAreThoseOfRows) {
  const ParamLayout* columns = platform_.kernels->layout(DeviceKind::Ascend, "fractal_nz_columns");
  ASSERT_NE(columns, nullptr);
  for (const auto& [t, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 16, 32}, {5, 48, 80}, {17, 96, 64}})
    for (const DType dtype : {DType::BF16, DType::F16})
      for (const std::string out : {"same", "f32"}) {
        SCOPED_TRACE(fmt::format("{} {} {} {} to {}", t, n, k, dtype_name(dtype), out));
        std::vector<uint16_t> x, w;
        for (int64_t i = 0; i < t * k; ++i) x.push_back(static_cast<uint16_t>(0x3c00 + i * 37 % 500));
        for (int64_t i = 0; i < n * k; ++i)
          w.push_back(static_cast<uint16_t>((i % 3 ? 0x3800 : 0xb800) + i * 53 % 900));
        const TensorType type{dtype, {Dim(n), Dim(k)}};
        std::vector<uint16_t> blocked(columns->bytes(type) / 2, 0);
        for (int64_t first = 0; first < n; first += 7)
          columns->pack(type, blocked.data(), w.data() + first * k, first, std::min<int64_t>(7, n - first));
        for (int64_t r = 0; r < n; ++r)
          for (int64_t c = 0; c < k; ++c) {
            const auto at = static_cast<size_t>(((r / 16 * (k / 16) + c / 16) * 16 + c % 16) * 16 + r % 16);
            ASSERT_EQ(blocked[at], w[static_cast<size_t>(r * k + c)]) << r << " " << c;
          }
        const AscendOperand rows = operand({dtype, {Dim(t), Dim(k)}}, x);
        const Attrs attrs{{"out", out}};
        const auto plain = run("ascend.linear", {rows, operand(type, w)}, attrs);
        EXPECT_EQ(plain, run("ascend.linear.nz", {rows, operand(type, blocked)}, attrs, "fractal_nz_columns"));
        EXPECT_EQ(plain, run("ascend.linear.nz", {rows, operand(type, w)}, attrs, "row_major"));
        EXPECT_EQ(plain, run("ascend.linear.nz", {rows, operand(type, w)}, attrs)) << "a weight that is computed";
        EXPECT_TRUE(std::any_of(plain.at(0).begin(), plain.at(0).end(), [](uint8_t b) { return b != 0; }));
      }
}

TEST_F(Fractal, FloatingPointWeightsStayRowsWhereTheVendorWantsThem) {
  const auto chosen_for = [&](int64_t n, int64_t k, DType dtype, bool bias) {
    std::vector<TensorType> in{{dtype, {Dim(4), Dim(k)}}, {dtype, {Dim(n), Dim(k)}}};
    if (bias) in.push_back({dtype, {Dim(n)}});
    auto entry = chosen("linear", in, {});
    EXPECT_TRUE(entry.is_ok()) << entry.status().message();
    return entry.is_ok() ? (*entry)->name : std::string();
  };
  EXPECT_EQ(chosen_for(32, 48, DType::BF16, false), "ascend.linear.nz");
  EXPECT_EQ(chosen_for(32, 48, DType::F16, false), "ascend.linear.nz");
  EXPECT_EQ(chosen_for(32, 48, DType::BF16, true), "ascend.linear") << "Addmm adds the bias";
  EXPECT_EQ(chosen_for(33, 48, DType::BF16, false), "ascend.linear");
  EXPECT_EQ(chosen_for(32, 44, DType::BF16, false), "ascend.linear");
}

}  // namespace
}  // namespace reprise::ascend_fractal_test
