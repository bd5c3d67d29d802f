// The formats of weights in GGUF blocks as they lie in panels (<format>_panel64 of backends/cpu/layout.h), and how
// their numbers and factors come into registers. Internal linkage, as linear_tiles.h.
#pragma once

#include <bit>

#include "backends/cpu/kernels/linear_tiles.h"
#include "base/block_format.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kBlockK = 32;         // k of a block
constexpr int64_t kGroupK = 8;          // k that lie side by side in a group
constexpr int64_t kPackedAhead = 4096;  // how far ahead a single pass over the weights fetches

// Nibble kPart of each word, minus kMinus.
#if defined(__AVX512F__)
// The permutation looks at the low 4 bits of a lane only, so nothing need be masked.
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const __m512 table = _mm512_setr_ps(0 - kMinus, 1 - kMinus, 2 - kMinus, 3 - kMinus, 4 - kMinus, 5 - kMinus,
                                      6 - kMinus, 7 - kMinus, 8 - kMinus, 9 - kMinus, 10 - kMinus, 11 - kMinus,
                                      12 - kMinus, 13 - kMinus, 14 - kMinus, 15 - kMinus);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(words), 4 * kPart), table);
}
#elif defined(__AVX2__)
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const __m256i w = _mm256_srli_epi32(reg_words(words), 4 * kPart);
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(w, _mm256_set1_epi32(15)), _mm256_set1_epi32(kMinus)));
}
#elif defined(__x86_64__)
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const __m128i w = _mm_srli_epi32(reg_words(words), 4 * kPart);
  return _mm_cvtepi32_ps(_mm_sub_epi32(_mm_and_si128(w, _mm_set1_epi32(15)), _mm_set1_epi32(kMinus)));
}
#elif defined(__aarch64__)
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const int32x4_t w = vreinterpretq_s32_u32(vandq_u32(reg_words(words) >> (4 * kPart), vdupq_n_u32(15)));
  return vcvtq_f32_s32(vsubq_s32(w, vdupq_n_s32(kMinus)));
}
#endif

// Powers of two from their exponents with 127 added, a byte each; the smallest is subnormal.
#if defined(__AVX512F__)
inline Reg reg_power(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(0x00400000)));
}
#elif defined(__AVX2__)
inline Reg reg_power(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(0x00400000)));
}
#elif defined(__x86_64__)
inline Reg reg_power(const uint8_t* p) {
  int32_t bytes;
  std::memcpy(&bytes, p, 4);
  const __m128i none = _mm_setzero_si128();
  const __m128i e = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), none), none);
  const __m128i smallest = _mm_and_si128(_mm_cmpeq_epi32(e, none), _mm_set1_epi32(0x00400000));
  return _mm_castsi128_ps(_mm_or_si128(_mm_slli_epi32(e, 23), smallest));
}
#elif defined(__aarch64__)
inline Reg reg_power(const uint8_t* p) {
  uint32_t bytes;
  std::memcpy(&bytes, p, 4);
  const uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)))));
  return vreinterpretq_f32_u32(vmaxq_u32(vshlq_n_u32(e, 23), vdupq_n_u32(0x00400000)));
}
#endif

// Nibble kPart of each word as a number of 4 bits (E2M1): a sign, and 0, 0.5, 1, 1.5, 2, 3, 4 or 6.
#if defined(__AVX512F__)
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                      -3.0f, -4.0f, -6.0f);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(words), 4 * kPart), table);
}
#elif defined(__AVX2__)
// The permutation looks at the low 3 bits of a lane only.
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i w = _mm256_srli_epi32(reg_words(words), 4 * kPart);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(w, _mm256_set1_epi32(8)), 28);
  return _mm256_or_ps(_mm256_permutevar8x32_ps(table, w), _mm256_castsi256_ps(sign));
}
#elif defined(__x86_64__)
// A float's exponent and first bit of mantissa are those of the number, but for 0 and 0.5, which have no leading bit.
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const __m128i w = _mm_srli_epi32(reg_words(words), 4 * kPart), size = _mm_and_si128(w, _mm_set1_epi32(7));
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(w, _mm_set1_epi32(8)), 28);
  const __m128i small = _mm_cmplt_epi32(size, _mm_set1_epi32(2));
  const __m128i halves = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(size), _mm_set1_ps(0.5f)));
  const __m128i others = _mm_add_epi32(_mm_slli_epi32(size, 22), _mm_set1_epi32(126 << 23));
  const __m128i value = _mm_or_si128(_mm_and_si128(small, halves), _mm_andnot_si128(small, others));
  return _mm_castsi128_ps(_mm_or_si128(value, sign));
}
#elif defined(__aarch64__)
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const uint32x4_t w = reg_words(words) >> (4 * kPart), size = vandq_u32(w, vdupq_n_u32(7));
  const uint32x4_t sign = vshlq_n_u32(vandq_u32(w, vdupq_n_u32(8)), 28);
  const uint32x4_t halves = vreinterpretq_u32_f32(vmulq_n_f32(vcvtq_f32_u32(size), 0.5f));
  const uint32x4_t others = vaddq_u32(vshlq_n_u32(size, 22), vdupq_n_u32(126u << 23));
  return vreinterpretq_f32_u32(vorrq_u32(vbslq_u32(vcltq_u32(size, vdupq_n_u32(2)), halves, others), sign));
}
#endif

#if defined(__AVX512BF16__)
// Numbers kPair and kPair + 4 of the eight nibbles of each word, as bf16 by a table: a permutation looks at the low 5
// bits of a lane of 16, so the table is there twice and nothing need be masked.
struct PairTable {
  uint16_t bits[32];
};
template <class Value>
constexpr PairTable pair_table(const Value& value) {
  PairTable table{};
  for (int i = 0; i < 32; ++i)
    table.bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value(i % 16))) >> 16);
  return table;
}
template <int kPair>
inline __m512i pair_of(const uint8_t* words, const PairTable& table) {
  return _mm512_permutexvar_epi16(_mm512_srli_epi16(_mm512_loadu_si512(words), 4 * kPair),
                                  _mm512_load_si512(table.bits));
}
#endif

// The formats: bytes of a panel's block of 32 k (all factors, all minima, four groups), number kPart of a group, and
// the same times its factor. pair<kPair>() has the numbers kPair and kPair + 4 of a group as bf16, the first in the low
// half of a lane: what vdpbf16ps takes.
struct PackedQ8_0 {
  static constexpr int64_t kBlockBytes = kPanelColumns * 34, kFactorBytes = kPanelColumns * 2;
  static constexpr bool kMinimum = false, kPower = false;
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_i8(group + kPart * kPanelColumns + column);
  }
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    const auto first = reinterpret_cast<__m512i>(number<kPair>(group, column));
    const auto second = reinterpret_cast<__m512i>(number<kPair + 4>(group, column));
    return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);  // 8 bits leave the low half of a float empty
  }
#endif
};
template <int kMinus>
struct PackedNibbles {
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_nibble<kPart, kMinus>(group + 4 * column);
  }
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    alignas(64) static constexpr PairTable kTable = pair_table([](int i) { return static_cast<float>(i - kMinus); });
    return pair_of<kPair>(group + 4 * column, kTable);
  }
#endif
};
struct PackedQ4_0 : PackedNibbles<8> {
  static constexpr int64_t kBlockBytes = kPanelColumns * 18, kFactorBytes = kPanelColumns * 2;
  static constexpr bool kMinimum = false, kPower = false;
};
struct PackedQ4_1 : PackedNibbles<0> {
  static constexpr int64_t kBlockBytes = kPanelColumns * 20, kFactorBytes = kPanelColumns * 4;
  static constexpr bool kMinimum = true, kPower = false;
};
struct PackedMxfp4 {
  static constexpr int64_t kBlockBytes = kPanelColumns * 17, kFactorBytes = kPanelColumns;
  static constexpr bool kMinimum = false, kPower = true;
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_fp4<kPart>(group + 4 * column);
  }
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    static constexpr float kSizes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    alignas(64) static constexpr PairTable kTable =
        pair_table([](int i) { return i < 8 ? kSizes[i] : -kSizes[i - 8]; });
    return pair_of<kPair>(group + 4 * column, kTable);
  }
#endif
};

// Number kPart of a group as the weight that it stands for.
template <class P, int kPart>
inline Reg packed_weight(const uint8_t* group, int column, Reg d, Reg m) {
  const Reg number = P::template number<kPart>(group, column);
  return P::kMinimum ? reg_fma(d, number, m) : reg_mul(d, number);
}

template <class P>
constexpr int64_t kGroupBytes = (P::kBlockBytes - P::kFactorBytes) * kGroupK / kBlockK;

// The factors of a block for columns [column, column + NV * kLanes) of a panel.
template <class P, int NV>
struct Factors {
  Reg d[NV], m[NV];
  Factors(const uint8_t* block, int column) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const uint8_t* at = block + (P::kPower ? 1 : 2) * (column + j * kLanes);
      if constexpr (P::kPower)
        d[j] = reg_power(at);
      else
        d[j] = reg_f16(reinterpret_cast<const uint16_t*>(at));
      if constexpr (P::kMinimum)
        m[j] = reg_f16(reinterpret_cast<const uint16_t*>(at) + kPanelColumns);
      else
        m[j] = d[j];
    }
  }
};

// Calls body(P{}) with the format's type.
template <class Body>
void with_format(BlockFormat format, const Body& body) {
  switch (format) {
    case BlockFormat::Q8_0: return body(PackedQ8_0{});
    case BlockFormat::Q4_0: return body(PackedQ4_0{});
    case BlockFormat::Q4_1: return body(PackedQ4_1{});
    case BlockFormat::Mxfp4: return body(PackedMxfp4{});
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
