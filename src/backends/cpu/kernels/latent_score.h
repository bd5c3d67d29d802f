// Scores of attention over latents: a few rows of queries times four keys.
//
// A row is made of words, sixteen to a vector: floats, or pairs of bf16 where the processor multiplies those. Every
// lane is one chain of multiply-adds along the row, and the sixteen lanes are added up as a tree, regardless of the
// number of rows and keys computed together.
#pragma once

#include "backends/cpu/kernels/attention_panel.h"

namespace reprise::cpu::REPRISE_ISA {

struct ScoreFloats {
  using Word = float;
  static constexpr int kNumbers = 1;  // in a word
  static F32x16 load(const Word* p) { return REPRISE_ISA::load(p); }
  static F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 sum) { return fma(a, b, sum); }
};

#if defined(__AVX512BF16__)
struct ScorePairs {
  using Word = uint32_t;
  static constexpr int kNumbers = 2;
  static F32x16 load(const Word* p) { return reinterpret_cast<F32x16>(_mm512_loadu_si512(p)); }
  static F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 sum) {
    return reinterpret_cast<F32x16>(
        _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
  }
};
#endif

// One of the two parts of keys: that of key j is `vectors` vectors from at + j * stride on.
template <typename Word>
struct KeyPart {
  const Word* at;
  int64_t stride, vectors;
};

#if defined(__AVX512F__)
constexpr int kScoreRows = 6;
#else
constexpr int kScoreRows = 2;
#endif
constexpr int kScoreKeys = 4;

// The sums of four vectors, side by side. The order is that of a tree over a vector's lanes: 0 and 1 (and 2 and 3)
// first, fours last.
inline void sums_of_four(F32x16 a, F32x16 b, F32x16 c, F32x16 d, float* out) {
#if defined(__aarch64__)
  const auto pairs = [](auto x, auto y) { return vaddq_f32(vtrn1q_f32(x, y), vtrn2q_f32(x, y)); };
  const F32x16 ab = by_register<F32x16, float32x4_t>(pairs, a, b), cd = by_register<F32x16, float32x4_t>(pairs, c, d);
  const F32x16 fours = by_register<F32x16, float64x2_t>(
      [](auto x, auto y) {
        return vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(x, y)), vreinterpretq_f32_f64(vtrn2q_f64(x, y)));
      },
      ab, cd);
#elif defined(REPRISE_TWO_REGISTERS)
  const auto pairs = [](auto x, auto y) {
    return __builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14) +
           __builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
  };
  const F32x16 ab = each_register<F32x16>(pairs, a, b), cd = each_register<F32x16>(pairs, c, d);
  const F32x16 fours = each_register<F32x16>(
      [](auto x, auto y) {
        return __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
      },
      ab, cd);
#else
  const F32x16 ab = __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
                    __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  const F32x16 cd = __builtin_shufflevector(c, d, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
                    __builtin_shufflevector(c, d, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  const F32x16 fours = __builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                       __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
#endif
  typedef float F32x4 __attribute__((vector_size(16), aligned(4), may_alias));
  F32x4 part[4];
  std::memcpy(part, &fours, 64);
  const F32x4 sums = (part[0] + part[1]) + (part[2] + part[3]);
  std::memcpy(out, &sums, 16);
}

// out[r * kKvTokens + j] for kRows rows and four keys. With kSwap 1, keys 2 i and 2 i + 1 have changed places.
template <typename W, int kRows, int kSwap>
__attribute__((noinline)) void score_block(const typename W::Word* q, int64_t q_stride,
                                           const KeyPart<typename W::Word> (&parts)[2], float* out) {
  F32x16 sum[kRows][kScoreKeys];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kScoreKeys; ++j) sum[r][j] = zero();
  for (const KeyPart<typename W::Word>& part : parts) {
    const typename W::Word* keys = part.at;
    const int64_t stride = part.stride;
    for (int64_t v = 0; v < part.vectors; ++v, q += 16, keys += 16) {
      F32x16 k[kScoreKeys];
#pragma GCC unroll 4
      for (int j = 0; j < kScoreKeys; ++j) k[j] = W::load(keys + (j ^ kSwap) * stride);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32x16 a = W::load(q + r * q_stride);
#pragma GCC unroll 4
        for (int j = 0; j < kScoreKeys; ++j) sum[r][j] = W::multiply_add(a, k[j], sum[r][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums_of_four(sum[r][0], sum[r][1], sum[r][2], sum[r][3], out + r * kKvTokens);
}

template <typename W, int kSwap>
inline void score_rows(int64_t rows, const typename W::Word* q, int64_t q_stride,
                       const KeyPart<typename W::Word> (&parts)[2], float* out) {
  switch (rows) {
    case 1: return score_block<W, 1, kSwap>(q, q_stride, parts, out);
    case 2: return score_block<W, 2, kSwap>(q, q_stride, parts, out);
  }
  if constexpr (kScoreRows > 2) switch (rows) {
      case 3: return score_block<W, 3, kSwap>(q, q_stride, parts, out);
      case 4: return score_block<W, 4, kSwap>(q, q_stride, parts, out);
      case 5: return score_block<W, 5, kSwap>(q, q_stride, parts, out);
      case 6: return score_block<W, 6, kSwap>(q, q_stride, parts, out);
    }
}

}  // namespace reprise::cpu::REPRISE_ISA
