// Reg: one vector register of floats of the set, the widest it has, for register tiles and for loops whose lanes are
// independent. simd.h has the vectors whose width is the same everywhere.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {

#if defined(__AVX512F__)
using Reg = __m512;
constexpr int kLanes = 16;
inline Reg reg_zero() { return _mm512_setzero_ps(); }
inline Reg reg_load(const float* p) { return _mm512_loadu_ps(p); }
inline void reg_store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
inline Reg reg_splat(float x) { return _mm512_set1_ps(x); }
inline Reg reg_mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
inline Reg reg_fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
inline Reg reg_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Reg reg_i8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
inline Reg reg_even_bf16(const void* pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16));
}
inline Reg reg_words_and(const void* words, uint32_t mask) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(words), _mm512_set1_epi32(static_cast<int>(mask))));
}
#elif defined(__AVX2__)
using Reg = __m256;
constexpr int kLanes = 8;
inline __m256i reg_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline Reg reg_zero() { return _mm256_setzero_ps(); }
inline Reg reg_load(const float* p) { return _mm256_loadu_ps(p); }
inline void reg_store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
inline Reg reg_splat(float x) { return _mm256_set1_ps(x); }
inline Reg reg_mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
inline Reg reg_fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
inline Reg reg_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Reg reg_i8(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
inline Reg reg_even_bf16(const void* pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(reg_words(pairs), 16)); }
inline Reg reg_words_and(const void* words, uint32_t mask) {
  return _mm256_castsi256_ps(_mm256_and_si256(reg_words(words), _mm256_set1_epi32(static_cast<int>(mask))));
}
#elif defined(__x86_64__)
using Reg = __m128;
constexpr int kLanes = 4;
inline __m128i reg_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline Reg reg_zero() { return _mm_setzero_ps(); }
inline Reg reg_load(const float* p) { return _mm_loadu_ps(p); }
inline void reg_store(float* p, Reg v) { _mm_storeu_ps(p, v); }
inline Reg reg_splat(float x) { return _mm_set1_ps(x); }
inline Reg reg_mul(Reg a, Reg b) { return _mm_mul_ps(a, b); }
inline Reg reg_fma(Reg a, Reg b, Reg c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
inline Reg reg_f16(const uint16_t* p) {
  // Exponent and mantissa move into place and the bias is corrected; subnormals are integers times 2^-24. No operand is
  // a subnormal float, so the numbers are right where those are flushed.
  const __m128i h = _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), _mm_setzero_si128());
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(h, _mm_set1_epi32(0x8000)), 16);
  const __m128i size = _mm_and_si128(h, _mm_set1_epi32(0x7fff));
  const __m128i special = _mm_cmpgt_epi32(size, _mm_set1_epi32(0x7bff));  // infinity or NaN
  const __m128i small = _mm_cmplt_epi32(size, _mm_set1_epi32(0x0400));
  const __m128i normal = _mm_add_epi32(_mm_slli_epi32(size, 13), _mm_set1_epi32(112 << 23));
  const __m128i units = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(size), _mm_set1_ps(0x1p-24f)));
  const __m128i finite = _mm_or_si128(_mm_and_si128(small, units), _mm_andnot_si128(small, normal));
  const __m128i value = _mm_or_si128(finite, _mm_and_si128(special, _mm_set1_epi32(0x7f800000)));
  return _mm_castsi128_ps(_mm_or_si128(sign, value));
}
inline Reg reg_i8(const void* p) {
  int32_t bytes;
  std::memcpy(&bytes, p, 4);
  const __m128i b = _mm_cvtsi32_si128(bytes), w = _mm_unpacklo_epi8(b, b);
  return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(w, w), 24));
}
inline Reg reg_even_bf16(const void* pairs) { return _mm_castsi128_ps(_mm_slli_epi32(reg_words(pairs), 16)); }
inline Reg reg_words_and(const void* words, uint32_t mask) {
  return _mm_castsi128_ps(_mm_and_si128(reg_words(words), _mm_set1_epi32(static_cast<int>(mask))));
}
#elif defined(__aarch64__)
using Reg = float32x4_t;
constexpr int kLanes = 4;
inline uint32x4_t reg_words(const void* p) { return vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(p))); }
inline Reg reg_zero() { return vdupq_n_f32(0.0f); }
inline Reg reg_load(const float* p) { return vld1q_f32(p); }
inline void reg_store(float* p, Reg v) { vst1q_f32(p, v); }
inline Reg reg_splat(float x) { return vdupq_n_f32(x); }
inline Reg reg_mul(Reg a, Reg b) { return vmulq_f32(a, b); }
inline Reg reg_fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
inline Reg reg_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline Reg reg_i8(const void* p) {
  int32_t bytes;
  std::memcpy(&bytes, p, 4);
  const int8x8_t b = vreinterpret_s8_s32(vdup_n_s32(bytes));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(b))));
}
inline Reg reg_even_bf16(const void* pairs) { return vreinterpretq_f32_u32(vshlq_n_u32(reg_words(pairs), 16)); }
inline Reg reg_words_and(const void* words, uint32_t mask) {
  return vreinterpretq_f32_u32(vandq_u32(reg_words(words), vdupq_n_u32(mask)));
}
#endif

// The odd number of each pair of bf16.
inline Reg reg_odd_bf16(const void* pairs) { return reg_words_and(pairs, 0xffff0000u); }

// Registers of the set, of which tiles hold as many accumulators as leave room for the operands.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

}  // namespace reprise::cpu::REPRISE_ISA
