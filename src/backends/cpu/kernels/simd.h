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

// Sixteen bf16 values widened.
inline F32x16 load_bf16(const uint16_t* p) {
#if defined(__AVX512F__)
  const __m512i w =
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
  return reinterpret_cast<F32x16>(_mm512_castsi512_ps(w));
#else
  U32x16 w;
  for (int i = 0; i < 16; ++i) w[i] = static_cast<uint32_t>(p[i]) << 16;
  return reinterpret_cast<F32x16>(w);
#endif
}

inline F32x16 load_f16(const uint16_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#else
  F32x16 v;
  for (int i = 0; i < 16; ++i) {
#if defined(__F16C__)
    v[i] = _cvtsh_ss(p[i]);
#else
    v[i] = half_to_float(p[i]);
#endif
  }
  return v;
#endif
}

// Rounds to nearest even, as base/half.h does (the AVX-512 BF16 instruction would flush subnormals); the bf16 in the
// low half of each lane.
inline U32x16 bf16_bits(F32x16 v) {
#if defined(__AVX512F__)
  const __m512i u = reinterpret_cast<__m512i>(v), high = _mm512_srli_epi32(u, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(reinterpret_cast<__m512>(v), reinterpret_cast<__m512>(v), _CMP_UNORD_Q);
  return reinterpret_cast<U32x16>(_mm512_mask_or_epi32(r, nan, high, _mm512_set1_epi32(0x40)));
#else
  const U32x16 u = reinterpret_cast<U32x16>(v);
  const U32x16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U32x16 nan = (u >> 16) | 0x40u;
  const U32x16 is_nan = reinterpret_cast<U32x16>((u & 0x7fffffffu) > 0x7f800000u);
  return (is_nan & nan) | (~is_nan & rounded);
#endif
}

inline void store_bf16_bits(uint16_t* p, U32x16 r) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(r)));
#else
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint16_t>(r[i]);
#endif
}

inline void store_bf16(uint16_t* p, F32x16 v) { store_bf16_bits(p, bf16_bits(v)); }

inline void store_f16(uint16_t* p, F32x16 v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  for (int i = 0; i < 16; ++i) {
#if defined(__F16C__)
    p[i] = static_cast<uint16_t>(_cvtss_sh(v[i], _MM_FROUND_TO_NEAREST_INT));
#else
    p[i] = float_to_half(v[i]);
#endif
  }
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
