// Random weights in GGUF blocks and what they mean, for tests of the kernels on them: the formulas of every format
// written out here once more. Plain values.
#pragma once

#include "backends/cpu/layout.h"
#include "backends/op_runner.h"
#include "base/block_format.h"

namespace reprise::cpu::packed_test {

struct Packed {
  TestTensor blocks;  // u8 [N, bytes of a row], as in a GGUF file
  TestTensor plain;   // f32 [N, K]: what the checkpoint's reader makes of it
  int64_t part;       // k that share a factor
  // f32 [N, K] and [N, K / part]: the numbers without their factors, the factors, the minima (zeros without any).
  TestTensor numbers, factors, minima;
};

inline int64_t part_of(BlockFormat f) {
  return f == BlockFormat::Q2_K || f == BlockFormat::Q3_K || f == BlockFormat::Q6_K ? 16 : 32;
}

// The formulas written out here once more, as llama.cpp's dequantize_row_q2_K and _q3_K (ggml-quants.c) walk a block.
inline void read_block_q2_k(const uint8_t* block, float d, float dmin, float* number, float* factor, float* minimum) {
  const uint8_t* q = block + 16;
  for (int j = 0; j < 16; ++j) {
    factor[j] = d * static_cast<float>(block[j] & 15);
    minimum[j] = -(dmin * static_cast<float>(block[j] >> 4));
  }
  for (int n = 0; n < 256; n += 128, q += 32)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l) *number++ = static_cast<float>(q[l] >> (2 * j) & 3);
}
inline void read_block_q3_k(const uint8_t* block, float d, float* number, float* factor) {
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
inline float iq4_number(int nibble) {
  constexpr int8_t kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kValues[nibble & 15];
}

// A block with the formulas written out here once more (of K types as llama.cpp's dequantize_row_q*_K has them): its
// numbers, the factors and minima of its parts.
inline void read_block(BlockFormat format, const uint8_t* block, float* number, float* factor, float* minimum) {
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
inline Packed random_blocks(BlockFormat format, int64_t n, int64_t k, uint32_t seed) {
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
inline std::vector<int64_t> depths_of(const BlockFormatInfo& f) {
  return f.elements == 32 ? std::vector<int64_t>{32, 64, 96, 576} : std::vector<int64_t>{256, 512};
}
inline int64_t depth_of(const BlockFormatInfo& f, int64_t k) { return f.elements == 32 ? k : 256; }

inline TestTensor convert(const TestTensor& x, DType to) {
  TestTensor out = x;
  out.type.dtype = to;
  out.bytes.assign(static_cast<size_t>(x.size()) * size_of(to), 0);
  for (int64_t i = 0; i < x.size(); ++i) out.set(i, x.get(i));
  return out;
}

inline Attrs format_attr(BlockFormat f) { return {{"format", std::string(block_format_info(f).name)}}; }

// Rounded as the instruction set's multiply-add is: once, but twice where there is none.
inline float multiply_add([[maybe_unused]] Isa isa, float a, float b, float sum) {
#if defined(__x86_64__)
  if (isa == Isa::Baseline) return sum + a * b;
#endif
  return std::fma(a, b, sum);
}

// Types of x, of the attribute "out" and of the result that linear_blocks has kernels for.
struct PackedTypes {
  DType in;
  const char* attr;
  DType out;
};
inline constexpr PackedTypes kPackedTypes[] = {{DType::F32, "same", DType::F32},
                                               {DType::BF16, "same", DType::BF16},
                                               {DType::BF16, "f32", DType::F32},
                                               {DType::F16, "same", DType::F16},
                                               {DType::F16, "f32", DType::F32}};

}  // namespace reprise::cpu::packed_test
