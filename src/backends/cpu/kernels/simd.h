// Vectors for kernel sources that are compiled once per instruction set.
//
// F32x16 is sixteen floats on every set (one zmm, two ymm, four xmm or four q registers): code and reduction order are
// the same everywhere; only FMA differs on `baseline` of x86-64, which has none. Include this in kernels/*.cpp only;
// REPRISE_ISA names the namespace and is set by CMake.
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

#include "base/half.h"

#ifndef REPRISE_ISA
#error "kernel sources are compiled per instruction set: see src/backends/CMakeLists.txt"
#endif

namespace reprise::cpu::REPRISE_ISA {

typedef float F32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t I32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t U32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t U16x16 __attribute__((vector_size(32), aligned(2), may_alias));

// Fetches a cache line that will be read.
inline void fetch_first_level(const void* p) { __builtin_prefetch(p, 0, 3); }
inline void fetch_second_level(const void* p) { __builtin_prefetch(p, 0, 2); }

inline F32x16 splat(float x) { return F32x16{} + x; }
inline F32x16 zero() { return F32x16{}; }

inline F32x16 load(const float* p) {
  F32x16 v;
  std::memcpy(&v, p, 64);
  return v;
}
inline void store(float* p, F32x16 v) { std::memcpy(p, &v, 64); }

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
#elif defined(__AVX2__) && !defined(__AVX512F__)
// Vectors are two registers here. Comparisons, selections and shuffles of those GCC 12 takes lane by lane, but not
// sums, conversions and bits. So each register is taken by itself. They are copied both at once: one would go through
// memory.
#define REPRISE_BY_HALVES
template <typename F>
__attribute__((always_inline)) inline F32x16 by_halves(F32x16 a, F32x16 b, const F& f) {
  __m256 x[2], y[2];
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  x[0] = f(x[0], y[0]);
  x[1] = f(x[1], y[1]);
  std::memcpy(&a, x, 64);
  return a;
}
#endif

// Lane by lane: all ones where it is so, else zeros. A NaN is never greater, nor is anything greater than it.
inline I32x16 greater(F32x16 a, F32x16 b) {
#if defined(__aarch64__)
  return by_register<I32x16, float32x4_t>([](auto x, auto y) { return vcgtq_f32(x, y); }, a, b);
#elif defined(REPRISE_BY_HALVES)
  return reinterpret_cast<I32x16>(by_halves(a, b, [](__m256 x, __m256 y) { return _mm256_cmp_ps(x, y, _CMP_GT_OQ); }));
#else
  return a > b;
#endif
}
inline I32x16 is_number(F32x16 v) {
#if defined(__aarch64__)
  return by_register<I32x16, float32x4_t>([](auto x) { return vceqq_f32(x, x); }, v);
#elif defined(REPRISE_BY_HALVES)
  return reinterpret_cast<I32x16>(by_halves(v, v, [](__m256 x, __m256 y) { return _mm256_cmp_ps(x, y, _CMP_ORD_Q); }));
#else
  return v == v;
#endif
}
inline I32x16 below(U32x16 a, U32x16 b) {
#if defined(__aarch64__)
  return by_register<I32x16, uint32x4_t>([](auto x, auto y) { return vcltq_u32(x, y); }, a, b);
#elif defined(REPRISE_BY_HALVES)
  // The borrow of a - b, which its highest bit has, goes into all bits.
  return reinterpret_cast<I32x16>((~a & b) | (~(a ^ b) & (a - b))) >> 31;
#else
  return reinterpret_cast<I32x16>(a < b);
#endif
}

// mask ? a : b, where mask is all ones or all zeros per lane.
inline I32x16 select(I32x16 mask, I32x16 a, I32x16 b) {
#if defined(__aarch64__) || defined(REPRISE_BY_HALVES)
  return (mask & a) | (~mask & b);
#else
  return mask ? a : b;
#endif
}
inline F32x16 select(I32x16 mask, F32x16 a, F32x16 b) {
#if defined(__aarch64__) || defined(REPRISE_BY_HALVES)
  return reinterpret_cast<F32x16>(select(mask, reinterpret_cast<I32x16>(a), reinterpret_cast<I32x16>(b)));
#else
  return mask ? a : b;
#endif
}

// Towards zero.
inline I32x16 to_int(F32x16 v) {
#if defined(__aarch64__)
  return by_register<I32x16, float32x4_t>([](auto x) { return vcvtq_s32_f32(x); }, v);
#else
  return __builtin_convertvector(v, I32x16);
#endif
}
inline F32x16 to_float(I32x16 v) {
#if defined(__aarch64__)
  return by_register<F32x16, int32x4_t>([](auto x) { return vcvtq_f32_s32(x); }, v);
#else
  return __builtin_convertvector(v, F32x16);
#endif
}

// The lanes of each pair swapped.
inline F32x16 swap_pairs(F32x16 v) {
#if defined(__aarch64__)
  return by_register<F32x16, float32x4_t>([](auto x) { return vrev64q_f32(x); }, v);
#elif defined(REPRISE_BY_HALVES)
  return by_halves(v, v, [](__m256 x, __m256) { return _mm256_permute_ps(x, 0xb1); });
#else
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#endif
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
#elif defined(__FMA__)
  __m256 av[2], bv[2], cv[2];
  std::memcpy(av, &a, 64);
  std::memcpy(bv, &b, 64);
  std::memcpy(cv, &c, 64);
  cv[0] = _mm256_fmadd_ps(av[0], bv[0], cv[0]);
  cv[1] = _mm256_fmadd_ps(av[1], bv[1], cv[1]);
  std::memcpy(&c, cv, 64);
  return c;
#elif defined(__aarch64__)
  return by_register<F32x16, float32x4_t>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
#else
  return a * b + c;
#endif
}

// Sixteen 16-bit floats become floats and go back. Narrowing rounds to nearest even, as base/half.h does.
inline U16x16 load_16bit(const uint16_t* p) {
  U16x16 v;
  std::memcpy(&v, p, 32);
  return v;
}
inline void store_16bit(uint16_t* p, U16x16 v) { std::memcpy(p, &v, 32); }

inline F32x16 widen_bf16(U16x16 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(v)), 16));
#elif defined(__aarch64__)
  return by_register<F32x16, uint16x4_t>([](auto x) { return vshll_n_u16(x, 16); }, v);
#else
  return reinterpret_cast<F32x16>(__builtin_convertvector(v, U32x16) << 16);
#endif
}

// The bf16 in the low half of each lane, in steps that every set has.
inline U32x16 bf16_bits(F32x16 v) {
  const U32x16 u = reinterpret_cast<U32x16>(v);
  const U32x16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U32x16 nan = (u >> 16) | 0x40u;
  const U32x16 is_nan = reinterpret_cast<U32x16>(below(U32x16{} + 0x7f800000u, u & 0x7fffffffu));
  return (is_nan & nan) | (~is_nan & rounded);
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
#else
  return __builtin_convertvector(bf16_bits(v), U16x16);
#endif
}

// narrow_bf16, widened again.
inline F32x16 round_bf16(F32x16 v) {
#if defined(__AVX512BF16__)
  return widen_bf16(narrow_bf16(v));
#else
  return reinterpret_cast<F32x16>(bf16_bits(v) << 16);
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
#elif defined(__F16C__)
  __m128i part[2];
  std::memcpy(part, &v, 32);
  const __m256 wide[2] = {_mm256_cvtph_ps(part[0]), _mm256_cvtph_ps(part[1])};
  F32x16 w;
  std::memcpy(&w, wide, 64);
  return w;
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
#elif defined(__F16C__)
  __m256 part[2];
  std::memcpy(part, &v, 64);
  const __m128i half[2] = {_mm256_cvtps_ph(part[0], _MM_FROUND_TO_NEAREST_INT),
                           _mm256_cvtps_ph(part[1], _MM_FROUND_TO_NEAREST_INT)};
  U16x16 h;
  std::memcpy(&h, half, 32);
  return h;
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
  const F32x8 a = f(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  const F32x4 b = f(__builtin_shufflevector(a, a, 0, 1, 2, 3), __builtin_shufflevector(a, a, 4, 5, 6, 7));
#endif
  const F32x4 c = f(b, __builtin_shufflevector(b, b, 2, 3, 2, 3));
  return f(c, __builtin_shufflevector(c, c, 1, 1, 1, 1))[0];
}

inline float reduce_add(F32x16 v) {
  return reduce_tree(v, [](auto a, auto b) { return a + b; });
}

inline float reduce_max(F32x16 v) {
  return reduce_tree(v, [](auto a, auto b) { return a > b ? a : b; });
}

}  // namespace reprise::cpu::REPRISE_ISA
