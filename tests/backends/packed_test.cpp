// linear_blocks, embedding_blocks and lm_head_argmax_blocks against the same weights unpacked, on every instruction
// set: of fp32 and f16 every bit must agree with the plain fp32 kernels, of bf16 with sums by blocks made here in plain
// code.
#include "backends/cpu/layout.h"
#include "backends/op_runner.h"
#include "base/block_format.h"

namespace reprise::cpu::packed_test {
namespace {

struct Packed {
  TestTensor blocks;  // u8 [N, bytes of a row], as in a GGUF file
  TestTensor plain;   // f32 [N, K]: what the checkpoint's reader makes of it
  // f32 [N, K] and [N, K / 32]: the numbers without their factors, the factors, the minima (zeros without any).
  TestTensor numbers, factors, minima;
};

// Every number of every format, factors of both signs, subnormal and zero among them. The formulas are written out
// here once more: product and sum rounded one after the other.
Packed random_blocks(BlockFormat format, int64_t n, int64_t k, uint32_t seed) {
  const BlockFormatInfo& info = block_format_info(format);
  Packed p{zero_tensor(DType::U8, {n, k / kBlockElements * info.bytes}), zero_tensor(DType::F32, {n, k}),
           zero_tensor(DType::F32, {n, k}), zero_tensor(DType::F32, {n, k / kBlockElements}),
           zero_tensor(DType::F32, {n, k / kBlockElements})};
  std::mt19937 gen(seed);
  const int64_t factors = format == BlockFormat::Q4_1 ? 2 : 1;
  for (int64_t b = 0; b < n * k / kBlockElements; ++b) {
    uint8_t* block = p.blocks.as<uint8_t>() + b * info.bytes;
    for (int64_t i = 0; i < info.bytes; ++i) block[i] = static_cast<uint8_t>(gen());
    if (format == BlockFormat::Mxfp4) {
      block[0] = b % 11 == 5 ? 0 : static_cast<uint8_t>(118 + gen() % 9);
      float* out = p.plain.as<float>() + b * kBlockElements;
      float* number = p.numbers.as<float>() + b * kBlockElements;
      p.factors.as<float>()[b] = std::ldexp(1.0f, block[0] - 127);
      for (int64_t i = 0; i < kBlockElements; ++i) {
        const int nibble = i < 16 ? block[1 + i] & 15 : block[1 + i - 16] >> 4;
        const int exponent = nibble >> 1 & 3, half = nibble & 1;
        const double size = exponent == 0 ? half * 0.5 : std::ldexp(1 + half * 0.5, exponent - 1);
        number[i] = static_cast<float>(nibble & 8 ? -size : size);
        out[i] = static_cast<float>(std::ldexp(nibble & 8 ? -size : size, block[0] - 127));
      }
      continue;
    }
    for (int64_t i = 0; i < factors; ++i) {
      const float v = (static_cast<float>(gen()) / 4294967296.0f - 0.5f) * (b % 7 == 3 ? 1e-6f : 0.1f);
      const uint16_t h = b % 11 == 5 ? 0 : float_to_half(v);
      std::memcpy(block + 2 * i, &h, 2);
    }
    uint16_t half[2] = {};
    std::memcpy(half, block, static_cast<size_t>(2 * factors));
    const float d = half_to_float(half[0]), m = half_to_float(half[1]);
    float* out = p.plain.as<float>() + b * kBlockElements;
    float* number = p.numbers.as<float>() + b * kBlockElements;
    p.factors.as<float>()[b] = d;
    p.minima.as<float>()[b] = m;
    const uint8_t* q = block + 2 * factors;
    for (int64_t i = 0; i < kBlockElements; ++i) {
      const int nibble = i < 16 ? q[i % 16] & 15 : q[i % 16] >> 4;
      number[i] = static_cast<float>(format == BlockFormat::Q8_0   ? static_cast<int8_t>(q[i])
                                     : format == BlockFormat::Q4_0 ? nibble - 8
                                                                   : nibble);
      const volatile float product = d * number[i];
      out[i] = format == BlockFormat::Q4_1 ? product + m : product;
    }
  }
  return p;
}

TestTensor convert(const TestTensor& x, DType to) {
  TestTensor out = x;
  out.type.dtype = to;
  out.bytes.assign(static_cast<size_t>(x.size()) * size_of(to), 0);
  for (int64_t i = 0; i < x.size(); ++i) out.set(i, x.get(i));
  return out;
}

Attrs format_attr(BlockFormat f) { return {{"format", std::string(block_format_info(f).name)}}; }

class PackedOps : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};

  static float multiply_add(float a, float b, float sum) {
#if defined(__x86_64__)
    if (GetParam() == Isa::Baseline) return sum + a * b;
#endif
    return std::fma(a, b, sum);
  }

  // bf16: a block's numbers in one chain over pairs (k, k + 4) of each eight k, the second first; then times its
  // factor; then its minimum times the sum of the block's x: sixteen partial sums and a tree. Subnormals are zeros, of
  // which only the smallest factor is one here.
  static TestTensor sums_by_blocks(const TestTensor& x, const Packed& w) {
    const int64_t m = x.type.shape[0].factor, k = x.type.shape[1].factor, n = w.plain.type.shape[0].factor;
    TestTensor wide = convert(x, DType::F32), out = zero_tensor(DType::F32, {m, n});
    for (int64_t r = 0; r < m; ++r) {
      const float* row = wide.as<float>() + r * k;
      std::vector<float> sums;
      for (int64_t b = 0; b < k; b += kBlockElements) {
        float part[16];
        for (int64_t i = 0; i < 16; ++i) part[i] = row[b + i] + row[b + 16 + i];
        for (int64_t half = 8; half > 0; half /= 2)
          for (int64_t i = 0; i < half; ++i) part[i] = part[i] + part[i + half];
        sums.push_back(part[0]);
      }
      for (int64_t c = 0; c < n; ++c) {
        float sum = 0;
        for (int64_t b = 0; b < k / kBlockElements; ++b) {
          const float* xb = row + b * kBlockElements;
          const float* q = w.numbers.as<const float>() + c * k + b * kBlockElements;
          float block = 0;
          for (int64_t i = 0; i < kBlockElements; i += 8)
            for (int64_t j = i; j < i + 4; ++j)
              block = multiply_add(xb[j], q[j], multiply_add(xb[j + 4], q[j + 4], block));
          const float d = w.factors.as<const float>()[c * k / kBlockElements + b];
          sum = multiply_add(std::fabs(d) < std::numeric_limits<float>::min() ? 0.0f : d, block, sum);
          if (const float least = w.minima.as<const float>()[c * k / kBlockElements + b]; least != 0)
            sum = multiply_add(least, sums[static_cast<size_t>(b)], sum);
        }
        out.as<float>()[r * n + c] = sum;
      }
    }
    return out;
  }

  TestTensor sums(const TestTensor& x, const Packed& w) const {
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
  struct Types {
    DType in;
    const char* attr;
    DType out;
  };
  constexpr Types kTypes[] = {{DType::F32, "same", DType::F32},
                              {DType::BF16, "same", DType::BF16},
                              {DType::BF16, "f32", DType::F32},
                              {DType::F16, "same", DType::F16},
                              {DType::F16, "f32", DType::F32}};
  for (const BlockFormatInfo& f : kBlockFormats)
    for (int64_t k : {32, 64, 96, 576})
      for (int64_t n : {1, 15, 17, 63, 64, 65, 191}) {
        const Packed w = random_blocks(f.format, n, k, 7);
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 19, 33, 97})
          for (const Types& t : kTypes) {
            if (t.in != DType::F32 && (m + n) % 3 != 0) continue;
            if (t.in == DType::BF16 && (m > 33 || k * n > 10'000)) continue;  // every tile is there before
            const TestTensor x = random_tensor(t.in, {m, k}, static_cast<uint32_t>(m));
            const TestTensor bias = random_tensor(t.in, {n}, 8);
            const TestTensor* b = (m + n) % 2 ? &bias : nullptr;
            std::vector<TestTensor> in{x, w.blocks};
            if (b) in.push_back(*b);
            Attrs attrs = format_attr(f.format);
            attrs.set("out", std::string(t.attr));
            const TestTensor expected = finish(sums(x, w), b, t.out);
            for (int threads : {1, 3}) {
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

// Several blocks of rows, and shares of threads by rows.
TEST_P(PackedOps, ManyRowsOfBf16HaveTheSumsByBlocks) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    const Packed w = random_blocks(f.format, 20, 64, 31);
    const TestTensor x = random_tensor(DType::BF16, {193, 64}, 32);
    const TestTensor expected = finish(sums(x, w), nullptr, DType::BF16);
    for (int threads : {1, 3})
      for (int64_t way : {0, 1})
        expect_same_bits(runner.run("linear_blocks", {x, w.blocks}, format_attr(f.format),
                                    {.threads = threads, .adjust = [&](LaunchArgs& a) { a.way = way; }})[0],
                         expected, fmt::format("{} way={}", f.name, way));
  }
}

TEST_P(PackedOps, GroupsHaveTheBitsOfTheirOwnProducts) {
  constexpr int64_t kGroups = 4, kRows = 120;
  for (const BlockFormatInfo& f : kBlockFormats)
    for (auto [n, k] : {std::pair<int64_t, int64_t>{17, 32}, {64, 96}, {131, 576}})
      for (DType t : kDTypes) {
        const Packed w = random_blocks(f.format, kGroups * n, k, 21);
        TestTensor stack = w.blocks;
        stack.type.shape = constant_shape({kGroups, n, k / kBlockElements * f.bytes});
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
    const Packed w = random_blocks(f.format, 70, 64, 3);
    TestTensor x = random_tensor(DType::BF16, {5, 64}, 5);
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
    for (int64_t k : {32, 96, 576}) {
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
          const Packed w = random_blocks(f.format, n, 96, 13);
          const TestTensor x = random_tensor(t, {m, 96}, 14);
          const TestTensor expected = runner.run("argmax", {sums(x, w)})[0];
          for (int threads : {1, 2, 3})
            expect_same_bits(
                runner.run("lm_head_argmax_blocks", {x, w.blocks}, format_attr(f.format), {.threads = threads})[0],
                expected, fmt::format("{} {} m={} n={}", f.name, dtype_name(t), m, n));
        }
}

TEST_P(PackedOps, RowBlocksPackAsTheWhole) {
  for (const BlockFormatInfo& f : kBlockFormats) {
    const Packed w = random_blocks(f.format, 150, 96, 17);
    const ParamLayout& layout = *runner.kernels().layout(DeviceKind::Cpu, packed_layout(f.format));
    const Bytes whole = runner.pack(w.blocks, layout.name);
    EXPECT_EQ(whole.size(), 192 * 3 * static_cast<size_t>(f.bytes));
    Bytes pieces(whole.size(), 0);
    const int64_t row = 3 * f.bytes;
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

INSTANTIATE_TEST_SUITE_P(Isas, PackedOps, testing::ValuesIn(supported_isas()),
                         [](const auto& i) { return std::string(isa_name(i.param)); });

}  // namespace
}  // namespace reprise::cpu::packed_test
