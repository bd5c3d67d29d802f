// Products of weights in GGUF blocks with activations that are rounded to int8: the bits of plain code on every
// instruction set, whatever the rows, threads and groups; and the integers that the gguf package rounds to.
#include "backends/packed_blocks.h"
#include "backends/sum_order.h"
#include "ops/block_activations.h"
#include "support/goldens.h"

#include <map>
#include <optional>

namespace reprise::cpu::packed_test {
namespace {

Attrs int8_attr(BlockFormat f) {
  Attrs attrs = format_attr(f);
  attrs.set("activations", activations_attr(true));
  return attrs;
}

class Int8Blocks : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};

  static float multiply_add(float a, float b, float sum) { return packed_test::multiply_add(GetParam(), a, b, sum); }

  // The place among the 32 numbers from `first` on. The order in which squares are added up is left open here: no test
  // has sums so near the border.
  static std::optional<int64_t> outlier_of(const TestTensor& x, int64_t first) {
    double all = 0, most = 0;
    int64_t place = 0;
    for (int64_t i = 0; i < 32; ++i) {
      const double square = x.get(first + i) * x.get(first + i);
      all += square;
      if (square > most) place = i;
      most = std::max(most, square);
    }
    if (std::fabs(1.6 * most - all) < 1e-5 * all) ADD_FAILURE() << "a test on the border";
    return 1.6 * most > all ? std::optional(place) : std::nullopt;
  }

  // As sum_order() says: the exact sum of a block's integers times the weight's factor, rounded, times the factor of x;
  // then the minimum times the sum of what the block stands for; and behind each 256 k the outliers among them, which
  // are no integers: numbers with more than five eighths of the squares of their 32.
  static TestTensor sums(const TestTensor& x, const Packed& w) {
    const int64_t m = x.type.shape[0].factor, k = x.type.shape[1].factor, n = w.plain.type.shape[0].factor;
    TestTensor out = zero_tensor(DType::F32, {m, n});
    for (int64_t r = 0; r < m; ++r) {
      std::vector<float> integers(static_cast<size_t>(k)), factor(static_cast<size_t>(k / 32));
      std::map<int64_t, float> outliers;
      for (int64_t b = 0; b < k; b += 32) {
        if (const auto at = outlier_of(x, r * k + b)) outliers[b + *at] = static_cast<float>(x.get(r * k + b + *at));
        float top = 0;
        for (int64_t i = b; i < b + 32; ++i)
          if (!outliers.contains(i)) top = std::max(top, std::fabs(static_cast<float>(x.get(r * k + i))));
        factor[static_cast<size_t>(b / 32)] = top / 127.0f;
        const float inverse = top == 0 ? 0 : 127.0f / top;
        for (int64_t i = b; i < b + 32; ++i)
          if (!outliers.contains(i))
            integers[static_cast<size_t>(i)] = std::nearbyint(static_cast<float>(x.get(r * k + i)) * inverse);
      }
      for (int64_t c = 0; c < n; ++c) {
        float sum = 0;
        for (int64_t b = 0; b < k / w.part; ++b) {
          double products = 0, whole = 0;
          for (int64_t i = b * w.part; i < (b + 1) * w.part; ++i) {
            products += static_cast<double>(integers[static_cast<size_t>(i)]) * w.numbers.as<const float>()[c * k + i];
            whole += static_cast<double>(integers[static_cast<size_t>(i)]);
          }
          const float of_x = factor[static_cast<size_t>(b * w.part / 32)];
          const volatile float scaled = static_cast<float>(products) * w.factors.as<const float>()[c * k / w.part + b];
          sum = multiply_add(scaled, of_x, sum);
          const volatile float rounded = of_x * static_cast<float>(whole);
          volatile float least = rounded;
          for (int64_t i = b * w.part; i < (b + 1) * w.part; ++i)
            if (outliers.contains(i)) least = rounded + outliers[i];
          if (const float minimum = w.minima.as<const float>()[c * k / w.part + b]; minimum != 0)
            sum = multiply_add(minimum, least, sum);
          const int64_t end = (b + 1) * w.part;
          if (end % 256 != 0 && end != k) continue;
          for (auto o = outliers.lower_bound((end - 1) / 256 * 256); o != outliers.end() && o->first < end; ++o) {
            const volatile float weight = w.numbers.as<const float>()[c * k + o->first] *
                                          w.factors.as<const float>()[c * k / w.part + o->first / w.part];
            sum = multiply_add(o->second, weight, sum);
          }
        }
        out.as<float>()[r * n + c] = sum;
      }
    }
    return out;
  }
};

// Rows with a block of zeros, and one whose largest number is small; and with outliers, of which some are alone.
TestTensor rows_with_zeros(DType t, int64_t m, int64_t k, uint32_t seed) {
  TestTensor x = random_tensor(t, {m, k}, seed);
  for (int64_t i = 0; i < 32; ++i) x.set((m - 1) * k + i, 0);
  for (int64_t i = 32; i < std::min<int64_t>(k, 64); ++i) x.set((m - 1) * k + i, x.get((m - 1) * k + i) * 1e-4);
  for (int64_t r = 0; r < m; ++r)
    for (int64_t b = 32 * (r % 3); b < k; b += 32 * (1 + r % 4)) {
      const int64_t at = r * k + b, place = (7 * r + b / 32) % 32;
      if (b % 5 == 0)
        for (int64_t i = 0; i < 32; ++i) x.set(at + i, 0);
      x.set(at + place, (r % 2 ? -1 : 1) * (9.0 + static_cast<double>(b)));
    }
  return x;
}

TEST_P(Int8Blocks, LinearHasTheBitsOfPlainCode) {
  for (const BlockFormatInfo& f : kBlockFormats)
    for (int64_t k : depths_of(f))
      for (int64_t n : {1, 17, 63, 65, 191}) {
        if (n > 17 && k != depths_of(f).back()) continue;
        const Packed w = random_blocks(f.format, n, k, 7);
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 11, 13, 19, 101}) {
          if (m > 19 && (n != 65 || kSanitized)) continue;
          const PackedTypes& t = kPackedTypes[(m + n + k / 32) % 5];
          const TestTensor x = rows_with_zeros(t.in, m, k, static_cast<uint32_t>(m));
          const TestTensor bias = random_tensor(t.in, {n}, 8);
          std::vector<TestTensor> in{x, w.blocks};
          TestTensor expected = sums(x, w);
          if (m % 2) {
            in.push_back(bias);
            for (int64_t i = 0; i < expected.size(); ++i)
              expected.as<float>()[i] = expected.as<float>()[i] + static_cast<float>(bias.get(i % n));
          }
          Attrs attrs = int8_attr(f.format);
          attrs.set("out", std::string(t.attr));
          for (int threads : {1, 3})
            expect_same_bits(runner.run("linear_blocks", in, attrs, {.threads = threads})[0], convert(expected, t.out),
                             fmt::format("{} {} m={} n={} k={}", f.name, dtype_name(t.in), m, n, k));
          if (HasFailure()) return;
        }
      }
}

// More than one strip of blocks, whose last one is a part.
TEST_P(Int8Blocks, LongRowsHaveTheSumsOfPlainCode) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    const int64_t k = f.elements == 32 ? 1120 : 1280;
    const Packed w = random_blocks(f.format, 40, k, 31);
    const TestTensor x = rows_with_zeros(DType::BF16, 14, k, 32);
    for (int64_t m : {3, 14})
      for (int threads : {1, 2, 3})
        expect_same_bits(runner.run("linear_blocks", {rows_of(x, 14 - m, m), w.blocks}, int8_attr(f.format),
                                    {.threads = threads})[0],
                         convert(sums(rows_of(x, 14 - m, m), w), DType::BF16), std::string(f.name));
  }
}

TEST_P(Int8Blocks, GroupsHaveTheBitsOfTheirOwnProducts) {
  constexpr int64_t kGroups = 3, kRows = 40;
  for (const BlockFormatInfo& f : kBlockFormats)
    for (DType t : kDTypes) {
      const int64_t k = depth_of(f, 96), n = 83;
      const Packed w = random_blocks(f.format, kGroups * n, k, 21);
      TestTensor stack = w.blocks;
      stack.type.shape = constant_shape({kGroups, n, k / f.elements * f.bytes});
      const TestTensor x = rows_with_zeros(t, kRows, k, 22);
      const std::vector<double> border{2, 3, 3, 31};
      const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
      for (int threads : {1, 2, 3}) {
        const TestTensor out =
            runner.run("grouped_linear_blocks", {x, starts, stack}, int8_attr(f.format), {.threads = threads})[0];
        for (int64_t g = 0; g < kGroups; ++g) {
          const auto first = static_cast<int64_t>(border[static_cast<size_t>(g)]);
          const int64_t count = static_cast<int64_t>(border[static_cast<size_t>(g) + 1]) - first;
          if (count == 0) continue;
          expect_same_bits(runner.run("linear_blocks", {rows_of(x, first, count), rows_of(w.blocks, g * n, n)},
                                      int8_attr(f.format))[0],
                           rows_of(out, first, count), fmt::format("{} {} group {}", f.name, dtype_name(t), g));
        }
        for (int64_t i = 31 * n; i < out.size(); ++i) ASSERT_EQ(out.get(i), 0);
        for (int64_t i = 0; i < 2 * n; ++i) ASSERT_EQ(out.get(i), 0);
      }
    }
}

TEST_P(Int8Blocks, TheHeadFindsTheLargestSum) {
  for (const BlockFormatInfo& f : kBlockFormats)
    for (DType t : kDTypes)
      for (auto [m, n] : {std::pair<int64_t, int64_t>{1, 333}, {3, 65}, {20, 333}}) {
        const int64_t k = depth_of(f, 96);
        const Packed w = random_blocks(f.format, n, k, 13);
        const TestTensor x = random_tensor(t, {m, k}, 14);
        const TestTensor expected = runner.run("argmax", {sums(x, w)})[0];
        for (int threads : {1, 3})
          expect_same_bits(
              runner.run("lm_head_argmax_blocks", {x, w.blocks}, int8_attr(f.format), {.threads = threads})[0],
              expected, fmt::format("{} {} m={} n={}", f.name, dtype_name(t), m, n));
      }
}

TEST_P(Int8Blocks, RowsMayBeSymbolicAndNone) {
  const Packed w = random_blocks(BlockFormat::Q4_K, 70, 256, 3);
  TestTensor x = random_tensor(DType::BF16, {5, 256}, 5);
  const Attrs attrs = int8_attr(BlockFormat::Q4_K);
  const TestTensor want = runner.run("linear_blocks", {x, w.blocks}, attrs)[0];
  x.type.shape[0] = Dim(1, 1);
  RunOptions options{.threads = 2};
  options.live.value[1] = 5;
  expect_same_bits(runner.run("linear_blocks", {x, w.blocks}, attrs, options)[0], want);
  options.live.value[1] = 0;
  EXPECT_EQ(runner.run("linear_blocks", {x, w.blocks}, attrs, options)[0].size(), 0);
}

// What is no number is none in the result, of an infinity as of NaN: neither vanishes.
TEST_P(Int8Blocks, InfinitiesReachTheResult) {
  const Packed w = random_blocks(BlockFormat::Q8_0, 20, 64, 3);
  for (int64_t m : {1, 9}) {
    TestTensor x = random_tensor(DType::F32, {m, 64}, 5);
    x.set((m - 1) * 64 + 40, std::numeric_limits<double>::infinity());
    const TestTensor out = runner.run("linear_blocks", {x, w.blocks}, int8_attr(BlockFormat::Q8_0))[0];
    for (int64_t c = 0; c < 20; ++c) {
      EXPECT_TRUE(std::isnan(out.get((m - 1) * 20 + c))) << c;
      if (m > 1) EXPECT_TRUE(std::isfinite(out.get(c))) << c;
    }
  }
}

// Weights that are 1 at one k each give a row's numbers back, so integer times factor: the integers that the gguf
// package makes of the same row as q8_0.
TEST_P(Int8Blocks, RoundsAsTheGgufPackage) {
  const Json golden = testing_support::golden_json("gguf/int8_rows.json");
  const auto x = golden["x"].get<std::vector<float>>();
  const auto integers = golden["integers"].get<std::vector<int>>();
  const auto k = static_cast<int64_t>(x.size());
  ASSERT_GE(k, 512);
  TestTensor row = zero_tensor(DType::F32, {1, k}), unit = zero_tensor(DType::U8, {k, k / 32 * 34});
  const uint16_t one = float_to_half(1);
  for (int64_t i = 0; i < k; ++i) {
    row.set(i, static_cast<double>(x[static_cast<size_t>(i)]));
    uint8_t* block = unit.as<uint8_t>() + i * (k / 32 * 34) + i / 32 * 34;
    std::memcpy(block, &one, 2);
    block[2 + i % 32] = 1;
  }
  const TestTensor out = runner.run("linear_blocks", {row, unit}, int8_attr(BlockFormat::Q8_0))[0];
  int64_t as_theirs = 0;
  for (int64_t i = 0; i < k; ++i) {
    if (const auto outlier = outlier_of(row, i / 32 * 32)) {
      // The package has none: this number is exact here, and its neighbours are finer.
      if (i % 32 == *outlier) EXPECT_EQ(out.as<float>()[i], x[static_cast<size_t>(i)]) << i;
      continue;
    }
    ++as_theirs;
    float top = 0;
    for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) top = std::max(top, std::fabs(x[static_cast<size_t>(j)]));
    const float factor = top / 127.0f;
    EXPECT_EQ(out.as<float>()[i], static_cast<float>(integers[static_cast<size_t>(i)]) * factor) << i;
  }
  EXPECT_GT(as_theirs, k / 2);
}

TEST_P(Int8Blocks, ReportsTellTheirOrder) {
  DeviceInfo device;
  device.kind = DeviceKind::Cpu;
  device.isa = isa_name(GetParam());
  for (const char* op : {"linear_blocks", "lm_head_argmax_blocks", "grouped_linear_blocks"}) {
    const std::string_view int8 = sum_order(device, op, DType::BF16, int8_attr(BlockFormat::Q8_0));
    EXPECT_NE(int8.find("sum of integer products, exact"), std::string_view::npos) << op;
    EXPECT_NE(int8, sum_order(device, op, DType::BF16, format_attr(BlockFormat::Q8_0))) << op;
  }
}

TEST_P(Int8Blocks, OtherActivationsAreRefused) {
  Attrs attrs = format_attr(BlockFormat::Q8_0);
  attrs.set("activations", std::string("int4"));
  const auto made = runner.choose("linear_blocks", {{DType::F32, {4, 64}}, {DType::U8, {8, 68}}}, attrs);
  EXPECT_NE(made.status().message().find("allowed: same, int8"), std::string::npos) << made.status().message();
}

INSTANTIATE_TEST_SUITE_P(Isas, Int8Blocks, testing::ValuesIn(isas_with_block_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::packed_test
