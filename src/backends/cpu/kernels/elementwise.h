// Elementwise functions on sixteen floats, shared by the plain and the fused kernels so that both give the same bits.
#pragma once

#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/exp.h"

namespace reprise::cpu::REPRISE_ISA {

// x / (1 + exp(-x)), written with exp(-|x|) so that nothing overflows: very negative x gives its true tiny value, then
// -0.
inline F32x16 silu(F32x16 x) {
  const I32x16 negative = x < zero();
  const F32x16 e = exp(select(negative, x, -x));
  // -inf * 0 would be NaN; below -200 the result is -0 anyway.
  const F32x16 bounded = select(x < splat(-200.0f), splat(-200.0f), x);
  return select(negative, bounded * e, x) / (e + 1.0f);
}

}  // namespace reprise::cpu::REPRISE_ISA
