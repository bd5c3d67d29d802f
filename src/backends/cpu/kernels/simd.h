// Vectors for kernel sources that are compiled once per instruction set.
//
// F32x16 is sixteen floats on every set (one zmm, two ymm or four xmm registers): code and reduction order are the same
// everywhere; only FMA differs on `baseline`, which has none. Include this in kernels/*.cpp only; REPRISE_ISA names the
// namespace and is set by CMake.
#pragma once

#include <immintrin.h>

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

inline F32x16 splat(float x) { return F32x16{} + x; }
inline F32x16 zero() { return F32x16{}; }

inline F32x16 load(const float* p) {
  F32x16 v;
  std::memcpy(&v, p, 64);
  return v;
}
inline void store(float* p, F32x16 v) { std::memcpy(p, &v, 64); }

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
#else
  return reinterpret_cast<F32x16>(__builtin_convertvector(v, U32x16) << 16);
#endif
}

// The bf16 in the low half of each lane, in steps that every set has.
inline U32x16 bf16_bits(F32x16 v) {
  const U32x16 u = reinterpret_cast<U32x16>(v);
  const U32x16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U32x16 nan = (u >> 16) | 0x40u;
  const U32x16 is_nan = reinterpret_cast<U32x16>((u & 0x7fffffffu) > 0x7f800000u);
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
  const F32x8 a = f(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  const F32x4 b = f(__builtin_shufflevector(a, a, 0, 1, 2, 3), __builtin_shufflevector(a, a, 4, 5, 6, 7));
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
