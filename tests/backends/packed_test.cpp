// linear_blocks, embedding_blocks and lm_head_argmax_blocks against the same weights unpacked, on every instruction
// set: of fp32 and f16 every bit must agree with the plain fp32 kernels, of bf16 with sums by blocks made here in plain
// code; on tile registers with the product of the weights rounded to bf16.
#include "backends/packed_blocks.h"

namespace reprise::cpu::packed_test {
namespace {

class PackedOps : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};

  static float multiply_add(float a, float b, float sum) { return packed_test::multiply_add(GetParam(), a, b, sum); }

  // bf16: the numbers of a factor in one chain over pairs (k, k + 4) of each eight k, the second first; then times the
  // factor; then its minimum times the sum of their x: sixteen partial sums and a tree. Subnormals are zeros, of which
  // only the smallest factor is one here.
  static TestTensor sums_by_blocks(const TestTensor& x, const Packed& w) {
    const int64_t m = x.type.shape[0].factor, k = x.type.shape[1].factor, n = w.plain.type.shape[0].factor;
    TestTensor wide = convert(x, DType::F32), out = zero_tensor(DType::F32, {m, n});
    for (int64_t r = 0; r < m; ++r) {
      const float* row = wide.as<float>() + r * k;
      std::vector<float> sums;
      for (int64_t b = 0; b < k; b += w.part) {
        float part[16];
        for (int64_t i = 0; i < 16; ++i) part[i] = w.part == 32 ? row[b + i] + row[b + 16 + i] : row[b + i];
        for (int64_t half = 8; half > 0; half /= 2)
          for (int64_t i = 0; i < half; ++i) part[i] = part[i] + part[i + half];
        sums.push_back(part[0]);
      }
      for (int64_t c = 0; c < n; ++c) {
        float sum = 0;
        for (int64_t b = 0; b < k / w.part; ++b) {
          const float* xb = row + b * w.part;
          const float* q = w.numbers.as<const float>() + c * k + b * w.part;
          float block = 0;
          for (int64_t i = 0; i < w.part; i += 8)
            for (int64_t j = i; j < i + 4; ++j)
              block = multiply_add(xb[j], q[j], multiply_add(xb[j + 4], q[j + 4], block));
          const float d = w.factors.as<const float>()[c * k / w.part + b];
          sum = multiply_add(std::fabs(d) < std::numeric_limits<float>::min() ? 0.0f : d, block, sum);
          if (const float least = w.minima.as<const float>()[c * k / w.part + b]; least != 0)
            sum = multiply_add(least, sums[static_cast<size_t>(b)], sum);
        }
        out.as<float>()[r * n + c] = sum;
      }
    }
    return out;
  }

  TestTensor sums(const TestTensor& x, const Packed& w) const {
    if (x.type.dtype == DType::BF16 && has_block_tiles(GetParam()))
      return runner.run("linear", {x, convert(w.plain, DType::BF16)}, {{"out", std::string("f32")}})[0];
    if (x.type.dtype == DType::BF16) return sums_by_blocks(x, w);
    return runner.run("linear", {convert(x, DType::F32), w.plain})[0];
  }

  // Of all dtypes the sums are fp32: the bias is added to them, and the whole rounded once.
  static TestTensor finish(TestTensor sums, const TestTensor* bias, DType out) {
    const int64_t n = sums.type.shape[1].factor;
    if (bias)
      for (int64_t i = 0; i < sums.size(); ++i)
        sums.as<float>()[i] = sums.as<float>()[i] + static_cast<float>(bias->get(i % n));
    return convert(sums, out);
  }
};

TEST_P(PackedOps, LinearHasTheBitsOfTheUnpackedProduct) {
  for (const BlockFormatInfo& f : kBlockFormats)
    for (int64_t k : depths_of(f))
      for (int64_t n : {1, 15, 17, 63, 64, 65, 191}) {
        // How columns and rows are shared out does not depend on the format.
        const bool few = f.format > BlockFormat::Mxfp4;
        if ((few || kSanitized) && n % 16 != 1 && n != 191) continue;
        const Packed w = random_blocks(f.format, n, k, 7);
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 19, 33, 97})
          for (const PackedTypes& t : kPackedTypes) {
            if (few && m > 19) continue;
            if (kSanitized && m != 1 && m != 4 && m != 9 && m != 13) continue;
            if (t.in != DType::F32 && (m + n) % 3 != 0) continue;
            if (t.in == DType::BF16 && (m > 33 || k * n > 17'000)) continue;  // every tile is there before
            const TestTensor x = random_tensor(t.in, {m, k}, static_cast<uint32_t>(m));
            const TestTensor bias = random_tensor(t.in, {n}, 8);
            const TestTensor* b = (m + n) % 2 ? &bias : nullptr;
            std::vector<TestTensor> in{x, w.blocks};
            if (b) in.push_back(*b);
            Attrs attrs = format_attr(f.format);
            attrs.set("out", std::string(t.attr));
            const TestTensor expected = finish(sums(x, w), b, t.out);
            for (int threads : kSanitized ? std::vector{3} : std::vector{1, 3}) {
              // Both ways, whatever the registration prefers.
              for (int64_t direct : {0, 99}) {
                expect_same_bits(
                    runner.run("linear_blocks", in, attrs,
                               {.threads = threads, .adjust = [&](LaunchArgs& a) { a.way = direct; }})[0],
                    expected, fmt::format("{} {} m={} n={} k={} direct={}", f.name, dtype_name(t.in), m, n, k, direct));
              }
              if (HasFailure()) return;
            }
          }
      }
}

// Several blocks of rows, strips and depths of a strip, the last of each a part. Two threads share the rows, three the
// columns.
TEST_P(PackedOps, ManyRowsOfBf16HaveTheSumsOfTheSet) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    // Of tile registers more than the depth of a strip, too.
    const int64_t k = has_block_tiles(GetParam()) ? (f.elements == 32 ? 1120 : 1280) : f.elements == 32 ? 320 : 512;
    const Packed w = random_blocks(f.format, 40, k, 31);
    const TestTensor x = random_tensor(DType::BF16, {101, k}, 32);
    const TestTensor expected = finish(sums(x, w), nullptr, DType::BF16);
    for (int threads : {1, 2, 3})
      for (int64_t way : {0, 1})
        expect_same_bits(runner.run("linear_blocks", {x, w.blocks}, format_attr(f.format),
                                    {.threads = threads, .adjust = [&](LaunchArgs& a) { a.way = way; }})[0],
                         expected, fmt::format("{} way={}", f.name, way));
  }
}

// Every number of rows has the bits of its rows alone, and results are one rounding of fp32.
TEST_P(PackedOps, RowsOfBf16DoNotDependOnTheirNumber) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    const int64_t k = depth_of(f, 608), n = 83;
    const Packed w = random_blocks(f.format, n, k, 41);
    const TestTensor x = random_tensor(DType::BF16, {70, k}, 42);
    const TestTensor all = runner.run("linear_blocks", {x, w.blocks}, format_attr(f.format))[0];
    for (int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65})
      for (int threads : {1, 3}) {
        const TestTensor some = runner.run("linear_blocks", {rows_of(x, 70 - rows, rows), w.blocks},
                                           format_attr(f.format), {.threads = threads})[0];
        expect_same_bits(some, rows_of(all, 70 - rows, rows), fmt::format("{} {} rows", f.name, rows));
      }
  }
}

TEST_P(PackedOps, GroupsHaveTheBitsOfTheirOwnProducts) {
  constexpr int64_t kGroups = 4, kRows = 120;
  for (const BlockFormatInfo& f : kBlockFormats)
    for (auto [n, depth] : {std::pair<int64_t, int64_t>{17, 32}, {64, 96}, {131, 576}})
      for (DType t : kDTypes) {
        const int64_t k = depth_of(f, depth);
        if (f.format > BlockFormat::Mxfp4 && (n == 64 || (kSanitized && n != 17))) continue;
        const Packed w = random_blocks(f.format, kGroups * n, k, 21);
        TestTensor stack = w.blocks;
        stack.type.shape = constant_shape({kGroups, n, k / f.elements * f.bytes});
        const TestTensor x = random_tensor(t, {kRows, k}, 22);
        for (const std::vector<double>& border :
             {std::vector<double>{0, 1, 1, 3, 110}, {0, 0, 0, 0, 120}, {4, 9, 16, 20, 21}}) {
          const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, border);
          const TestTensor out = runner.run("grouped_linear_blocks", {x, starts, stack}, format_attr(f.format))[0];
          for (int64_t g = 0; g < kGroups; ++g) {
            const auto first = static_cast<int64_t>(border[static_cast<size_t>(g)]);
            const int64_t count = static_cast<int64_t>(border[static_cast<size_t>(g) + 1]) - first;
            if (count == 0) continue;
            expect_same_bits(runner.run("linear_blocks", {rows_of(x, first, count), rows_of(w.blocks, g * n, n)},
                                        format_attr(f.format))[0],
                             rows_of(out, first, count),
                             fmt::format("{} {} n={} k={} group {}", f.name, dtype_name(t), n, k, g));
          }
          for (int64_t i = static_cast<int64_t>(border.back()) * n; i < out.size(); ++i) ASSERT_EQ(out.get(i), 0);
          for (int64_t i = 0; i < static_cast<int64_t>(border[0]) * n; ++i) ASSERT_EQ(out.get(i), 0);
          for (int threads : {2, 3})
            expect_same_bits(out, runner.run("grouped_linear_blocks", {x, starts, stack}, format_attr(f.format),
                                             {.threads = threads})[0]);
          if (HasFailure()) return;
        }
      }
}

TEST_P(PackedOps, RowsMayBeSymbolicAndNone) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    const int64_t k = depth_of(f, 64);
    const Packed w = random_blocks(f.format, 70, k, 3);
    TestTensor x = random_tensor(DType::BF16, {5, k}, 5);
    const TestTensor want = runner.run("linear_blocks", {x, w.blocks}, format_attr(f.format))[0];
    x.type.shape[0] = Dim(1, 1);
    RunOptions options{.threads = 2};
    options.live.value[1] = 5;
    expect_same_bits(runner.run("linear_blocks", {x, w.blocks}, format_attr(f.format), options)[0], want);
    options.live.value[1] = 0;
    EXPECT_EQ(runner.run("linear_blocks", {x, w.blocks}, format_attr(f.format), options)[0].size(), 0);
  }
}

TEST_P(PackedOps, EmbeddingIsTheRowRounded) {
  for (const BlockFormatInfo& f : kBlockFormats)
    for (int64_t k : depths_of(f)) {
      const Packed table = random_blocks(f.format, 131, k, 9);
      const TestTensor ids = tensor_of(DType::I32, {6}, {0, 130, 64, 131, -1, 77});
      for (DType out : {DType::F32, DType::BF16, DType::F16}) {
        Attrs attrs = format_attr(f.format);
        attrs.set("width", k);
        attrs.set("out", std::string(dtype_name(out)));
        const TestTensor want = convert(runner.run("embedding", {table.plain, ids})[0], out);
        for (int threads : {1, 2, 3})
          expect_same_bits(runner.run("embedding_blocks", {table.blocks, ids}, attrs, {.threads = threads})[0], want,
                           fmt::format("{} {} k={}", f.name, dtype_name(out), k));
      }
    }
}

TEST_P(PackedOps, TheHeadFindsTheSameToken) {
  for (const BlockFormatInfo& f : kBlockFormats)
    for (DType t : {DType::F32, DType::BF16, DType::F16})
      for (int64_t n : {1, 65, 333})
        for (int64_t m : {1, 3, 20}) {
          const int64_t k = depth_of(f, 96);
          const Packed w = random_blocks(f.format, n, k, 13);
          const TestTensor x = random_tensor(t, {m, k}, 14);
          const TestTensor expected = runner.run("argmax", {sums(x, w)})[0];
          for (int threads : {1, 2, 3})
            expect_same_bits(
                runner.run("lm_head_argmax_blocks", {x, w.blocks}, format_attr(f.format), {.threads = threads})[0],
                expected, fmt::format("{} {} m={} n={}", f.name, dtype_name(t), m, n));
        }
}

TEST_P(PackedOps, RowBlocksPackAsTheWhole) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    const int64_t blocks = 3;
    const Packed w = random_blocks(f.format, 150, blocks * f.elements, 17);
    const ParamLayout& layout = *runner.kernels().layout(DeviceKind::Cpu, packed_layout(f.format));
    const Bytes whole = runner.pack(w.blocks, layout.name);
    // A factor and a minimum of 6 bits take a byte each.
    const bool sixteen =
        f.format == BlockFormat::Q3_K || f.format == BlockFormat::Q4_K || f.format == BlockFormat::Q5_K;
    const int64_t more = sixteen ? 4 : f.format == BlockFormat::IQ4_XS ? 2 : 0;
    EXPECT_EQ(whole.size(), static_cast<size_t>(192 * blocks * (f.bytes + more)));
    Bytes pieces(whole.size(), 0);
    const int64_t row = blocks * f.bytes;
    for (auto [first, count] : {std::pair<int64_t, int64_t>{100, 50}, {0, 1}, {1, 62}, {63, 37}})
      layout.pack(w.blocks.type, pieces.data(), w.blocks.as<uint8_t>() + first * row, first, count);
    EXPECT_TRUE(pieces == whole) << f.name;
  }
}

TEST_P(PackedOps, WrongCallsAreRefusedInWords) {
  auto message = [&](const char* op, const std::vector<TensorType>& in, Attrs attrs) {
    return runner.choose(op, in, std::move(attrs)).status().message();
  };
  const TensorType x{DType::F32, {4, 64}};
  const Attrs q8 = format_attr(BlockFormat::Q8_0);
  EXPECT_TRUE(runner.choose("linear_blocks", {x, {DType::U8, {8, 68}}}, q8).is_ok());
  EXPECT_NE(
      message("linear_blocks", {x, {DType::U8, {8, 68}}}, {{"format", std::string("q9")}}).find("q8_0, q4_0, q4_1"),
      std::string::npos);
  EXPECT_NE(message("linear_blocks", {x, {DType::U8, {8, 67}}}, q8).find("67 bytes"), std::string::npos);
  EXPECT_NE(message("linear_blocks", {x, {DType::U8, {8, 34}}}, q8).find("inner size"), std::string::npos);
  EXPECT_NE(message("linear_blocks", {x, {DType::I8, {8, 68}}}, q8).find("must be u8"), std::string::npos);
  Attrs narrow = q8;
  narrow.set("out", std::string("bf16"));
  EXPECT_NE(message("linear_blocks", {x, {DType::U8, {8, 68}}}, narrow).find("takes f32"), std::string::npos);
  Attrs table = q8;
  table.set("width", int64_t{32});
  table.set("out", std::string("f32"));
  EXPECT_NE(message("embedding_blocks", {{DType::U8, {8, 68}}, {DType::I32, {3}}}, table).find("width 32"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Isas, PackedOps, testing::ValuesIn(isas_with_block_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::packed_test
