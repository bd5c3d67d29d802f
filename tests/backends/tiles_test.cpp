// Products on tile registers: bf16 in the order that sum_order() tells, made again number by number, wherever blocks of
// rows, columns and k end; int8 exact (linear_w8a8_test has the formula). Without AMX the emulation of its five
// instructions runs; the name of each test says which ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/kv_page.h"

#include "backends/cpu/kernels/linear_shape.h"
#include "backends/op_runner.h"
#include "backends/sum_order.h"
#include "base/block_format.h"

namespace reprise::cpu::tiles_test {
namespace {

std::vector<Isa> tile_sets() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::Amx, Isa::AmxEmulated})
    if (parse_isa(isa_name(isa))) out.push_back(isa);
  return out;
}

float at(const TestTensor& t, int64_t i) { return bf16_to_float(t.as<uint16_t>()[i]); }

// "one chain over blocks of 32 K: of a block two chains of 16 multiply-adds, over its even and its odd K".
float by_the_words(const TestTensor& x, int64_t row, const TestTensor& w, int64_t column, int64_t k) {
  float sum = 0;
  for (int64_t block = 0; block < k; block += 32) {
    float even = 0, odd = 0;
    for (int64_t i = block; i < std::min(k, block + 32); ++i) {
      float& chain = i % 2 == 0 ? even : odd;
      chain = std::fma(at(x, row * k + i), at(w, column * k + i), chain);
    }
    sum = sum + (even + odd);
  }
  return sum;
}

class Tiles : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};
};

TEST_P(Tiles, ALinearHasTheOrderThatIsTold) {
  DeviceInfo device;
  device.kind = DeviceKind::Cpu;
  device.isa = std::string(isa_name(GetParam()));
  EXPECT_EQ(sum_order(device, "linear", DType::BF16).substr(0, 30), "one chain over blocks of 32 K,");
  EXPECT_EQ(sum_order(device, "linear", DType::F32).substr(0, 26), "one chain of multiply-adds");
  struct Size {
    int64_t m, k, n;
  };
  // One step of k and a part of one; 16 steps, which are a block, and more; one tile of rows, two, three, many.
  for (const auto& [m, k, n] : {Size{1, 1, 1},
                                {1, 31, 70},
                                {2, 65, 130},
                                {16, 32, 64},
                                {17, 33, 65},
                                {3, 77, 66},
                                {33, 512, 33},
                                {40, 1100, 50},
                                {70, 545, 16}}) {
    const TestTensor x = random_tensor(DType::BF16, {m, k}, 3), w = random_tensor(DType::BF16, {n, k}, 4);
    for (const int threads : {1, 3}) {
      const TestTensor y = runner.run("linear", {x, w}, {{"out", std::string("f32")}}, {.threads = threads})[0];
      for (int64_t t = 0; t < m; ++t)
        for (int64_t c = 0; c < n; ++c)
          ASSERT_EQ(std::bit_cast<uint32_t>(by_the_words(x, t, w, c, k)),
                    std::bit_cast<uint32_t>(y.as<float>()[t * n + c]))
              << m << "x" << k << "x" << n << " at " << t << ", " << c << ", threads " << threads;
    }
  }
}

// More rows than one block has, where a row is long.
TEST_P(Tiles, RowsBeyondABlockHaveTheirOwnBits) {
  constexpr int64_t kRows = 90, kDepth = 20'000, kColumns = 20;
  const TestTensor x = random_tensor(DType::BF16, {kRows, kDepth}, 5),
                   w = random_tensor(DType::BF16, {kColumns, kDepth}, 6);
  const TestTensor y = runner.run("linear", {x, w}, {{"out", std::string("f32")}}, {.threads = 1})[0];
  for (const int64_t t : {0, 31, 32, 33, 63, 64, 89})
    for (int64_t c = 0; c < kColumns; ++c)
      ASSERT_EQ(std::bit_cast<uint32_t>(by_the_words(x, t, w, c, kDepth)),
                std::bit_cast<uint32_t>(y.as<float>()[t * kColumns + c]))
          << t << ", " << c;
}

// Rows are divided among threads where each gets many, and columns among those that share rows: six threads take three
// parts of the rows, and two of the columns. A part has more rows than a group.
TEST_P(Tiles, RowsThatThreadsDivideHaveTheirOwnBits) {
  constexpr int64_t kRows = 400, kDepth = 300, kColumns = 130;
  const TestTensor x = random_tensor(DType::BF16, {kRows, kDepth}, 5),
                   w = random_tensor(DType::BF16, {kColumns, kDepth}, 6);
  for (const int threads : {1, 2, 6}) {
    const TestTensor y = runner.run("linear", {x, w}, {{"out", std::string("f32")}}, {.threads = threads})[0];
    for (int64_t t = 0; t < kRows; ++t)
      for (const int64_t c : {0, 31, 32, 63, 64, 129})
        ASSERT_EQ(std::bit_cast<uint32_t>(by_the_words(x, t, w, c, kDepth)),
                  std::bit_cast<uint32_t>(y.as<float>()[t * kColumns + c]))
            << t << ", " << c << ", threads " << threads;
  }
}

TEST(TileShares, RowsGoFirstWhereThereAreMany) {
  for (const int threads : {1, 2, 3, 6, 8, 20})
    for (const int64_t rows : {1, 100, 256, 400, 2048})
      for (const int64_t columns : {16, 130, 1024}) {
        std::vector<int> seen(static_cast<size_t>(rows * columns), 0);
        for (int t = 0; t < threads; ++t) {
          const LinearShare mine = unit_share(rows, columns, t, threads);
          for (int64_t r = mine.rows.begin; r < mine.rows.end; ++r)
            for (int64_t c = mine.columns.begin; c < mine.columns.end; ++c)
              ++seen[static_cast<size_t>(r * columns + c)];
        }
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), rows * columns)
            << rows << " x " << columns << ", threads " << threads;
      }
  const LinearShare half = unit_share(512, 1024, 1, 2), sixth = unit_share(400, 1024, 5, 6);
  EXPECT_EQ(half.rows.begin, 256);
  EXPECT_EQ(half.columns.end - half.columns.begin, 1024);
  EXPECT_EQ(sixth.rows.begin, 256);
  EXPECT_EQ(sixth.columns.begin, 512);
  EXPECT_EQ(unit_share(200, 1024, 1, 2).rows.begin, 0);
}

TEST_P(Tiles, SubnormalsAreZeros) {
  TestTensor x = random_tensor(DType::BF16, {20, 64}, 7), w = random_tensor(DType::BF16, {18, 64}, 8);
  for (int64_t i = 0; i < 64; ++i) {
    x.set(2 * 64 + i, 1e-39);               // an operand
    x.set(3 * 64 + i, i == 5 ? 1e-30 : 0);  // a product with the column below
    w.set(4 * 64 + i, 1e-9);
  }
  const TestTensor y = runner.run("linear", {x, w}, {{"out", std::string("f32")}})[0];
  for (int64_t c = 0; c < 18; ++c) EXPECT_EQ(std::bit_cast<uint32_t>(y.as<float>()[2 * 18 + c]), 0u) << c;
  EXPECT_EQ(std::bit_cast<uint32_t>(y.as<float>()[3 * 18 + 4]), 0u);
}

// A number of fp32 as three of bf16 that add up to it.
std::array<float, 3> in_three(float x) {
  std::array<float, 3> parts;
  for (float& part : parts) {
    part = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
    x -= part;
  }
  return parts;
}

// One head over a cache of one page with these keys and values: the outputs of the last token, which sees all.
TestTensor attend(const OpRunner& runner, const TestTensor& q, const TestTensor& k, const TestTensor& v) {
  const int64_t keys = k.type.shape[0].factor, size = k.type.shape[2].factor;
  std::vector<double> slots(static_cast<size_t>(keys));
  std::iota(slots.begin(), slots.end(), 0.0);
  TestTensor kv = zero_tensor(DType::BF16, {1, 2, 1, kPageTokens, size});
  std::fill(kv.bytes.begin(), kv.bytes.end(), uint8_t{0xff});
  kv = runner.run("kv_write", {kv, k, v, tensor_of(DType::I32, {keys}, slots)})[0];
  return runner.run("paged_attention",
                    {q, kv, tensor_of(DType::I32, {1, 1}, {0}), tensor_of(DType::I32, {1}, {static_cast<double>(keys)}),
                     tensor_of(DType::I32, {2}, {0, 1})},
                    {{"scale", 1.0}})[0];
}

// Two keys: the second one's score is, exactly, what the words say of the first one's. Both weights are equal then, and
// a difference of one place in scores of this size is not.
TEST_P(Tiles, ScoresHaveTheOrderThatIsTold) {
  constexpr int64_t kSize = 96;
  int told_apart = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    TestTensor q = random_tensor(DType::BF16, {1, 1, kSize}, seed, -3000, 3000);
    TestTensor k = random_tensor(DType::BF16, {2, 1, kSize}, seed + 100, -3000, 3000);
    for (int64_t d = 0; d < kSize; ++d) {
      k.set(kSize + d, 0);
      if (d % 3 == 0) q.set(d, q.get(d) * 0x1p-11);  // of numbers of one size many sums are exact
    }
    for (const int64_t d : {66, 68, 70}) {
      q.set(d, 1);
      k.set(d, 0);
    }
    const float score = by_the_words(q, 0, k, 0, kSize);
    float chain = 0;
    for (int64_t d = 0; d < kSize; ++d) chain = std::fma(at(q, d), at(k, d), chain);
    told_apart += chain != score;
    const auto parts = in_three(score);
    for (int64_t i = 0; i < 3; ++i) k.set(kSize + 66 + 2 * i, parts[static_cast<size_t>(i)]);
    TestTensor v = zero_tensor(DType::BF16, {2, 1, kSize});
    for (int64_t d = 0; d < kSize; ++d) v.set(d, 1);
    const TestTensor o = attend(runner, q, k, v);
    for (int64_t d = 0; d < kSize; ++d) ASSERT_EQ(o.get(d), 0.5) << seed << ", " << d;
  }
  EXPECT_GT(told_apart, 10);
}

// Equal weights: the last three values take away, exactly, what the words say of the sum of those before.
TEST_P(Tiles, OutputsHaveTheOrderThatIsTold) {
  constexpr int64_t kSize = 24, kKeys = 70;
  const TestTensor q = zero_tensor(DType::BF16, {1, 1, kSize}), k = random_tensor(DType::BF16, {kKeys, 1, kSize}, 1);
  TestTensor v = random_tensor(DType::BF16, {kKeys, 1, kSize}, 2, -3000, 3000);
  for (int64_t i = 0; i < v.size(); i += 7) v.set(i, v.get(i) * 0x1p-17);  // as above
  TestTensor ones = zero_tensor(DType::BF16, {1, 64}), columns = zero_tensor(DType::BF16, {kSize, 64});
  for (int64_t i = 0; i < 64; ++i) {
    ones.set(i, 1);
    for (int64_t d = 0; d < kSize; ++d) columns.set(d * 64 + i, v.get(i * kSize + d));
  }
  int told_apart = 0;
  for (int64_t d = 0; d < kSize; ++d) {
    const float sum = by_the_words(ones, 0, columns, d, 64);
    float chain = 0;
    for (int64_t i = 0; i < 64; ++i) chain += at(columns, d * 64 + i);
    told_apart += chain != sum;
    for (int64_t i = 64; i < kKeys; ++i) v.set(i * kSize + d, 0);
    const auto parts = in_three(sum);
    for (int64_t i = 0; i < 3; ++i) v.set((64 + 2 * i) * kSize + d, -parts[static_cast<size_t>(i)]);
  }
  EXPECT_GT(told_apart, 5);
  const TestTensor o = attend(runner, q, k, v);
  for (int64_t d = 0; d < kSize; ++d) EXPECT_EQ(o.get(d), 0) << d;
}

INSTANTIATE_TEST_SUITE_P(Isas, Tiles, testing::ValuesIn(tile_sets()), isa_test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Tiles);

std::vector<Isa> block_sets() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::AmxBlocks, Isa::AmxBlocksEmulated})
    if (parse_isa(isa_name(isa))) out.push_back(isa);
  return out;
}

class TilesOfBlocks : public Tiles {};

TEST_P(TilesOfBlocks, TheirOrderIsTold) {
  DeviceInfo device;
  device.kind = DeviceKind::Cpu;
  for (const char* op : {"linear_blocks", "lm_head_argmax_blocks", "grouped_linear_blocks"}) {
    device.isa = std::string(isa_name(GetParam()));
    EXPECT_NE(sum_order(device, op, DType::BF16).find("weights rounded to bf16"), std::string::npos) << op;
    device.isa = std::string(isa_name(without_block_tiles(GetParam())));
    EXPECT_EQ(sum_order(device, op, DType::BF16).find("weights rounded to bf16"), std::string::npos) << op;
  }
}

// The smallest factor of mxfp4 is subnormal, and its products with numbers from 2 on are not.
TEST_P(TilesOfBlocks, TheSmallestFactorOfABlockCounts) {
  constexpr int64_t kDepth = 64, kColumns = 16;
  TestTensor x = zero_tensor(DType::BF16, {1, kDepth}), blocks = zero_tensor(DType::U8, {kColumns, 2 * 17});
  for (int64_t i = 0; i < kDepth; ++i) x.set(i, i == 0 ? 0x1p100 : 0);
  for (int64_t c = 0; c < kColumns; ++c) {
    blocks.as<uint8_t>()[c * 34] = 0;                                 // 2^-127
    blocks.as<uint8_t>()[c * 34 + 1] = static_cast<uint8_t>(c);       // the first number
    blocks.as<uint8_t>()[c * 34 + 17] = static_cast<uint8_t>(c + 1);  // the second block
  }
  const TestTensor y =
      runner.run("linear_blocks", {x, blocks}, {{"format", std::string("mxfp4")}, {"out", std::string("f32")}})[0];
  const double want[] = {0, 0, 0, 0, 2, 3, 4, 6, 0, 0, 0, 0, -2, -3, -4, -6};
  for (int64_t c = 0; c < kColumns; ++c) EXPECT_EQ(y.get(c), want[c] * 0x1p-27) << c;
}

INSTANTIATE_TEST_SUITE_P(Isas, TilesOfBlocks, testing::ValuesIn(block_sets()), isa_test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TilesOfBlocks);

TEST(TileSets, TheTrialAgrees) {
  if (tile_sets().empty()) GTEST_SKIP() << "no AVX2 here, or not in this build";
#if defined(__x86_64__)
  EXPECT_TRUE(unit_works(Isa::AmxEmulated));
  EXPECT_EQ(parse_isa("amx").is_ok(), tile_sets().front() == Isa::Amx);
#endif
}

TEST(TileSets, AreOfferedWhereTheyWorkAndTheEmulationByItsNameAlone) {
  for (const Isa isa : supported_isas()) EXPECT_FALSE(isa == Isa::AmxEmulated || has_block_tiles(isa));
  const auto amx = parse_isa("amx");
  if (amx.is_ok()) {
    EXPECT_EQ(parse_isa("auto").value(), Isa::AmxBlocks);
    return;
  }
  EXPECT_EQ(parse_isa("auto").value(), supported_isas().back());
  EXPECT_NE(amx.status().message().find("isa \"amx\" is not "), std::string::npos) << amx.status().message();
  EXPECT_NE(amx.status().message().find("; allowed here: auto, baseline"), std::string::npos) << amx.status().message();
}

// Both give the same bits, where both can run.
TEST(TileSets, TheInstructionsAndTheirEmulationAgree) {
  if (const auto amx = parse_isa("amx"); !amx.is_ok()) GTEST_SKIP() << amx.status().message();
  const OpRunner real(Isa::Amx), emulated(Isa::AmxEmulated);
  for (const double scale : {1.0, 1e-19, 3e-38, 1e19})  // products around the subnormals and around overflow too
    for (const int64_t m : {1, 2, 16, 50}) {
      const TestTensor x = random_tensor(DType::BF16, {m, 577}, 1, -scale, scale),
                       w = random_tensor(DType::BF16, {100, 577}, 2, -scale, scale);
      const std::vector<TestTensor> in{x, w};
      for (const char* out : {"f32", "same"})
        expect_same_bits(real.run("linear", in, {{"out", std::string(out)}})[0],
                         emulated.run("linear", in, {{"out", std::string(out)}})[0], fmt::format("{} {}", scale, m));
    }
  // Blocks of 32 cut off by the head's size and by the number of keys.
  for (const auto& [keys, size] : {std::pair<int64_t, int64_t>{1, 2}, {33, 24}, {100, 80}, {128, 128}, {127, 256}})
    for (const double scale : {0.1, 3.0, 1e-19}) {
      const TestTensor q = random_tensor(DType::BF16, {1, 1, size}, 3, -scale, scale),
                       k = random_tensor(DType::BF16, {keys, 1, size}, 4, -scale, scale),
                       v = random_tensor(DType::BF16, {keys, 1, size}, 5, -scale, scale);
      expect_same_bits(attend(real, q, k, v), attend(emulated, q, k, v), fmt::format("{} {}", keys, size));
    }
}

TEST(TileSets, TheInstructionsAndTheirEmulationAgreeOnBlocks) {
  if (const auto amx = parse_isa("amx"); !amx.is_ok()) GTEST_SKIP() << amx.status().message();
  const OpRunner real(Isa::AmxBlocks), emulated(Isa::AmxBlocksEmulated);
  for (const BlockFormatInfo& f : kBlockFormats)
    for (const int64_t m : {1, 40}) {
      const int64_t blocks = f.elements == 32 ? 19 : 3;
      const TestTensor x = random_tensor(DType::BF16, {m, blocks * f.elements}, 1);
      // Any bytes: factors of every size, infinite ones and what is no number. Of that the bits are not told.
      TestTensor w = zero_tensor(DType::U8, {100, blocks * f.bytes});
      std::mt19937 gen(3);
      for (uint8_t& byte : w.bytes) byte = static_cast<uint8_t>(gen());
      Attrs attrs{{"format", std::string(f.name)}, {"out", std::string("f32")}};
      const TestTensor a = real.run("linear_blocks", {x, w}, attrs)[0],
                       b = emulated.run("linear_blocks", {x, w}, attrs)[0];
      int64_t numbers = 0;
      for (int64_t i = 0; i < a.size(); ++i) {
        const float p = a.as<float>()[i], q = b.as<float>()[i];
        ASSERT_EQ(std::isnan(p), std::isnan(q)) << f.name << " " << i;
        if (std::isnan(p)) continue;
        ++numbers;
        ASSERT_EQ(std::bit_cast<uint32_t>(p), std::bit_cast<uint32_t>(q)) << f.name << " " << i;
      }
      EXPECT_GT(numbers, 0) << f.name;
    }
}

}  // namespace
}  // namespace reprise::cpu::tiles_test
