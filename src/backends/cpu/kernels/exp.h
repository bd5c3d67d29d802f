// exp of sixteen floats, within 1.1 ulp over the whole range: overflow gives inf, underflow rounds into
// the subnormals and then to 0, exp(0) is exactly 1, NaN stays NaN. Every lane gets the same operations, so a value's
// result does not depend on its place.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {

// a where it is larger, else b: also where one is NaN.
inline F32x16 larger(F32x16 a, F32x16 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(_mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(REPRISE_TWO_REGISTERS)
  return each_register<F32x16>([](auto x, auto y) { return _mm256_max_ps(x, y); }, a, b);
#else
  return select(greater(a, b), a, b);
#endif
}

// exp of what is not above 89; larger values are for exp below.
inline F32x16 exp_bounded(F32x16 x) {
  // x = n ln2 + r with |r| <= ln2 / 2. The high part of ln2 has 15 bits, so its product with n is exact without FMA
  // too.
  const F32x16 log2e = splat(0x1.715476p+0f), ln2_high = splat(0x1.62e4p-1f), ln2_low = splat(1.4286068e-6f);
#if defined(__AVX512F__)
  // A limit that still underflows; NaN stays, because it is the second operand.
  x = larger(splat(-104.0f), x);
  const F32x16 n = reinterpret_cast<F32x16>(
      _mm512_roundscale_ps(reinterpret_cast<__m512>(x * log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  x = larger(splat(-104.0f), x);
  const F32x16 magic = splat(0x1.8p+23f);  // adding it rounds to an integer
  const F32x16 n = (x * log2e + magic) - magic;
#endif
  F32x16 r = fma(n, -ln2_high, x);
  r = fma(n, -ln2_low, r);
  // e^r = 1 + r + r^2 q(r); q interpolates at Chebyshev nodes, error 1e-8.
  F32x16 q = splat(0x1.6d117cp-10f);
  q = fma(q, r, splat(0x1.120be2p-7f));
  q = fma(q, r, splat(0x1.555518p-5f));
  q = fma(q, r, splat(0x1.5554dcp-3f));
  q = fma(q, r, splat(0.5f));
  const F32x16 p = fma(r * r, q, r) + 1.0f;
#if defined(__AVX512F__)
  return reinterpret_cast<F32x16>(_mm512_scalef_ps(reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(n)));
#else
  // Two factors, because 2^n alone may not be a normal number. The first product is exact.
  const I32x16 k = to_int(n);
  const I32x16 first = k >> 1, second = k - first;
  return p * bits_as<F32x16>((first + 127) << 23) * bits_as<F32x16>((second + 127) << 23);
#endif
}

inline F32x16 exp(F32x16 x) {
  // A limit that still overflows; NaN stays.
#if defined(__AVX512F__)
  x = reinterpret_cast<F32x16>(_mm512_min_ps(_mm512_set1_ps(89.0f), reinterpret_cast<__m512>(x)));
#elif defined(REPRISE_TWO_REGISTERS)
  x = each_register<F32x16>([](auto limit, auto y) { return _mm256_min_ps(limit, y); }, splat(89.0f), x);
#else
  x = select(greater(x, splat(89.0f)), splat(89.0f), x);
#endif
  return exp_bounded(x);
}

}  // namespace reprise::cpu::REPRISE_ISA
