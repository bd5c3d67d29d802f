// What encoders, vision towers and models with other norms and activations need on the Ascend backend over the
// simulator: each entry against its formula in double.
#include <cmath>

#include "backends/ascend_entry.h"
#include "backends/reference.h"
#include "base/half.h"

namespace reprise::ascend_encoder_test {
namespace {

using reference::Numbers;

constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};

class AscendEncoder : public AscendEntryTest {
 protected:
  // Numbers between -2 and 2 as the type holds them; `values` gets what it holds.
  static AscendOperand floats(DType t, const Shape& shape, uint32_t salt, Numbers& values) {
    int64_t count = 1;
    for (const Dim& d : shape.dims()) count *= d.factor;
    values.clear();
    AscendOperand out{{t, shape}, std::vector<uint8_t>(static_cast<size_t>(count) * size_of(t))};
    for (int64_t i = 0; i < count; ++i) {
      const auto bits = (static_cast<uint32_t>(i) * 2654435761u + salt * 40503u) >> 16 & 4095;
      put(t, out.bytes, static_cast<size_t>(i), static_cast<float>(bits) / 1024 - 2);
      values.push_back(get(t, out.bytes, static_cast<size_t>(i)));
    }
    return out;
  }

  static void put(DType t, std::vector<uint8_t>& bytes, size_t i, float v) {
    const uint16_t half = t == DType::BF16 ? float_to_bf16(v) : float_to_half(v);
    if (t == DType::F32) std::memcpy(&bytes[i * 4], &v, 4);
    if (t != DType::F32) std::memcpy(&bytes[i * 2], &half, 2);
  }
  static double get(DType t, const std::vector<uint8_t>& bytes, size_t i) {
    float v = 0;
    uint16_t half = 0;
    if (t == DType::F32) std::memcpy(&v, &bytes[i * 4], 4);
    if (t != DType::F32) std::memcpy(&half, &bytes[i * 2], 2);
    if (t == DType::BF16) v = bf16_to_float(half);
    if (t == DType::F16) v = half_to_float(half);
    return v;
  }

  // Each number within a rounding or two of the type, and of what sums of so many of them lose in fp32.
  static void expect_near(DType t, const std::vector<uint8_t>& got, const Numbers& want, double abs = 2e-6) {
    ASSERT_EQ(got.size(), want.size() * size_of(t));
    const double rel = t == DType::F32 ? 4e-6 : t == DType::BF16 ? 0x1p-8 : 0x1p-11;
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(get(t, got, i), want[i], rel * std::fabs(want[i]) * 1.01 + abs) << i << " of " << want.size();
  }

  static AscendOperand ints(const std::vector<int32_t>& values, Shape shape = {}) {
    if (shape.rank() == 0) shape = {Dim(static_cast<int64_t>(values.size()))};
    return operand({DType::I32, shape}, values);
  }
};

TEST_F(AscendEncoder, RowsAttendOverTheirSequence) {
  struct Case {
    int64_t rows, heads, size;
    std::vector<int32_t> borders;
    int64_t kv_heads = 0;  // 0: as many
  };
  // Heads that the vendor's operator takes as they are, and others; empty sequences; rows of no sequence at the end.
  const Case cases[] = {{9, 2, 16, {0, 9}},          {20, 3, 12, {0, 7, 7, 8, 20}}, {33, 2, 20, {0, 32, 33}},
                        {12, 1, 72, {0, 5, 12, 12}}, {6, 2, 128, {0, 6}},           {7, 1, 200, {0, 3, 7}},
                        {8, 2, 32, {0, 2, 5, 5}},    {9, 6, 16, {0, 4, 9}, 2},      {10, 3, 12, {0, 10}, 1}};
  for (const DType t : kTypes)
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{} rows, {} heads of {}, {}", c.rows, c.heads, c.size, dtype_name(t)));
      const int64_t kv_heads = c.kv_heads > 0 ? c.kv_heads : c.heads;
      const Shape shape{Dim(c.rows), Dim(c.heads), Dim(c.size)}, keys_shape{Dim(c.rows), Dim(kv_heads), Dim(c.size)};
      Numbers q, k, v, want(static_cast<size_t>(c.rows * c.heads * c.size));
      const AscendOperand in[] = {floats(t, shape, 1, q), floats(t, keys_shape, 2, k), floats(t, keys_shape, 3, v)};
      std::vector<int32_t> ends = c.borders;
      if (ends.back() < c.rows) ends.push_back(static_cast<int32_t>(c.rows));
      for (size_t r = 0; r + 1 < ends.size(); ++r)
        for (int64_t h = 0; h < c.heads; ++h) {
          Numbers keys, values;
          const auto at = [&](int64_t row) { return static_cast<size_t>((row * c.heads + h) * c.size); };
          const int64_t group = h / (c.heads / kv_heads);
          for (int64_t row = ends[r]; row < ends[r + 1]; ++row)
            for (size_t d = 0; d < static_cast<size_t>(c.size); ++d) {
              const size_t of_key = static_cast<size_t>((row * kv_heads + group) * c.size) + d;
              keys.push_back(k[of_key]);
              values.push_back(v[of_key]);
            }
          for (int64_t row = ends[r]; row < ends[r + 1]; ++row) {
            const Numbers one(q.begin() + static_cast<ptrdiff_t>(at(row)),
                              q.begin() + static_cast<ptrdiff_t>(at(row) + static_cast<size_t>(c.size)));
            const Numbers seen =
                reference::attend(one, keys, values, 0, static_cast<size_t>(ends[r + 1] - ends[r]), 0.3);
            std::copy(seen.begin(), seen.end(), want.begin() + static_cast<ptrdiff_t>(at(row)));
          }
        }
      const auto got = run("ascend.segment_attention", {in[0], in[1], in[2], ints(c.borders)}, {{"scale", 0.3}});
      ASSERT_EQ(got.size(), 1u);
      expect_near(t, got[0], want, 2e-5);
    }
}

TEST_F(AscendEncoder, WindowsOnBothSidesAreRefused) {
  const TensorType rows{DType::BF16, {Dim(3), Dim(1), Dim(16)}};
  const auto entry =
      chosen("segment_attention", {rows, rows, rows, {DType::I32, {Dim(2)}}}, {{"scale", 1.0}, {"window", int64_t{2}}});
  ASSERT_FALSE(entry.is_ok());
  EXPECT_NE(entry.status().message().find("not within a window of 2"), std::string::npos) << entry.status().message();
}

TEST_F(AscendEncoder, HeadsOfMoreNumbersThanTheOperatorTakesAreRefused) {
  const TensorType rows{DType::BF16, {Dim(3), Dim(1), Dim(784)}};
  const auto entry = chosen("segment_attention", {rows, rows, rows, {DType::I32, {Dim(2)}}}, {{"scale", 1.0}});
  ASSERT_FALSE(entry.is_ok());
  EXPECT_NE(entry.status().message().find("heads of"), std::string::npos) << entry.status().message();
}

TEST_F(AscendEncoder, NormsWithAMeanAndWeightsAroundZero) {
  constexpr double kEps = 1e-5;
  for (const DType t : kTypes) {
    SCOPED_TRACE(dtype_name(t));
    Numbers x, w, b;
    const AscendOperand rows = floats(t, {Dim(5), Dim(60)}, 1, x), weight = floats(t, {Dim(60)}, 2, w),
                        bias = floats(t, {Dim(60)}, 3, b);
    expect_near(t, run("ascend.layer_norm", {rows, weight, bias}, {{"eps", kEps}})[0],
                reference::layer_norm(x, w, 60, kEps, b), 2e-5);
    expect_near(t, run("ascend.layer_norm", {rows, weight}, {{"eps", kEps}})[0], reference::layer_norm(x, w, 60, kEps),
                2e-5);
    Numbers one_more = w;
    for (double& value : one_more) value += 1;
    expect_near(t, run("ascend.unit_rms_norm", {rows}, {{"eps", kEps}})[0],
                reference::rms_norm(x, Numbers(60, 1.0), kEps), 2e-5);
    expect_near(t, run("ascend.rms_norm_centred", {rows, weight}, {{"eps", kEps}})[0],
                reference::rms_norm(x, one_more, kEps), 2e-5);
    Numbers heads, per_head;
    const AscendOperand of_heads = floats(t, {Dim(4), Dim(3), Dim(20)}, 4, heads),
                        weights = floats(t, {Dim(3), Dim(20)}, 5, per_head);
    const auto entry = chosen("layer_norm", {of_heads.type, weights.type}, {{"eps", kEps}});
    ASSERT_TRUE(entry.is_ok()) << entry.status().message();
    EXPECT_EQ((*entry)->name, "ascend.layer_norm.heads");
    expect_near(t, run("ascend.layer_norm.heads", {of_heads, weights}, {{"eps", kEps}})[0],
                reference::layer_norm(heads, per_head, 20, kEps), 2e-5);
  }
}

TEST_F(AscendEncoder, FunctionsOfSingleNumbers) {
  for (const DType t : kTypes) {
    SCOPED_TRACE(dtype_name(t));
    Numbers x;
    const AscendOperand rows = floats(t, {Dim(3), Dim(50)}, 1, x);
    const auto each = [&](double (*f)(double)) {
      Numbers out = x;
      for (double& value : out) value = f(value);
      return out;
    };
    expect_near(t, run("ascend.gelu", {rows}, {})[0], each(reference::gelu));
    expect_near(t, run("ascend.gelu_tanh", {rows}, {})[0], each(reference::gelu_tanh));
    expect_near(t, run("ascend.scale", {rows}, {{"by", -0.7}})[0], each([](double v) { return v * -0.7f; }));
    expect_near(t, run("ascend.softcap", {rows}, {{"cap", 1.5}})[0],
                each([](double v) { return 1.5 * std::tanh(v / 1.5); }));
    expect_near(DType::F32, run("ascend.widen", {rows}, {})[0], x);
  }
}

TEST_F(AscendEncoder, TablesOfSeveralPositionsAToken) {
  const std::vector<double> frequencies{1, 0.5, 0.25, 0.125, 0.01}, axes{0, 2, 1, 2, 0};
  const std::vector<int32_t> positions{0, 0, 0, 3, 7, 11, 40, 2, 900};
  Numbers want(3 * 10);
  for (size_t t = 0; t < 3; ++t)
    for (size_t i = 0; i < 5; ++i) {
      const double angle =
          static_cast<float>(positions[t * 3 + static_cast<size_t>(axes[i])]) * static_cast<float>(frequencies[i]);
      want[t * 10 + i] = 1.25 * std::cos(angle);
      want[t * 10 + 5 + i] = 1.25 * std::sin(angle);
    }
  expect_near(DType::F32,
              run("ascend.rope_table_axes", {ints(positions, {Dim(3), Dim(3)})},
                  {{"inv_freq", frequencies}, {"axes", axes}, {"scale", 1.25}})[0],
              want);
}

TEST_F(AscendEncoder, PooledRows) {
  const std::vector<int32_t> borders{0, 4, 4, 5, 20}, rows{3, 4, 19, 9, 0};
  const int32_t first[] = {0, 4, 5, 5, 0};
  for (const DType t : kTypes)
    for (const std::string kind : {"last", "mean", "first"}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, dtype_name(t)));
      Numbers x, want;
      const AscendOperand in = floats(t, {Dim(20), Dim(27)}, 1, x);
      for (size_t l = 0; l < rows.size(); ++l)
        for (size_t i = 0; i < 27; ++i) {
          double sum = 0;
          for (int32_t r = first[l]; r <= rows[l]; ++r) sum += x[static_cast<size_t>(r) * 27 + i];
          const int32_t row = kind == "last" ? rows[l] : first[l];
          want.push_back(kind == "mean" ? sum / (rows[l] - first[l] + 1) : x[static_cast<size_t>(row) * 27 + i]);
        }
      const std::string name = kind == "last" ? "ascend.pool_rows" : "ascend.pool_rows.each";
      const auto entry = chosen("pool_rows", {in.type, ints(borders).type, ints(rows).type}, {{"kind", kind}});
      ASSERT_TRUE(entry.is_ok()) << entry.status().message();
      EXPECT_EQ((*entry)->name, name);
      expect_near(DType::F32, run(name, {in, ints(borders), ints(rows)}, {{"kind", kind}})[0], want);
    }
}

TEST_F(AscendEncoder, VectorsOfLengthOne) {
  Numbers x;
  AscendOperand rows = floats(DType::F32, {Dim(4), Dim(37)}, 1, x);
  for (size_t i = 37; i < 74; ++i) put(DType::F32, rows.bytes, i, 0), x[i] = 0;
  for (size_t i = 74; i < 111; ++i) put(DType::F32, rows.bytes, i, static_cast<float>(x[i] *= 1e-3));
  Numbers want = x;
  for (size_t r = 0; r < 4; ++r) {
    double sum = 0;
    for (size_t i = 0; i < 37; ++i) sum += x[r * 37 + i] * x[r * 37 + i];
    for (size_t i = 0; i < 37; ++i) want[r * 37 + i] /= std::max(std::sqrt(sum), 1e-12);
  }
  expect_near(DType::F32, run("ascend.l2_normalize", {rows}, {})[0], want);
}

}  // namespace
}  // namespace reprise::ascend_encoder_test
