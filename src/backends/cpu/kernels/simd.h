// Vectors for kernel sources that are compiled once per instruction set.
//
// F32x16 is sixteen floats on every set (one zmm, two ymm, four xmm or four q registers): code and reduction order are
// the same everywhere; only FMA differs on `baseline` of x86-64, which has none. Include this in kernels/*.cpp only;
// REPRISE_ISA names the namespace and is set by CMake.
//
// With AVX2 it is a class of two registers. A vector type of the compiler that is wider than a register goes through
// memory at every function that takes its halves apart (GCC 12), which is slower by a factor of two to ten.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#error "no vector instructions are known for this processor"
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half.h"

#ifndef REPRISE_ISA
#error "kernel sources are compiled per instruction set: see src/backends/CMakeLists.txt"
#endif

namespace reprise::cpu::REPRISE_ISA {

#if defined(__AVX2__) && !defined(__AVX512F__)
#define REPRISE_TWO_REGISTERS
typedef float F32x8 __attribute__((vector_size(32)));
typedef int32_t I32x8 __attribute__((vector_size(32)));
typedef uint32_t U32x8 __attribute__((vector_size(32)));
typedef uint16_t U16Half __attribute__((vector_size(16)));

// Sixteen lanes in two registers, with the operators of a vector. A plain value.
template <typename Register>
struct TwoRegisters {
  using Lane = std::remove_cvref_t<decltype(Register{}[0])>;

  Lane operator[](int64_t i) const {
    Lane lanes[16];
    std::memcpy(lanes, this, sizeof lanes);
    return lanes[i];
  }
  Lane& operator[](int64_t i) { return reinterpret_cast<Lane*>(this)[i]; }

#define REPRISE_OPERATOR(op)                                                                                     \
  friend TwoRegisters operator op(TwoRegisters a, TwoRegisters b) { return {a.low op b.low, a.high op b.high}; } \
  friend TwoRegisters operator op(TwoRegisters a, Lane b) { return {a.low op b, a.high op b}; }                  \
  TwoRegisters& operator op##=(TwoRegisters b) { return *this = *this op b; }                                    \
  TwoRegisters& operator op##=(Lane b) { return *this = *this op b; }
  REPRISE_OPERATOR(+)
  REPRISE_OPERATOR(-)
  REPRISE_OPERATOR(*)
  REPRISE_OPERATOR(/)
  REPRISE_OPERATOR(&)
  REPRISE_OPERATOR(|)
  REPRISE_OPERATOR(^)
#undef REPRISE_OPERATOR
  friend TwoRegisters operator<<(TwoRegisters a, int bits) { return {a.low << bits, a.high << bits}; }
  friend TwoRegisters operator>>(TwoRegisters a, int bits) { return {a.low >> bits, a.high >> bits}; }
  TwoRegisters operator-() const { return {-low, -high}; }
  TwoRegisters operator~() const { return {~low, ~high}; }

  Register low, high;
};
using F32x16 = TwoRegisters<F32x8>;
using I32x16 = TwoRegisters<I32x8>;
using U32x16 = TwoRegisters<U32x8>;
using U16x16 = TwoRegisters<U16Half>;

// f of the low registers, and of the high ones.
template <typename To, typename F, typename... From>
inline To each_register(const F& f, const From&... from) {
  using Register = decltype(To::low);
  return {reinterpret_cast<Register>(f(from.low...)), reinterpret_cast<Register>(f(from.high...))};
}
#else
typedef float F32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t I32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t U32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t U16x16 __attribute__((vector_size(32), aligned(2), may_alias));
#endif

// The same bits as lanes of another type of that size.
template <typename To, typename From>
inline To bits_as(From v) {
#if defined(REPRISE_TWO_REGISTERS)
  return each_register<To>([](auto part) { return part; }, v);
#else
  return reinterpret_cast<To>(v);
#endif
}

// Fetches a cache line that will be read. Always inline: GCC 12 takes a function that only fetches for one without
// effects, and drops its calls where they stand in a lambda.
inline __attribute__((always_inline)) void fetch_first_level(const void* p) { __builtin_prefetch(p, 0, 3); }
inline __attribute__((always_inline)) void fetch_second_level(const void* p) { __builtin_prefetch(p, 0, 2); }

inline F32x16 splat(float x) { return F32x16{} + x; }
inline F32x16 zero() { return F32x16{}; }

// Lanes from anywhere in memory, and to it.
template <typename Vector>
inline Vector load_lanes(const void* p) {
#if defined(REPRISE_TWO_REGISTERS)
  // Register by register: GCC copies 64 bytes in parts of 16 through the stack.
  using Register = decltype(Vector::low);
  if constexpr (sizeof(Register) == 32) {
    const auto* at = static_cast<const __m256i*>(p);
    return {reinterpret_cast<Register>(_mm256_loadu_si256(at)), reinterpret_cast<Register>(_mm256_loadu_si256(at + 1))};
  } else {
    const auto* at = static_cast<const __m128i*>(p);
    return {reinterpret_cast<Register>(_mm_loadu_si128(at)), reinterpret_cast<Register>(_mm_loadu_si128(at + 1))};
  }
#else
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
#endif
}
template <typename Vector>
inline void store_lanes(void* p, Vector v) {
#if defined(REPRISE_TWO_REGISTERS)
  if constexpr (sizeof v == 64) {
    auto* at = static_cast<__m256i*>(p);
    _mm256_storeu_si256(at, reinterpret_cast<__m256i>(v.low));
    _mm256_storeu_si256(at + 1, reinterpret_cast<__m256i>(v.high));
  } else {
    auto* at = static_cast<__m128i*>(p);
    _mm_storeu_si128(at, reinterpret_cast<__m128i>(v.low));
    _mm_storeu_si128(at + 1, reinterpret_cast<__m128i>(v.high));
  }
#else
  std::memcpy(p, &v, sizeof v);
#endif
}

inline F32x16 load(const float* p) { return load_lanes<F32x16>(p); }
inline void store(float* p, F32x16 v) { store_lanes(p, v); }

#if defined(__aarch64__)
// f of each of the four registers of sixteen lanes. What a wider vector has no instruction for (comparisons,
// selections, shuffles, other widths) GCC 12 takes lane by lane.
template <typename To, typename Part, typename F, typename... From>
inline To by_register(const F& f, const From&... from) {
  To out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto part = [i](const auto& whole) {
      Part p;
      std::memcpy(&p, reinterpret_cast<const char*>(&whole) + sizeof p * static_cast<size_t>(i), sizeof p);
      return p;
    };
    const auto result = f(part(from)...);
    static_assert(4 * sizeof result == sizeof out);
    std::memcpy(reinterpret_cast<char*>(&out) + sizeof result * static_cast<size_t>(i), &result, sizeof result);
  }
  return out;
}
#endif

// Lane by lane: all ones where it is so, else zeros. A NaN is never greater, nor is anything greater than it.
inline I32x16 greater(F32x16 a, F32x16 b) {
#if defined(__aarch64__)
  return by_register<I32x16, float32x4_t>([](auto x, auto y) { return vcgtq_f32(x, y); }, a, b);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<I32x16>([](auto x, auto y) { return x > y; }, a, b);
#else
  return a > b;
#endif
}
inline I32x16 is_number(F32x16 v) {
#if defined(__aarch64__)
  return by_register<I32x16, float32x4_t>([](auto x) { return vceqq_f32(x, x); }, v);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<I32x16>([](auto x) { return x == x; }, v);
#else
  return v == v;
#endif
}
inline I32x16 below(U32x16 a, U32x16 b) {
#if defined(__aarch64__)
  return by_register<I32x16, uint32x4_t>([](auto x, auto y) { return vcltq_u32(x, y); }, a, b);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<I32x16>([](auto x, auto y) { return x < y; }, a, b);
#else
  return reinterpret_cast<I32x16>(a < b);
#endif
}

// mask ? a : b, where mask is all ones or all zeros per lane.
inline I32x16 select(I32x16 mask, I32x16 a, I32x16 b) {
#if defined(__aarch64__)
  return (mask & a) | (~mask & b);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<I32x16>([](auto m, auto x, auto y) { return m ? x : y; }, mask, a, b);
#else
  return mask ? a : b;
#endif
}
inline F32x16 select(I32x16 mask, F32x16 a, F32x16 b) {
#if defined(__aarch64__)
  return bits_as<F32x16>(select(mask, bits_as<I32x16>(a), bits_as<I32x16>(b)));
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>([](auto m, auto x, auto y) { return m ? x : y; }, mask, a, b);
#else
  return mask ? a : b;
#endif
}

// Towards zero.
inline I32x16 to_int(F32x16 v) {
#if defined(__aarch64__)
  return by_register<I32x16, float32x4_t>([](auto x) { return vcvtq_s32_f32(x); }, v);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<I32x16>([](auto x) { return __builtin_convertvector(x, I32x8); }, v);
#else
  return __builtin_convertvector(v, I32x16);
#endif
}
inline F32x16 to_float(I32x16 v) {
#if defined(__aarch64__)
  return by_register<F32x16, int32x4_t>([](auto x) { return vcvtq_f32_s32(x); }, v);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>([](auto x) { return __builtin_convertvector(x, F32x8); }, v);
#else
  return __builtin_convertvector(v, F32x16);
#endif
}

// The lanes of each pair swapped.
inline F32x16 swap_pairs(F32x16 v) {
#if defined(__aarch64__)
  return by_register<F32x16, float32x4_t>([](auto x) { return vrev64q_f32(x); }, v);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>([](auto x) { return _mm256_permute_ps(x, 0xb1); }, v);
#else
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#endif
}

// Lanes 0 to 7 of both by turns, or lanes 8 to 15.
inline F32x16 interleave_low(F32x16 a, F32x16 b) {
#if defined(REPRISE_TWO_REGISTERS)
  return {__builtin_shufflevector(a.low, b.low, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(a.low, b.low, 4, 12, 5, 13, 6, 14, 7, 15)};
#else
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#endif
}
inline F32x16 interleave_high(F32x16 a, F32x16 b) {
#if defined(REPRISE_TWO_REGISTERS)
  return {__builtin_shufflevector(a.high, b.high, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(a.high, b.high, 4, 12, 5, 13, 6, 14, 7, 15)};
#else
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#endif
}
// Every second lane of a, then of b.
inline F32x16 even_lanes(F32x16 a, F32x16 b) {
#if defined(REPRISE_TWO_REGISTERS)
  return {__builtin_shufflevector(a.low, a.high, 0, 2, 4, 6, 8, 10, 12, 14),
          __builtin_shufflevector(b.low, b.high, 0, 2, 4, 6, 8, 10, 12, 14)};
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#endif
}
inline F32x16 odd_lanes(F32x16 a, F32x16 b) {
#if defined(REPRISE_TWO_REGISTERS)
  return {__builtin_shufflevector(a.low, a.high, 1, 3, 5, 7, 9, 11, 13, 15),
          __builtin_shufflevector(b.low, b.high, 1, 3, 5, 7, 9, 11, 13, 15)};
#else
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#endif
}

// 0, 1, ..., 15.
inline I32x16 lane_numbers() {
  constexpr int32_t kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load_lanes<I32x16>(kNumbers);
}

// Whether a product and a sum can have one rounding; without, fma() has two.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kFma = true;
#else
constexpr bool kFma = false;
#endif

inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>([](auto x, auto y, auto z) { return _mm256_fmadd_ps(x, y, z); }, a, b, c);
#elif defined(__aarch64__)
  return by_register<F32x16, float32x4_t>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
#else
  return a * b + c;
#endif
}

// Sixteen 16-bit floats become floats and go back. Narrowing rounds to nearest even, as base/half.h does.
inline U16x16 load_16bit(const uint16_t* p) { return load_lanes<U16x16>(p); }
inline void store_16bit(uint16_t* p, U16x16 v) { store_lanes(p, v); }

inline F32x16 widen_bf16(U16x16 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(v)), 16));
#elif defined(__aarch64__)
  return by_register<F32x16, uint16x4_t>([](auto x) { return vshll_n_u16(x, 16); }, v);
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>(
      [](auto x) { return _mm256_slli_epi32(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(x)), 16); }, v);
#else
  return reinterpret_cast<F32x16>(__builtin_convertvector(v, U32x16) << 16);
#endif
}

// The bf16 in the low half of each lane, in steps that every set has.
inline U32x16 bf16_bits(F32x16 v) {
  const U32x16 u = bits_as<U32x16>(v);
  const U32x16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U32x16 nan = (u >> 16) | 0x40u;
#if defined(REPRISE_TWO_REGISTERS)
  return bits_as<U32x16>(select(is_number(v), bits_as<I32x16>(rounded), bits_as<I32x16>(nan)));
#else
  const U32x16 is_nan = bits_as<U32x16>(below(U32x16{} + 0x7f800000u, u & 0x7fffffffu));
  return (is_nan & nan) | (~is_nan & rounded);
#endif
}

#if defined(__AVX512BF16__)
// What the conversion instructions would flush to zero.
inline __mmask16 subnormals(F32x16 v) { return _mm512_fpclass_ps_mask(reinterpret_cast<__m512>(v), 0x20); }
#endif

inline U16x16 narrow_bf16(F32x16 v) {
#if defined(__AVX512BF16__)
  if (__builtin_expect(subnormals(v) != 0, 0))
    return reinterpret_cast<U16x16>(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bf16_bits(v))));
  return reinterpret_cast<U16x16>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
#elif defined(__aarch64__)
  return by_register<U16x16, uint32x4_t>([](auto x) { return vmovn_u32(x); }, bf16_bits(v));
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<U16x16>(
      [](auto x) {
        const auto words = reinterpret_cast<__m256i>(x);
        return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
      },
      bf16_bits(v));
#else
  return __builtin_convertvector(bf16_bits(v), U16x16);
#endif
}

// narrow_bf16, widened again.
inline F32x16 round_bf16(F32x16 v) {
#if defined(__AVX512BF16__)
  return widen_bf16(narrow_bf16(v));
#else
  return bits_as<F32x16>(bf16_bits(v) << 16);
#endif
}

// Thirty-two values at once cost half as many instructions as sixteen twice.
inline void store_two_bf16(uint16_t* p, F32x16 a, F32x16 b) {
#if defined(__AVX512BF16__)
  if (__builtin_expect(_kortestz_mask16_u8(subnormals(a), subnormals(b)), 1)) {
    const __m512bh both = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(a));
    std::memcpy(p, &both, 64);
    return;
  }
#endif
  store_16bit(p, narrow_bf16(a));
  store_16bit(p + 16, narrow_bf16(b));
}

inline F32x16 widen_f16(U16x16 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(v)));
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>([](auto x) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(x)); }, v);
#elif defined(__aarch64__)
  return by_register<F32x16, float16x4_t>([](auto x) { return vcvt_f32_f16(x); }, v);
#else
  F32x16 w;
  for (int i = 0; i < 16; ++i) w[i] = half_to_float(v[i]);
  return w;
#endif
}

inline U16x16 narrow_f16(F32x16 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<U16x16>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<U16x16>([](auto x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }, v);
#elif defined(__aarch64__)
  return by_register<U16x16, float32x4_t>([](auto x) { return vcvt_f16_f32(x); }, v);
#else
  U16x16 h;
  for (int i = 0; i < 16; ++i) h[i] = float_to_half(v[i]);
  return h;
#endif
}

typedef float F32x8 __attribute__((vector_size(32)));
typedef float F32x4 __attribute__((vector_size(16)));

// One value of sixteen by `f` in one fixed tree: lanes i and i + 8, then i and i + 4, +2, +1. It stays in registers,
// because rows are short and every one of them waits for this.
template <typename F>
inline float reduce_tree(F32x16 v, F f) {
#if defined(__aarch64__)
  F32x4 part[4];
  std::memcpy(part, &v, 64);
  const F32x4 b = f(f(part[0], part[2]), f(part[1], part[3]));
#else
#if defined(REPRISE_TWO_REGISTERS)
  const F32x8 a = f(v.low, v.high);
#else
  const F32x8 a = f(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
#endif
  const F32x4 b = f(__builtin_shufflevector(a, a, 0, 1, 2, 3), __builtin_shufflevector(a, a, 4, 5, 6, 7));
#endif
  const F32x4 c = f(b, __builtin_shufflevector(b, b, 2, 3, 2, 3));
  return f(c, __builtin_shufflevector(c, c, 1, 1, 1, 1))[0];
}

// Lane i is reduce_tree() of vector i, of `count` vectors; the others may change. With AVX-512 in a tenth of the time
// of sixteen reductions, whose lanes may be integers.
template <typename Lanes, typename F>
inline __attribute__((always_inline)) Lanes reduce_sixteen(Lanes (&v)[16], int count, F f) {
#if defined(__AVX512F__)
  for (int i = count; i < 16; ++i) v[i] = Lanes{};
  // Each step folds vectors in halves and joins two; the second step leaves those of number i, i + 4, i + 8 and i + 12
  // in the quarters of vector i.
  const auto join = [&](Lanes a, Lanes b, auto low, auto high) {
    const auto x = reinterpret_cast<__m512>(a), y = reinterpret_cast<__m512>(b);
    return f(reinterpret_cast<Lanes>(low(x, y)), reinterpret_cast<Lanes>(high(x, y)));
  };
  const auto halves = [&](Lanes a, Lanes b) {
    return join(
        a, b, [](__m512 x, __m512 y) { return _mm512_shuffle_f32x4(x, y, 0x44); },
        [](__m512 x, __m512 y) { return _mm512_shuffle_f32x4(x, y, 0xee); });
  };
  const auto quarters = [&](Lanes a, Lanes b) {
    return join(
        a, b, [](__m512 x, __m512 y) { return _mm512_shuffle_f32x4(x, y, 0x88); },
        [](__m512 x, __m512 y) { return _mm512_shuffle_f32x4(x, y, 0xdd); });
  };
  const auto fours = [&](int i) { return quarters(halves(v[i], v[i + 4]), halves(v[i + 8], v[i + 12])); };
  const auto pairs = [&](Lanes a, Lanes b) {
    return join(
        a, b, [](__m512 x, __m512 y) { return _mm512_shuffle_ps(x, y, 0x44); },
        [](__m512 x, __m512 y) { return _mm512_shuffle_ps(x, y, 0xee); });
  };
  return join(
      pairs(fours(0), fours(1)), pairs(fours(2), fours(3)),
      [](__m512 x, __m512 y) { return _mm512_shuffle_ps(x, y, 0x88); },
      [](__m512 x, __m512 y) { return _mm512_shuffle_ps(x, y, 0xdd); });
#else
  Lanes out{};
  for (int i = 0; i < count; ++i) out[i] = reduce_tree(v[i], f);
  return out;
#endif
}

// Bit i is lane i of a mask of all ones or all zeros.
inline uint32_t lane_bits(I32x16 mask) {
#if defined(__AVX512F__)
  return _mm512_cmplt_epi32_mask(reinterpret_cast<__m512i>(mask), _mm512_setzero_si512());
#elif defined(REPRISE_TWO_REGISTERS)
  const auto bits = [](I32x8 v) { return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(v))); };
  return bits(mask.low) | bits(mask.high) << 8;
#else
  int32_t lanes[16];
  store_lanes(lanes, mask);
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(lanes[i] & 1) << i;
  return bits;
#endif
}

inline float reduce_add(F32x16 v) {
  return reduce_tree(v, [](auto a, auto b) { return a + b; });
}

inline float reduce_max(F32x16 v) {
  return reduce_tree(v, [](auto a, auto b) { return a > b ? a : b; });
}

}  // namespace reprise::cpu::REPRISE_ISA
