// linear_blocks, embedding_blocks and lm_head_argmax_blocks against the same weights unpacked, on every instruction
// set: of fp32 and f16 every bit must agree with the plain fp32 kernels, of bf16 with sums by blocks made here in plain
// code; on tile registers with the product of the weights rounded to bf16.
#include "backends/cpu/layout.h"
#include "backends/op_runner.h"
#include "base/block_format.h"

namespace reprise::cpu::packed_test {
namespace {

struct Packed {
  TestTensor blocks;  // u8 [N, bytes of a row], as in a GGUF file
  TestTensor plain;   // f32 [N, K]: what the checkpoint's reader makes of it
  int64_t part;       // k that share a factor
  // f32 [N, K] and [N, K / part]: the numbers without their factors, the factors, the minima (zeros without any).
  TestTensor numbers, factors, minima;
};

int64_t part_of(BlockFormat f) {
  return f == BlockFormat::Q2_K || f == BlockFormat::Q3_K || f == BlockFormat::Q6_K ? 16 : 32;
}

// The formulas written out here once more, as llama.cpp's dequantize_row_q2_K and _q3_K (ggml-quants.c) walk a block.
void read_block_q2_k(const uint8_t* block, float d, float dmin, float* number, float* factor, float* minimum) {
  const uint8_t* q = block + 16;
  for (int j = 0; j < 16; ++j) {
    factor[j] = d * static_cast<float>(block[j] & 15);
    minimum[j] = -(dmin * static_cast<float>(block[j] >> 4));
  }
  for (int n = 0; n < 256; n += 128, q += 32)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l) *number++ = static_cast<float>(q[l] >> (2 * j) & 3);
}
void read_block_q3_k(const uint8_t* block, float d, float* number, float* factor) {
  uint32_t words[4];
  std::memcpy(words, block + 96, 12);
  const uint32_t all = words[2];
  words[2] = (words[0] >> 4 & 0x0f0f0f0fu) | (all >> 4 & 0x03030303u) << 4;
  words[3] = (words[1] >> 4 & 0x0f0f0f0fu) | (all >> 6 & 0x03030303u) << 4;
  words[0] = (words[0] & 0x0f0f0f0fu) | (all & 0x03030303u) << 4;
  words[1] = (words[1] & 0x0f0f0f0fu) | (all >> 2 & 0x03030303u) << 4;
  int8_t scales[16];
  std::memcpy(scales, words, 16);
  for (int j = 0; j < 16; ++j) factor[j] = d * static_cast<float>(scales[j] - 32);
  const uint8_t *high = block, *q = block + 32;
  for (int n = 0, mask = 1; n < 256; n += 128, q += 32)
    for (int j = 0; j < 4; ++j, mask <<= 1)
      for (int l = 0; l < 32; ++l) *number++ = static_cast<float>((q[l] >> (2 * j) & 3) - (high[l] & mask ? 0 : 4));
}

// The numbers of the four bits of IQ4_NL and IQ4_XS: kvalues_iq4nl of llama.cpp's ggml-common.h.
float iq4_number(int nibble) {
  constexpr int8_t kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kValues[nibble & 15];
}

// A block with the formulas written out here once more (of K types as llama.cpp's dequantize_row_q*_K has them): its
// numbers, the factors and minima of its parts.
void read_block(BlockFormat format, const uint8_t* block, float* number, float* factor, float* minimum) {
  const auto half = [&](int at) {
    uint16_t h;
    std::memcpy(&h, block + at, 2);
    return half_to_float(h);
  };
  switch (format) {
    case BlockFormat::Mxfp4:
      factor[0] = std::ldexp(1.0f, block[0] - 127);
      for (int i = 0; i < 32; ++i) {
        const int nibble = i < 16 ? block[1 + i] & 15 : block[1 + i - 16] >> 4;
        const int exponent = nibble >> 1 & 3, last = nibble & 1;
        const double size = exponent == 0 ? last * 0.5 : std::ldexp(1 + last * 0.5, exponent - 1);
        number[i] = static_cast<float>(nibble & 8 ? -size : size);
      }
      return;
    case BlockFormat::Q8_0:
      factor[0] = half(0);
      for (int i = 0; i < 32; ++i) number[i] = static_cast<float>(static_cast<int8_t>(block[2 + i]));
      return;
    case BlockFormat::Q4_0:
    case BlockFormat::Q4_1: {
      const bool least = format == BlockFormat::Q4_1;
      factor[0] = half(0);
      if (least) minimum[0] = half(2);
      const uint8_t* q = block + (least ? 4 : 2);
      for (int i = 0; i < 32; ++i)
        number[i] = static_cast<float>((i < 16 ? q[i] & 15 : q[i - 16] >> 4) - (least ? 0 : 8));
      return;
    }
    case BlockFormat::Q5_0:
    case BlockFormat::Q5_1: {
      const bool least = format == BlockFormat::Q5_1;
      factor[0] = half(0);
      if (least) minimum[0] = half(2);
      const uint8_t *high = block + (least ? 4 : 2), *q = high + 4;
      for (int i = 0; i < 32; ++i) {
        const int number_of_4 = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        number[i] = static_cast<float>((number_of_4 | (high[i / 8] >> (i % 8) & 1) << 4) - (least ? 0 : 16));
      }
      return;
    }
    case BlockFormat::Q4_K:
    case BlockFormat::Q5_K: {
      const bool fifth = format == BlockFormat::Q5_K;
      const uint8_t *scales = block + 4, *high = block + 16, *low = block + (fifth ? 48 : 16);
      for (int j = 0; j < 8; ++j) {
        const int scale = j < 4 ? scales[j] & 63 : (scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4);
        const int least = j < 4 ? scales[j + 4] & 63 : (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4);
        factor[j] = half(0) * static_cast<float>(scale);
        minimum[j] = -(half(2) * static_cast<float>(least));
        for (int i = 0; i < 32; ++i)
          number[32 * j + i] = static_cast<float>((low[j / 2 * 32 + i] >> (j % 2 * 4) & 15) +
                                                  (fifth && (high[i] >> j & 1) != 0 ? 16 : 0));
      }
      return;
    }
    case BlockFormat::Q2_K: return read_block_q2_k(block, half(80), half(82), number, factor, minimum);
    case BlockFormat::Q3_K: return read_block_q3_k(block, half(108), number, factor);
    case BlockFormat::IQ4_NL:
      factor[0] = half(0);
      for (int i = 0; i < 32; ++i) number[i] = iq4_number(i < 16 ? block[2 + i] : block[2 + i - 16] >> 4);
      return;
    case BlockFormat::IQ4_XS: {
      const int high = block[2] | block[3] << 8;
      for (int j = 0; j < 8; ++j) {
        const int low = block[4 + j / 2] >> (4 * (j % 2)) & 15;
        factor[j] = half(0) * static_cast<float>((low | (high >> (2 * j) & 3) << 4) - 32);
        const uint8_t* q = block + 8 + 16 * j;
        for (int i = 0; i < 16; ++i) {
          number[32 * j + i] = iq4_number(q[i]);
          number[32 * j + 16 + i] = iq4_number(q[i] >> 4);
        }
      }
      return;
    }
    case BlockFormat::Q6_K: {
      for (int j = 0; j < 16; ++j) factor[j] = half(208) * static_cast<float>(static_cast<int8_t>(block[192 + j]));
      const auto value = [](int low, int high) { return static_cast<float>(((low & 15) | (high & 3) << 4) - 32); };
      for (int n = 0; n < 2; ++n)
        for (int l = 0; l < 32; ++l) {
          const uint8_t *ql = block + 64 * n, high = block[128 + 32 * n + l];
          float* y = number + 128 * n + l;
          y[0] = value(ql[l], high);
          y[32] = value(ql[l + 32], high >> 2);
          y[64] = value(ql[l] >> 4, high >> 4);
          y[96] = value(ql[l + 32] >> 4, high >> 6);
        }
      return;
    }
  }
}

// Every number of every format, factors of both signs, subnormal and zero among them; product and sum rounded one after
// the other.
Packed random_blocks(BlockFormat format, int64_t n, int64_t k, uint32_t seed) {
  const BlockFormatInfo& info = block_format_info(format);
  const int64_t part = part_of(format), parts = info.elements / part;
  Packed p{zero_tensor(DType::U8, {n, k / info.elements * info.bytes}),
           zero_tensor(DType::F32, {n, k}),
           part,
           zero_tensor(DType::F32, {n, k}),
           zero_tensor(DType::F32, {n, k / part}),
           zero_tensor(DType::F32, {n, k / part})};
  std::mt19937 gen(seed);
  for (int64_t b = 0; b < n * k / info.elements; ++b) {
    uint8_t* block = p.blocks.as<uint8_t>() + b * info.bytes;
    for (int64_t i = 0; i < info.bytes; ++i) block[i] = static_cast<uint8_t>(gen());
    if (format == BlockFormat::Mxfp4)
      block[0] = b % 11 == 5 ? 0 : static_cast<uint8_t>(118 + gen() % 9);
    else
      for (int64_t i = 0; i < info.factors; ++i) {
        const float v = (static_cast<float>(gen()) / 4294967296.0f - 0.5f) * (b % 7 == 3 ? 1e-6f : 0.1f);
        const uint16_t h = b % 11 == 5 ? 0 : float_to_half(v);
        std::memcpy(block + info.factors_at + 2 * i, &h, 2);
      }
    float *number = p.numbers.as<float>() + b * info.elements, *out = p.plain.as<float>() + b * info.elements;
    float *factor = p.factors.as<float>() + b * parts, *minimum = p.minima.as<float>() + b * parts;
    read_block(format, block, number, factor, minimum);
    for (int64_t i = 0; i < info.elements; ++i) {
      const volatile float product = factor[i / part] * number[i];
      out[i] = info.factors == 2 ? product + minimum[i / part] : product;
    }
  }
  return p;
}

// Depths that the format has blocks for.
std::vector<int64_t> depths_of(const BlockFormatInfo& f) {
  return f.elements == 32 ? std::vector<int64_t>{32, 64, 96, 576} : std::vector<int64_t>{256, 512};
}
int64_t depth_of(const BlockFormatInfo& f, int64_t k) { return f.elements == 32 ? k : 256; }

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
    for (int64_t k : depths_of(f))
      for (int64_t n : {1, 15, 17, 63, 64, 65, 191}) {
        // How columns and rows are shared out does not depend on the format.
        const bool few = f.format > BlockFormat::Mxfp4;
        if ((few || kSanitized) && n % 16 != 1 && n != 191) continue;
        const Packed w = random_blocks(f.format, n, k, 7);
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 19, 33, 97})
          for (const Types& t : kTypes) {
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
