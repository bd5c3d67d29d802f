// Rounding of thirty-two values at a time: with the bf16 conversion instructions that is one test for subnormals, which
// they would flush, and half as many conversions.
#pragma once

#include <type_traits>

#include "backends/cpu/kernels/elements.h"

namespace reprise::cpu::REPRISE_ISA {

#if defined(__AVX512BF16__)
// The low and the high sixteen of thirty-two bf16 as floats: every byte pair goes into the high half of a float.
inline void widen_two_bf16(__m512i both, F32x16& a, F32x16& b) {
  const U32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const U32x16 from = (lane << 17) + ((2 * lane + 1) << 24);
  const __mmask64 high = 0xccccccccccccccccull;
  a = reinterpret_cast<F32x16>(_mm512_maskz_permutexvar_epi8(high, reinterpret_cast<__m512i>(from), both));
  b = reinterpret_cast<F32x16>(
      _mm512_maskz_permutexvar_epi8(high, reinterpret_cast<__m512i>(from + 0x20200000u), both));
}

inline bool any_subnormals(F32x16 a, F32x16 b) {
  return __builtin_expect(!_kortestz_mask16_u8(subnormals(a), subnormals(b)), 0);
}

inline __m512i narrow_two_bf16(F32x16 a, F32x16 b) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(a)));
}
#endif

// E::round of both.
template <typename E>
inline void round_two(F32x16& a, F32x16& b) {
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<E, Bf16>)
    if (!any_subnormals(a, b)) return widen_two_bf16(narrow_two_bf16(a, b), a, b);
#endif
  a = E::round(a);
  b = E::round(b);
}

// The same, and the rounded values are stored side by side.
template <typename E>
inline void store_rounded_two(typename E::Type* p, F32x16& a, F32x16& b) {
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<E, Bf16>)
    if (!any_subnormals(a, b)) {
      const __m512i both = narrow_two_bf16(a, b);
      _mm512_storeu_si512(p, both);
      return widen_two_bf16(both, a, b);
    }
#endif
  a = E::store_rounded(p, a);
  b = E::store_rounded(p + 16, b);
}

}  // namespace reprise::cpu::REPRISE_ISA
