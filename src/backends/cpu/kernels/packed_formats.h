// The formats of weights in GGUF blocks as they lie in panels (<format>_panel64 of backends/cpu/layout.h), and how
// their numbers and factors come into registers. Internal linkage, as linear_tiles.h.
#pragma once

#include <bit>
#include <utility>

#include "backends/cpu/kernels/linear_tiles.h"
#include "base/block_format.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kUnitK = 32;          // K is a multiple of it, and rows of x are arranged by it
constexpr int64_t kGroupK = 8;          // k that lie side by side in a group
constexpr int64_t kPackedAhead = 4096;  // how far ahead a single pass over the weights fetches

// A register of words, which the compiler knows how to shift.
typedef uint32_t Words __attribute__((vector_size(sizeof(Reg)), may_alias));
typedef int32_t SignedWords __attribute__((vector_size(sizeof(Reg)), may_alias));
typedef float Floats __attribute__((vector_size(sizeof(Reg)), may_alias));
inline Words words_at(const uint8_t* p) {
  Words w;
  std::memcpy(&w, p, sizeof w);
  return w;
}
// Integers of kBytes, one a word.
template <int kBytes>
inline Words widened(const uint8_t* p) {
#if defined(__AVX512F__)
  if constexpr (kBytes == 1)
    return reinterpret_cast<Words>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  else
    return reinterpret_cast<Words>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__AVX2__)
  if constexpr (kBytes == 1)
    return reinterpret_cast<Words>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  else
    return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__x86_64__)
  const __m128i none = _mm_setzero_si128();
  if constexpr (kBytes == 1) {
    int32_t bytes;
    std::memcpy(&bytes, p, 4);
    return reinterpret_cast<Words>(_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), none), none));
  } else {
    return reinterpret_cast<Words>(_mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), none));
  }
#elif defined(__aarch64__)
  if constexpr (kBytes == 1) {
    uint32_t bytes;
    std::memcpy(&bytes, p, 4);
    return reinterpret_cast<Words>(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes))))));
  } else {
    return reinterpret_cast<Words>(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))));
  }
#endif
}

// Bits [kBit, kBit + kBits) of each word as a number, times kTimes, minus kMinus.
template <int kBit, int kBits, int kTimes, int kMinus>
inline Reg reg_field(Words words) {
  constexpr int kMask = (1 << kBits) - 1;
#if defined(__AVX512F__)
  // The permutation looks at the low 4 bits of a lane only, so nothing need be masked.
  constexpr auto value = [](int i) { return static_cast<float>((i & kMask) * kTimes - kMinus); };
  const __m512 table =
      _mm512_setr_ps(value(0), value(1), value(2), value(3), value(4), value(5), value(6), value(7), value(8), value(9),
                     value(10), value(11), value(12), value(13), value(14), value(15));
  return _mm512_permutexvar_ps(_mm512_srli_epi32(reinterpret_cast<__m512i>(words), kBit), table);
#else
  const Words field = (words >> kBit & static_cast<uint32_t>(kMask)) * static_cast<uint32_t>(kTimes);
  return reinterpret_cast<Reg>(
      __builtin_convertvector(reinterpret_cast<SignedWords>(field - static_cast<uint32_t>(kMinus)), Floats));
#endif
}

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

// Nibble kPart of each word as the number that it stands for in iq4_nl and iq4_xs.
struct Iq4Floats {
  alignas(64) float of[16] = {};
  constexpr Iq4Floats() {
    for (size_t i = 0; i < 16; ++i) of[i] = kIq4Numbers[i];
  }
};
constexpr Iq4Floats kIq4Floats;
template <int kPart>
inline Reg reg_iq4(const uint8_t* words) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(words), 4 * kPart), _mm512_load_ps(kIq4Floats.of));
#elif defined(__AVX2__) || defined(__aarch64__)
  const Words index = words_at(words) >> (4 * kPart) & 15u;
#if defined(__AVX2__)
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Numbers.data())));
  const auto found = reinterpret_cast<SignedWords>(_mm256_shuffle_epi8(table, reinterpret_cast<__m256i>(index)));
#else
  const auto found =
      reinterpret_cast<SignedWords>(vqtbl1q_s8(vld1q_s8(kIq4Numbers.data()), vreinterpretq_u8_u32(index)));
#endif
  return reinterpret_cast<Reg>(__builtin_convertvector(found << 24 >> 24, Floats));
#else
  float out[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    uint32_t word;
    std::memcpy(&word, words + 4 * i, 4);
    out[i] = kIq4Floats.of[word >> (4 * kPart) & 15];
  }
  return reg_load(out);
#endif
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// Bytes of each word as `choice` has them for one word, from the lowest one on; 128 and more is a zero.
template <uint32_t kChoice>
inline Words chosen_bytes(Words from) {
  constexpr auto of_word = [](uint32_t word) { return static_cast<int>(kChoice + 4 * word * 0x01010101u); };
  const __m128i choice = _mm_setr_epi32(of_word(0), of_word(1), of_word(2), of_word(3));
  return reinterpret_cast<Words>(
      _mm256_shuffle_epi8(reinterpret_cast<__m256i>(from), _mm256_broadcastsi128_si256(choice)));
}
// The numbers of a group as bytes: what is done to a word is done to four numbers at once, and one instruction brings
// a number to where it is converted.
struct BytePlanes {
  Words even, odd;  // numbers 0, 2, 4, 6 and 1, 3, 5, 7
  template <int kPart, int kMinus>
  Reg number() const {
    constexpr uint32_t kByte = kPart / 2;
    const Words plane = kPart % 2 == 0 ? even : odd;
    Words one;
    if constexpr (kByte == 0)
      one = plane & 255u;
    else if constexpr (kByte == 3)
      one = plane >> 24;
    else
      one = chosen_bytes<0x80808000u + kByte>(plane);
    one -= static_cast<uint32_t>(kMinus);
    return reinterpret_cast<Reg>(__builtin_convertvector(reinterpret_cast<SignedWords>(one), Floats));
  }
};
inline BytePlanes nibble_planes(const uint8_t* words) {
  const Words w = words_at(words);
  return {w & 0x0f0f0f0fu, w >> 4 & 0x0f0f0f0fu};
}
// 16 where a byte has all bits of the mask's byte.
inline Words sixteen_where(Words bytes, uint32_t mask) {
  const __m256i m = _mm256_set1_epi32(static_cast<int>(mask));
  const __m256i found = _mm256_cmpeq_epi8(_mm256_and_si256(reinterpret_cast<__m256i>(bytes), m), m);
  return reinterpret_cast<Words>(found) & 0x10101010u;
}
// Nibbles with kBits above each: a word of `upper` has those of a column, the first number's lowest.
template <int kBits>
inline BytePlanes planes_with_bits(const uint8_t* words, Words upper) {
  BytePlanes p = nibble_planes(words);
  if constexpr (kBits == 1) {
    const Words bits = chosen_bytes<0x00000000u>(upper);
    p.even |= sixteen_where(bits, 0x40100401u);
    p.odd |= sixteen_where(bits, 0x80200802u);
  } else {
    const Words bits = chosen_bytes<0x01010000u>(upper);
    p.even |= (bits << 4 & 0x00300030u) | (bits & 0x30003000u);
    p.odd |= (bits << 2 & 0x00300030u) | (bits >> 2 & 0x30003000u);
  }
  return p;
}
// What each nibble stands for.
inline BytePlanes looked_up(const uint8_t* words, __m128i bytes) {
  const BytePlanes p = nibble_planes(words);
  const __m256i table = _mm256_broadcastsi128_si256(bytes);
  const auto each = [&](Words w) {
    return reinterpret_cast<Words>(_mm256_shuffle_epi8(table, reinterpret_cast<__m256i>(w)));
  };
  return {each(p.even), each(p.odd)};
}
// Numbers of 4 bits (E2M1) as bytes: twice the number, plus 12.
inline BytePlanes fp4_planes(const uint8_t* words) {
  return looked_up(words, _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}
// Numbers of iq4_nl and iq4_xs, plus 127.
inline BytePlanes iq4_planes(const uint8_t* words) {
  const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Numbers.data()));
  return looked_up(words, _mm_add_epi8(numbers, _mm_set1_epi8(127)));
}
#endif

#if defined(__AVX512BF16__)
// Numbers as bf16 by a table, the upper part of it behind the lower one. A permutation looks at the low 5 bits of a
// lane of 16, of two tables at the low 6: where numbers have fewer, the table repeats itself and nothing need be
// masked.
template <int kSize>
struct PairTable {
  uint16_t bits[kSize];
};
template <int kSize = 32, class Value>
constexpr PairTable<kSize> pair_table(const Value& value) {
  PairTable<kSize> table{};
  for (int i = 0; i < kSize; ++i)
    table.bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value(i))) >> 16);
  return table;
}
// Numbers kPair and kPair + 4 of the eight nibbles of each word.
template <int kPair>
inline __m512i pair_of(const uint8_t* words, const PairTable<32>& table) {
  return _mm512_permutexvar_epi16(_mm512_srli_epi16(_mm512_loadu_si512(words), 4 * kPair),
                                  _mm512_load_si512(table.bits));
}
// The same with kBits above each nibble: those of the first four numbers stand in the lower half of `upper`.
template <int kPair, int kBits>
inline __m512i pair_index(const uint8_t* words, __m512i upper) {
  constexpr int kBit = kPair * kBits;
  const __m512i nibble = _mm512_srli_epi16(_mm512_loadu_si512(words), 4 * kPair);
  const __m512i above = kBit >= 4 ? _mm512_srli_epi16(upper, kBit >= 4 ? kBit - 4 : 0)
                                  : _mm512_slli_epi16(upper, kBit < 4 ? 4 - kBit : 0);
  return _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), nibble, above, 0xca);  // the mask chooses
}
#endif

// A format says how many k a block has and how many blocks follow a head that they share; the bytes of each; number
// kPart of a group, and whether its bits lie in two places; and the factor and the minimum of a block. pair<kPair>()
// has the numbers kPair and kPair + 4 of a group as bf16, the first in the low half of a lane: what vdpbf16ps takes.
// Planes are what the numbers of a group have in common, where that saves instructions.
template <int64_t kColumnBytes, int64_t kFactors>
struct HalfFactors {
  static constexpr int64_t kBlockK = 32, kBlocks = 1, kHeadBytes = 0;
  static constexpr int64_t kBlockBytes = kPanelColumns * kColumnBytes, kFactorBytes = kPanelColumns * 2 * kFactors;
  static constexpr bool kMinimum = kFactors == 2;
  static Reg factor(const uint8_t*, const uint8_t* block, int column) {
    return reg_f16(reinterpret_cast<const uint16_t*>(block) + column);
  }
  static Reg minimum(const uint8_t*, const uint8_t* block, int column) {
    return reg_f16(reinterpret_cast<const uint16_t*>(block) + kPanelColumns + column);
  }
};
struct PackedQ8_0 : HalfFactors<34, 1> {
  static constexpr bool kTwoParts = false;
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
  static constexpr bool kTwoParts = false;
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_field<4 * kPart, 4, 1, kMinus>(words_at(group + 4 * column));
  }
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    alignas(64) static constexpr auto kTable = pair_table([](int i) { return static_cast<float>(i % 16 - kMinus); });
    return pair_of<kPair>(group + 4 * column, kTable);
  }
#endif
};
struct PackedQ4_0 : HalfFactors<18, 1>, PackedNibbles<8> {};
struct PackedQ4_1 : HalfFactors<20, 2>, PackedNibbles<0> {};
struct PackedMxfp4 {
  static constexpr int64_t kBlockK = 32, kBlocks = 1, kHeadBytes = 0;
  static constexpr int64_t kBlockBytes = kPanelColumns * 17, kFactorBytes = kPanelColumns;
  static constexpr bool kMinimum = false, kTwoParts = false;
  static Reg factor(const uint8_t*, const uint8_t* block, int column) { return reg_power(block + column); }
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_fp4<kPart>(group + 4 * column);
  }
#if defined(__AVX2__) && !defined(__AVX512F__)
  using Planes = BytePlanes;
  static BytePlanes planes(const uint8_t* group, int column) { return fp4_planes(group + 4 * column); }
  template <int kPart>
  static Reg number(const BytePlanes& p) {
    return reg_fma(p.number<kPart, 0>(), reg_splat(0.5f), reg_splat(-6.0f));
  }
#endif
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    static constexpr float kSizes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    alignas(64) static constexpr auto kTable =
        pair_table([](int i) { return i % 16 < 8 ? kSizes[i % 8] : -kSizes[i % 8]; });
    return pair_of<kPair>(group + 4 * column, kTable);
  }
#endif
};
struct PackedIq4 {
  static constexpr bool kTwoParts = false;
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_iq4<kPart>(group + 4 * column);
  }
#if defined(__AVX2__) && !defined(__AVX512F__)
  using Planes = BytePlanes;
  static BytePlanes planes(const uint8_t* group, int column) { return iq4_planes(group + 4 * column); }
  template <int kPart>
  static Reg number(const BytePlanes& p) {
    return p.number<kPart, 127>();
  }
#endif
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    alignas(64) static constexpr auto kTable =
        pair_table([](int i) { return kIq4Numbers[static_cast<size_t>(i % 16)]; });
    return pair_of<kPair>(group + 4 * column, kTable);
  }
#endif
};
struct PackedIq4Nl : HalfFactors<18, 1>, PackedIq4 {};

// K types: f16 factors and minima in the head, integers in the blocks behind it that multiply them exactly.
template <int64_t kOfBlock, int64_t kNumberBytes, int64_t kFactors>
struct IntegerFactors {
  static constexpr int64_t kBlockK = kOfBlock, kBlocks = 256 / kOfBlock, kHeadBytes = kPanelColumns * 2 * kFactors;
  static constexpr int64_t kFactorBytes = kPanelColumns * kFactors;
  static constexpr int64_t kBlockBytes = kFactorBytes + kPanelColumns * kNumberBytes;
  static constexpr bool kMinimum = kFactors == 2;
  static Reg factor(const uint8_t* head, const uint8_t* block, int column) {
    return reg_mul(reg_f16(reinterpret_cast<const uint16_t*>(head) + column), reg_i8(block + column));
  }
  static Reg minimum(const uint8_t* head, const uint8_t* block, int column) {
    return reg_mul(reg_f16(reinterpret_cast<const uint16_t*>(head) + kPanelColumns + column),
                   reg_i8(block + kPanelColumns + column));
  }
};
struct PackedQ4K : IntegerFactors<32, 16, 2>, PackedNibbles<0> {};
struct PackedIq4Xs : IntegerFactors<32, 16, 1>, PackedIq4 {};

// Numbers of 2 bits; the integers of factor and minimum share a byte.
struct PackedQ2K {
  static constexpr int64_t kBlockK = 16, kBlocks = 16, kHeadBytes = kPanelColumns * 4, kFactorBytes = kPanelColumns;
  static constexpr int64_t kBlockBytes = kFactorBytes + kPanelColumns * 4;
  static constexpr bool kMinimum = true, kTwoParts = false;
  static Reg factor(const uint8_t* head, const uint8_t* block, int column) {
    return reg_mul(reg_f16(reinterpret_cast<const uint16_t*>(head) + column),
                   reg_field<0, 4, 1, 0>(widened<1>(block + column)));
  }
  static Reg minimum(const uint8_t* head, const uint8_t* block, int column) {
    return reg_mul(reg_f16(reinterpret_cast<const uint16_t*>(head) + kPanelColumns + column),
                   reg_field<4, 4, 1, 0>(widened<1>(block + column)));
  }
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_field<2 * kPart, 2, 1, 0>(widened<2>(group + 2 * column));
  }
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    alignas(64) static constexpr auto kTable = pair_table([](int i) { return i % 4; });
    const auto wide = reinterpret_cast<__m512i>(widened<2>(group + 2 * column));
    const __m512i halves = _mm512_or_si512(wide, _mm512_slli_epi32(wide, 8));
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(halves, 2 * kPair), _mm512_load_si512(kTable.bits));
  }
#endif
};

// Numbers of 3 bits, less 4: the lower two bytes of a column's group, and the third behind those of all columns.
struct PackedThreeBits {
  static constexpr bool kTwoParts = true;
  static Words numbers(const uint8_t* group, int column) {
    return widened<2>(group + 2 * column) | widened<1>(group + 2 * kPanelColumns + column) << 16;
  }
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    return reg_field<3 * kPart, 3, 1, 4>(numbers(group, column));
  }
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    alignas(64) static constexpr auto kTable = pair_table([](int i) { return i % 8 - 4; });
    const auto all = reinterpret_cast<__m512i>(numbers(group, column));
    // Numbers 0 to 3 stay in the lower half, and 4 to 7 go into the upper one.
    const __m512i halves = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xffff), all, _mm512_slli_epi32(all, 4), 0xca);
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(halves, 3 * kPair), _mm512_load_si512(kTable.bits));
  }
#endif
};
struct PackedQ3K : IntegerFactors<16, 6, 1>, PackedThreeBits {};

// Numbers of kBits more than the nibbles of a group's words, which lie behind them.
template <int kBits, int kMinus>
struct PackedMoreBits {
  static constexpr bool kTwoParts = true;
  static const uint8_t* upper(const uint8_t* group, int column) { return group + 4 * kPanelColumns + kBits * column; }
  template <int kPart>
  static Reg number(const uint8_t* group, int column) {
    constexpr int kBit = kPart * kBits;
    const Words low = words_at(group + 4 * column), high = widened<kBits>(upper(group, column));
#if defined(__AVX512F__)
    const Reg nibble = reg_field<4 * kPart, 4, 1, 0>(low), rest = reg_field<kBit, kBits, 16, kMinus>(high);
    return _mm512_add_ps(nibble, rest);
#else
    constexpr uint32_t kMask = ((1u << kBits) - 1) << 4;
    const Words above = kBit >= 4 ? high >> (kBit >= 4 ? kBit - 4 : 0) : high << (kBit < 4 ? 4 - kBit : 0);
    return reg_field<0, 8, 1, kMinus>((low >> (4 * kPart) & 15u) | (above & kMask));
#endif
  }
#if defined(__AVX2__) && !defined(__AVX512F__)
  using Planes = BytePlanes;
  static BytePlanes planes(const uint8_t* group, int column) {
    return planes_with_bits<kBits>(group + 4 * column, widened<kBits>(upper(group, column)));
  }
  template <int kPart>
  static Reg number(const BytePlanes& p) {
    return p.number<kPart, kMinus>();
  }
#endif
#if defined(__AVX512BF16__)
  template <int kPair>
  static __m512i pair(const uint8_t* group, int column) {
    alignas(64) static constexpr auto kTable =
        pair_table<(16 << kBits)>([](int i) { return static_cast<float>(i - kMinus); });
    const auto wide = reinterpret_cast<__m512i>(widened<kBits>(upper(group, column)));
    const __m512i halves = _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16 - 4 * kBits));
    const __m512i index = pair_index<kPair, kBits>(group + 4 * column, halves);
    if constexpr (kBits == 1)
      return _mm512_permutexvar_epi16(index, _mm512_load_si512(kTable.bits));
    else
      return _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits), index, _mm512_load_si512(kTable.bits + 32));
  }
#endif
};
struct PackedQ5_0 : HalfFactors<22, 1>, PackedMoreBits<1, 16> {};
struct PackedQ5_1 : HalfFactors<24, 2>, PackedMoreBits<1, 0> {};
struct PackedQ5K : IntegerFactors<32, 20, 2>, PackedMoreBits<1, 0> {};
struct PackedQ6K : IntegerFactors<16, 12, 1>, PackedMoreBits<2, 32> {};

// The eight numbers of a group in a register of columns: each for itself, or from what they have in common, which loses
// the sign of a zero (no sum has ever begun with a negative one).
template <class P>
struct EachNumber {
  const uint8_t* group;
  int column;
  EachNumber(const uint8_t* of, int from) : group(of), column(from) {}
  template <int kPart>
  Reg at() const {
    return P::template number<kPart>(group, column);
  }
};
template <class P>
struct NumbersOfPlanes {
  typename P::Planes planes;
  NumbersOfPlanes(const uint8_t* group, int column) : planes(P::planes(group, column)) {}
  template <int kPart>
  Reg at() const {
    return P::template number<kPart>(planes);
  }
};
template <class P>
constexpr bool kHasPlanes = requires {
  typename P::Planes;
};
template <class P, bool kPlanes = kHasPlanes<P>>
struct NumbersFor {
  using Type = EachNumber<P>;
};
template <class P>
struct NumbersFor<P, true> {
  using Type = NumbersOfPlanes<P>;
};
template <class P>
using GroupNumbers = typename NumbersFor<P>::Type;

// Calls body(numbers) with those of NV registers of columns from `column` on.
template <class P, int NV, class Body>
inline __attribute__((always_inline)) void with_numbers(const uint8_t* group, int column, const Body& body) {
  [&]<size_t... kAt>(std::index_sequence<kAt...>) __attribute__((always_inline)) {
    const GroupNumbers<P> numbers[] = {{group, column + static_cast<int>(kAt) * kLanes}...};
    body(numbers);
  }
  (std::make_index_sequence<NV>());
}

// The blocks of a panel, one after the other from one of them on.
template <class P>
struct BlockWalk {
  static constexpr int64_t kAll = P::kHeadBytes + P::kBlocks * P::kBlockBytes;
  const uint8_t *head, *block;
  int64_t left;  // with this head
  BlockWalk(const uint8_t* panel, int64_t first)
      : head(panel + first / P::kBlocks * kAll),
        block(head + P::kHeadBytes + first % P::kBlocks * P::kBlockBytes),
        left(P::kBlocks - first % P::kBlocks) {}
  void step() {
    block += P::kBlockBytes;
    if constexpr (P::kBlocks == 1) {
      head = block;
    } else if (--left == 0) {
      head = block;
      block += P::kHeadBytes;
      left = P::kBlocks;
    }
  }
  static constexpr int64_t bytes(int64_t k) { return k / (P::kBlocks * P::kBlockK) * kAll; }
};

// A number as the weight that it stands for.
template <class P>
inline Reg packed_weight(Reg number, Reg d, Reg m) {
  return P::kMinimum ? reg_fma(d, number, m) : reg_mul(d, number);
}

template <class P>
constexpr int64_t kGroupBytes = (P::kBlockBytes - P::kFactorBytes) * kGroupK / P::kBlockK;

// What a tile fetches into the first-level cache on the way: `stride` bytes with each group.
struct PackedAhead {
  const char* next = nullptr;
  int64_t stride = 0;
};

// What the passes over some blocks fetch: an equal part each, one after the other; further passes fetch nothing.
struct SharedAhead {
  const char* next;
  int64_t bytes, passes;  // left
  PackedAhead part(int64_t groups) {
    if (passes == 0) return {};
    const int64_t mine = bytes / passes;
    const PackedAhead ahead{next, (mine + groups - 1) / groups};
    next += mine;
    bytes -= mine;
    --passes;
    return ahead;
  }
};

// Calls body(g, group) for the groups of a block, and fetches with each what `ahead` says.
template <class P, class Body>
inline __attribute__((always_inline)) void each_group(const uint8_t* block, PackedAhead& ahead, const Body& body) {
  constexpr int64_t kGroups = P::kBlockK / kGroupK;
  const uint8_t* group = block + P::kFactorBytes;
#pragma GCC unroll 1
  for (int64_t g = 0; g < kGroups; ++g, group += kGroupBytes<P>) {
    for (int64_t line = 0; line < ahead.stride; line += 64) fetch_first_level(ahead.next + line);
    ahead.next += ahead.stride;
    body(g, group);
  }
}

// The blocks of a panel that all passes go through before the next ones: those that stay in the first-level cache, or
// all where one pass is as wide as the panel or may be; then the first pass fetches for all. Calls body(first block,
// blocks, what to fetch).
template <class P, class Body>
inline void each_part_of_panel(const uint8_t* panel, int64_t blocks, int64_t passes, const Body& body) {
  constexpr int64_t kAtOnce = 256 / P::kBlockK;
  const bool whole = passes == 1 || kLanes == 16;
  const int64_t at_once = whole ? blocks : kAtOnce;
  for (int64_t b = 0; b < blocks; b += at_once) {
    const int64_t n = std::min(at_once, blocks - b), bytes = n * P::kBlockBytes;
    const char* begin = reinterpret_cast<const char*>(BlockWalk<P>(panel, b).block);
    body(b, n, SharedAhead{begin + (whole ? kPackedAhead : bytes), bytes, whole ? 1 : passes});
  }
}

// The factors of a block for columns [column, column + NV * kLanes) of a panel.
template <class P, int NV>
struct Factors {
  Reg d[NV], m[NV];
  Factors(const BlockWalk<P>& at, int column) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      d[j] = P::factor(at.head, at.block, column + j * kLanes);
      if constexpr (P::kMinimum)
        m[j] = P::minimum(at.head, at.block, column + j * kLanes);
      else
        m[j] = d[j];
    }
  }
};

template <class P, int kPart = 0, class Numbers>
inline __attribute__((always_inline)) void widen_group(const Numbers& numbers, Reg d, Reg m, float* out) {
  reg_store(out + kPart * kStripColumns, packed_weight<P>(numbers.template at<kPart>(), d, m));
  if constexpr (kPart + 1 < kGroupK) widen_group<P, kPart + 1>(numbers, d, m, out);
}

// `width` columns of one block as a strip. Inlined by force: at -O3 GCC 12 takes it for a function without effects
// (ipa-modref and ipa-pure-const each do so alone) and drops the calls.
template <class P, class Numbers = GroupNumbers<P>>
inline __attribute__((always_inline)) void widen_block(const BlockWalk<P>& at, int column, int width, float* out) {
  for (int j = 0; j < width; j += kLanes) {
    const Factors<P, 1> f(at, column + j);
    for (int64_t g = 0; g < P::kBlockK / kGroupK; ++g)
      widen_group<P>(Numbers{at.block + P::kFactorBytes + g * kGroupBytes<P>, column + j}, f.d[0], f.m[0],
                     out + g * kGroupK * kStripColumns + j);
  }
}

// Calls body(P{}) with the format's type.
template <class Body>
void with_format(BlockFormat format, const Body& body) {
  switch (format) {
    case BlockFormat::Q8_0: return body(PackedQ8_0{});
    case BlockFormat::Q4_0: return body(PackedQ4_0{});
    case BlockFormat::Q4_1: return body(PackedQ4_1{});
    case BlockFormat::Mxfp4: return body(PackedMxfp4{});
    case BlockFormat::Q5_0: return body(PackedQ5_0{});
    case BlockFormat::Q5_1: return body(PackedQ5_1{});
    case BlockFormat::Q2_K: return body(PackedQ2K{});
    case BlockFormat::Q3_K: return body(PackedQ3K{});
    case BlockFormat::Q4_K: return body(PackedQ4K{});
    case BlockFormat::Q5_K: return body(PackedQ5K{});
    case BlockFormat::Q6_K: return body(PackedQ6K{});
    case BlockFormat::IQ4_NL: return body(PackedIq4Nl{});
    case BlockFormat::IQ4_XS: return body(PackedIq4Xs{});
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
