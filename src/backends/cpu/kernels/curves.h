// tanh and the halves of GELU on sixteen floats. Polynomials are fitted at Chebyshev nodes and evaluated in fp32.
// Every lane gets the same operations, so a value's result does not depend on its place.
#pragma once

#include "backends/cpu/kernels/exp.h"

namespace reprise::cpu::REPRISE_ISA {

inline F32x16 absolute(F32x16 x) { return bits_as<F32x16>(bits_as<U32x16>(x) & 0x7fffffffu); }
inline F32x16 with_sign_of(F32x16 magnitude, F32x16 x) {
  return bits_as<F32x16>(bits_as<U32x16>(magnitude) | (bits_as<U32x16>(x) & 0x80000000u));
}

// The polynomial whose coefficients are given from the highest power down.
template <int kCount>
inline F32x16 polynomial(F32x16 x, const float (&coefficients)[kCount]) {
  F32x16 out = splat(coefficients[0]);
  for (int i = 1; i < kCount; ++i) out = fma(out, x, splat(coefficients[i]));
  return out;
}

// Within 2e-7 of the result. Small numbers by x + x^3 q(x^2), others by 1 - 2 / (exp(2 |x|) + 1).
inline F32x16 tanh(F32x16 x) {
  constexpr float kNear[] = {-0x1.9b544ep-8f, 0x1.59f7d2p-6f, -0x1.b9585ap-5f, 0x1.110eecp-3f, -0x1.555554p-2f};
  const F32x16 size = absolute(x), square = x * x;
  const F32x16 near = fma(x * square, polynomial(square, kNear), x);
  const F32x16 far = with_sign_of(splat(1.0f) - splat(2.0f) / (exp(size * 2.0f) + 1.0f), x);
  return select(greater(splat(0.6f), size), near, far);
}

// x times the share of a normal distribution below x. Near zero that share is 1/2 + erf(x / sqrt(2)) / 2; farther away
// it or its complement is half of erfc(a) = exp(-a^2) t q(t), a = |x| / sqrt(2), t = 1 / (1 + a / 2).
inline F32x16 gelu(F32x16 x) {
  constexpr float kErf[] = {0x1.4a9dacp-14f, -0x1.a46b4p-11f, 0x1.54163p-8f, -0x1.b7fb38p-6f,
                            0x1.ce2d18p-4f,  -0x1.81273ep-2f, 0x1.20dd74p+0f};
  constexpr float kErfc[] = {0x1.76499ap-4f, -0x1.c26adep-3f, 0x1.315456p-4f, 0x1.0fbc96p-4f,
                             0x1.69dbaep-3f, 0x1.fac156p-3f,  0x1.20bfd2p-2f, 0x1.20df2ap-2f};
  // Below -20 the result is -0; -inf * 0 would be NaN.
  const F32x16 bounded = select(greater(splat(-20.0f), x), splat(-20.0f), x);
  const F32x16 a = absolute(bounded) * 0x1.6a09e6p-1f, square = a * a;
  const F32x16 below = splat(0.5f) + with_sign_of(a * polynomial(square, kErf), x) * 0.5f;
  const F32x16 t = splat(1.0f) / fma(a, splat(0.5f), splat(1.0f));
  const F32x16 tail = exp_bounded(-square) * t * polynomial(t, kErfc) * 0.5f;
  const F32x16 far = select(greater(zero(), x), tail, splat(1.0f) - tail);
  return bounded * select(greater(splat(1.0f), a), below, far);
}

// x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), written with exp(-|2 u|) so that nothing overflows.
inline F32x16 gelu_tanh(F32x16 x) {
  const F32x16 twice = x * 0x1.988454p+0f * fma(x * x, splat(0.044715f), splat(1.0f));
  const F32x16 e = exp_bounded(-absolute(twice));
  const F32x16 bounded = select(greater(splat(-200.0f), x), splat(-200.0f), x);
  return select(greater(zero(), x), bounded * e, x) / (e + 1.0f);
}

}  // namespace reprise::cpu::REPRISE_ISA
