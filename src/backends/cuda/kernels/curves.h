// tanh, the halves of GELU and softplus of one number: the operations of the CPU's curves.h (softplus: state_head.h)
// in the same order, so that the bits are the CPU's.
#pragma once

#include "backends/cuda/kernels/lane.h"

namespace reprise::cuda {

DEV float absolute(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
DEV float with_sign_of(float magnitude, float x) { return float_of(bits_of(magnitude) | (bits_of(x) & 0x80000000u)); }

DEV float tanh_of(float x) {
  const float size = absolute(x), square = x * x;
  float p = -0x1.9b544ep-8f;
  p = fma(p, square, 0x1.59f7d2p-6f);
  p = fma(p, square, -0x1.b9585ap-5f);
  p = fma(p, square, 0x1.110eecp-3f);
  p = fma(p, square, -0x1.555554p-2f);
  const float near = fma(x * square, p, x);
  const float far = with_sign_of(1.0f - divide(2.0f, exp_of(size * 2.0f) + 1.0f), x);
  return size < 0.6f ? near : far;
}

DEV float gelu_of(float x) {
  const float bounded = x < -20.0f ? -20.0f : x;
  const float a = absolute(bounded) * 0x1.6a09e6p-1f, square = a * a;
  float erf = 0x1.4a9dacp-14f;
  erf = fma(erf, square, -0x1.a46b4p-11f);
  erf = fma(erf, square, 0x1.54163p-8f);
  erf = fma(erf, square, -0x1.b7fb38p-6f);
  erf = fma(erf, square, 0x1.ce2d18p-4f);
  erf = fma(erf, square, -0x1.81273ep-2f);
  erf = fma(erf, square, 0x1.20dd74p+0f);
  const float below = 0.5f + with_sign_of(a * erf, x) * 0.5f;
  const float t = divide(1.0f, fma(a, 0.5f, 1.0f));
  float erfc = 0x1.76499ap-4f;
  erfc = fma(erfc, t, -0x1.c26adep-3f);
  erfc = fma(erfc, t, 0x1.315456p-4f);
  erfc = fma(erfc, t, 0x1.0fbc96p-4f);
  erfc = fma(erfc, t, 0x1.69dbaep-3f);
  erfc = fma(erfc, t, 0x1.fac156p-3f);
  erfc = fma(erfc, t, 0x1.20bfd2p-2f);
  erfc = fma(erfc, t, 0x1.20df2ap-2f);
  const float tail = exp_bounded(-square) * t * erfc * 0.5f;
  const float far = x < 0.0f ? tail : 1.0f - tail;
  return bounded * (a < 1.0f ? below : far);
}

DEV float gelu_tanh_of(float x) {
  const float twice = x * 0x1.988454p+0f * fma(x * x, 0.044715f, 1.0f);
  const float e = exp_bounded(-absolute(twice));
  const float bounded = x < -200.0f ? -200.0f : x;
  return divide(x < 0.0f ? bounded * e : x, e + 1.0f);
}

// log(1 + exp(x))
DEV float softplus_of(float x) {
  const float z = exp_bounded(-absolute(x)), s = divide(z, z + 2.0f), square = s * s;
  float p = 1.0f / 15;
  p = fma(p, square, 1.0f / 13);
  p = fma(p, square, 1.0f / 11);
  p = fma(p, square, 1.0f / 9);
  p = fma(p, square, 1.0f / 7);
  p = fma(p, square, 1.0f / 5);
  p = fma(p, square, 1.0f / 3);
  p = fma(p, square, 1.0f);
  return fma(s + s, p, x > 0.0f ? x : 0.0f);
}

}  // namespace reprise::cuda
