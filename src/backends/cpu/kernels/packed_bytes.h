// The numbers of weights in GGUF blocks as bytes, four of a column to a word, and the products of such words with four
// bytes of a row: what linears of int8 inputs are made of (byte_sums.h). Every sum here is an exact integer, so the
// instructions of a set are its own matter. Internal linkage, as packed_formats.h.
#pragma once

#include "backends/cpu/kernels/packed_formats.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Numbers 0, 2, 4, 6 and 1, 3, 5, 7 of a group, of a register of columns.
struct ByteWords {
  Words even, odd;
};

// How a format's numbers stand in bytes: without a sign and `offset` more than they are, or with one.
struct ByteForm {
  int offset, largest;
  bool is_signed;
};
constexpr ByteForm with_offset(int offset, int largest) { return {offset, largest, false}; }
// Numbers of 8 bits. AVX-512 multiplies bytes without a sign by bytes with one; the others want the same of both, or
// have an instruction that saturates.
#if defined(__AVX512VNNI__)
constexpr ByteForm wide_bytes(int offset) { return {offset, 255, false}; }
#else
constexpr ByteForm wide_bytes(int) { return {0, 127, true}; }
#endif

// Bytes of each word by a table of 16: the low four bits of every byte choose.
inline Words bytes_of_table(Words index, const uint8_t* table) {
#if defined(__AVX512F__)
  const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<Words>(_mm512_shuffle_epi8(all, reinterpret_cast<__m512i>(index)));
#elif defined(__AVX2__)
  const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<Words>(_mm256_shuffle_epi8(all, reinterpret_cast<__m256i>(index)));
#elif defined(__aarch64__)
  return reinterpret_cast<Words>(vqtbl1q_u8(vld1q_u8(table), reinterpret_cast<uint8x16_t>(index)));
#else
  uint8_t bytes[sizeof(Words)];
  std::memcpy(bytes, &index, sizeof bytes);
  for (uint8_t& b : bytes) b = table[b];
  Words found;
  std::memcpy(&found, bytes, sizeof found);
  return found;
#endif
}
struct ByteTable {
  alignas(16) uint8_t of[16] = {};
};
// Twice the number of 4 bits (E2M1), and 12.
constexpr ByteTable kFp4Bytes{{12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}};
constexpr ByteForm kIq4Form = wide_bytes(127);
constexpr ByteTable iq4_bytes() {
  ByteTable table;
  for (size_t i = 0; i < 16; ++i) table.of[i] = static_cast<uint8_t>(kIq4Numbers[i] + kIq4Form.offset);
  return table;
}
constexpr ByteTable kIq4Bytes = iq4_bytes();

// Where the bytes of a group are, of the columns from one of them on: the lower bits, and the upper ones of formats
// that have them apart. Columns are added as constants: GCC 12 keeps every sum with a variable in a register of its
// own.
struct BytePlaces {
  const uint8_t *low, *high;
  void step(int64_t bytes) {
    low += bytes;
    high += bytes;
  }
  // Hides where they come from.
  void fix() {
    asm("" : "+r"(low));
    asm("" : "+r"(high));
  }
};

inline ByteWords nibble_words(const uint8_t* words) {
  const Words w = words_at(words);
  return {w & 0x0f0f0f0fu, w >> 4 & 0x0f0f0f0fu};
}

// One bit of eight: the even ones, 16 in the byte of each. No carry of the product reaches a bit that is kept.
inline Words spread_bits(Words bits) { return (bits & 0x55u) * 0x00410410u & 0x10101010u; }
// Fields of two bits of sixteen: the even ones in bits 0 and 1 of their half, the odd ones behind them.
inline Words spread_halves(Words bits) { return (bits | bits << 8) & 0x00ff00ffu; }

// Each format says how its bytes stand (form), where they are (places), and the words of `column` columns further on.
template <int kMinus>
constexpr ByteForm byte_form(const PackedNibbles<kMinus>*) {
  return with_offset(kMinus, 15);
}
template <int kMinus>
inline BytePlaces byte_places(const PackedNibbles<kMinus>*, const uint8_t* group, int64_t column) {
  return {group + 4 * column, group};
}
template <int kMinus>
inline ByteWords byte_words(const PackedNibbles<kMinus>*, const BytePlaces& at, int column) {
  return nibble_words(at.low + 4 * column);
}

template <int kBits, int kMinus>
constexpr ByteForm byte_form(const PackedMoreBits<kBits, kMinus>*) {
  return with_offset(kMinus, (16 << kBits) - 1);
}
template <int kBits, int kMinus>
inline BytePlaces byte_places(const PackedMoreBits<kBits, kMinus>*, const uint8_t* group, int64_t column) {
  return {group + 4 * column, group + 4 * kPanelColumns + kBits * column};
}
template <int kBits, int kMinus>
inline ByteWords byte_words(const PackedMoreBits<kBits, kMinus>*, const BytePlaces& at, int column) {
  ByteWords w = nibble_words(at.low + 4 * column);
  const Words upper = widened<kBits>(at.high + kBits * column);
  if constexpr (kBits == 1) {
    w.even |= spread_bits(upper);
    w.odd |= spread_bits(upper >> 1);
  } else {
    const Words all = spread_halves(upper);
    w.even |= (all << 4 & 0x00300030u) | (all << 8 & 0x30003000u);
    w.odd |= (all << 2 & 0x00300030u) | (all << 6 & 0x30003000u);
  }
  return w;
}

constexpr ByteForm byte_form(const PackedQ2K*) { return with_offset(0, 3); }
inline BytePlaces byte_places(const PackedQ2K*, const uint8_t* group, int64_t column) {
  return {group + 2 * column, group};
}
inline ByteWords byte_words(const PackedQ2K*, const BytePlaces& at, int column) {
  const Words all = spread_halves(widened<2>(at.low + 2 * column));
  return {(all & 0x00030003u) | (all << 4 & 0x03000300u), (all >> 2 & 0x00030003u) | (all << 2 & 0x03000300u)};
}

constexpr ByteForm byte_form(const PackedThreeBits*) { return with_offset(4, 7); }
inline BytePlaces byte_places(const PackedThreeBits*, const uint8_t* group, int64_t column) {
  return {group + 2 * column, group + 2 * kPanelColumns + column};
}
inline ByteWords byte_words(const PackedThreeBits*, const BytePlaces& at, int column) {
  const auto evens = [](Words w) {
    return (w & 0x7u) | (w << 2 & 0x700u) | (w << 4 & 0x70000u) | (w << 6 & 0x7000000u);
  };
  const Words all = widened<2>(at.low + 2 * column) | widened<1>(at.high + column) << 16;
  return {evens(all), evens(all >> 3)};
}

inline BytePlaces word_places(const uint8_t* group, int64_t column) { return {group + 4 * column, group}; }
constexpr ByteForm byte_form(const PackedIq4*) { return kIq4Form; }
inline BytePlaces byte_places(const PackedIq4*, const uint8_t* group, int64_t column) {
  return word_places(group, column);
}
inline ByteWords byte_words(const PackedIq4*, const BytePlaces& at, int column) {
  const ByteWords w = nibble_words(at.low + 4 * column);
  return {bytes_of_table(w.even, kIq4Bytes.of), bytes_of_table(w.odd, kIq4Bytes.of)};
}
constexpr ByteForm byte_form(const PackedMxfp4*) { return with_offset(12, 24); }
inline BytePlaces byte_places(const PackedMxfp4*, const uint8_t* group, int64_t column) {
  return word_places(group, column);
}
inline ByteWords byte_words(const PackedMxfp4*, const BytePlaces& at, int column) {
  const ByteWords w = nibble_words(at.low + 4 * column);
  return {bytes_of_table(w.even, kFp4Bytes.of), bytes_of_table(w.odd, kFp4Bytes.of)};
}

constexpr ByteForm byte_form(const PackedQ8_0*) { return wide_bytes(128); }
inline BytePlaces byte_places(const PackedQ8_0*, const uint8_t* group, int64_t column) {
  return {group + column, group};
}
#if defined(__AVX512VBMI__)
// Sixteen bytes of four rows each, a lane of the register a row, become neighbours.
struct ByteOrder {
  alignas(64) uint8_t of[64] = {};
  constexpr ByteOrder() {
    for (int i = 0; i < 64; ++i) of[i] = static_cast<uint8_t>(i % 4 * 16 + i / 4);
  }
};
constexpr ByteOrder kByteOrder;
inline Words interleaved_rows(const uint8_t* first, int64_t apart) {
  const auto row = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + i * apart)); };
  __m512i all = _mm512_inserti32x4(_mm512_castsi128_si512(row(0)), row(1), 1);
  all = _mm512_inserti32x4(_mm512_inserti32x4(all, row(2), 2), row(3), 3);
  return reinterpret_cast<Words>(_mm512_permutexvar_epi8(_mm512_load_si512(kByteOrder.of), all));
}
#else
inline Words interleaved_rows(const uint8_t* first, int64_t apart) {
  const auto row = [&](int i) { return widened<1>(first + i * apart); };
  return row(0) | row(1) << 8 | row(2) << 16 | row(3) << 24;
}
#endif
inline ByteWords byte_words(const PackedQ8_0*, const BytePlaces& at, int column) {
  const auto word = [&](int first) {
    const Words w = interleaved_rows(at.low + column + first * kPanelColumns, 2 * kPanelColumns);
    return byte_form(static_cast<const PackedQ8_0*>(nullptr)).is_signed ? w : w ^ 0x80808080u;
  };
  return {word(0), word(1)};
}

template <class P>
constexpr ByteForm kByteForm = byte_form(static_cast<const P*>(nullptr));
template <class P>
inline BytePlaces byte_places_of(const BlockWalk<P>& at, int64_t column) {
  return byte_places(static_cast<const P*>(nullptr), at.block + P::kFactorBytes, column);
}
template <class P>
inline __attribute__((always_inline)) ByteWords byte_words_of(const BytePlaces& at, int column) {
  return byte_words(static_cast<const P*>(nullptr), at, column);
}

// Factors of a block as the bytes want them: those of mxfp4 are twice the number.
template <class P, int NV>
struct ByteFactors : Factors<P, NV> {
  ByteFactors(const BlockWalk<P>& at, int column) : Factors<P, NV>(at, column) {
    if constexpr (std::is_same_v<P, PackedMxfp4>)
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) this->d[j] = reg_mul(this->d[j], reg_splat(0.5f));
  }
};

// How many products of words a sum of 16 bits may take before it is widened; 0: products go into 32 bits at once.
template <class P>
constexpr int narrow_products() {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  if (kByteForm<P>.is_signed) return 0;
  const int most = 32767 / (2 * 127 * kByteForm<P>.largest);
  return most >= 8 ? 8 : most >= 4 ? 4 : 2;
#else
  return 0;
#endif
}

// sum + the products of the four bytes of w, with a sign or not, and of x, with one and never -128.
template <bool kSigned>
inline __attribute__((always_inline)) void add_bytes(Words& sum, Words w, Words x) {
#if defined(__AVX512VNNI__)
  // Assembly, because GCC 12 keeps accumulators of the intrinsic in memory.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
#elif defined(__AVX2__)
  // Only the bytes with a sign come here: their magnitudes, and x with their signs.
  const auto a = reinterpret_cast<__m256i>(w), b = reinterpret_cast<__m256i>(x);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
  sum += reinterpret_cast<Words>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#elif defined(__x86_64__)
  const auto a = reinterpret_cast<__m128i>(w), b = reinterpret_cast<__m128i>(x);
  const auto even = [](__m128i v) { return _mm_srai_epi16(_mm_slli_epi16(v, 8), 8); };
  const auto odd = [](__m128i v) { return _mm_srai_epi16(v, 8); };
  const __m128i low = kSigned ? even(a) : _mm_and_si128(a, _mm_set1_epi16(255));
  const __m128i high = kSigned ? odd(a) : _mm_srli_epi16(a, 8);
  sum += reinterpret_cast<Words>(_mm_add_epi32(_mm_madd_epi16(low, even(b)), _mm_madd_epi16(high, odd(b))));
#elif defined(__aarch64__)
  const auto a = reinterpret_cast<int8x16_t>(w), b = reinterpret_cast<int8x16_t>(x);
#if defined(__ARM_FEATURE_DOTPROD)
  sum = reinterpret_cast<Words>(vdotq_s32(reinterpret_cast<int32x4_t>(sum), a, b));
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
  sum += reinterpret_cast<Words>(vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(a, b))));
#endif
#endif
}

// The same in sums of 16 bits, and these widened on top of others.
inline __attribute__((always_inline)) void add_narrow(Words& sum, Words w, Words x) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  const __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(w), reinterpret_cast<__m256i>(x));
  sum = reinterpret_cast<Words>(_mm256_add_epi16(reinterpret_cast<__m256i>(sum), pairs));
#else
  static_cast<void>(sum), static_cast<void>(w), static_cast<void>(x);
#endif
}
inline __attribute__((always_inline)) void add_widened(Words& sum, Words narrow) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  sum += reinterpret_cast<Words>(_mm256_madd_epi16(reinterpret_cast<__m256i>(narrow), _mm256_set1_epi16(1)));
#else
  static_cast<void>(sum), static_cast<void>(narrow);
#endif
}

inline Words words_splat(uint32_t x) { return x - Words{}; }

// The same for tiles of many rows, in assembly that stays in order: GCC 12 makes all products of a block before it adds
// the first one, and keeps them in memory.
inline __attribute__((always_inline)) Words words_in_order(const uint32_t& x) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  Words w;
  asm volatile("vpbroadcastd %1, %0" : "=x"(w) : "m"(x));
  return w;
#else
  return words_splat(x);
#endif
}
inline __attribute__((always_inline)) void add_narrow_in_order(Words& sum, Words w, Words x) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  Words pairs;
  asm volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(pairs) : "x"(w), "x"(x));
#else
  add_narrow(sum, w, x);
#endif
}
inline Reg reg_of_integers(Words w) {
  return reinterpret_cast<Reg>(__builtin_convertvector(reinterpret_cast<SignedWords>(w), Floats));
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
