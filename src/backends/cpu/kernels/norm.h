// RMS norm of one row, shared by the plain and the fused kernels so that both give the same bits.
#pragma once

#include "backends/cpu/kernels/elements.h"

namespace reprise::cpu::REPRISE_ISA {

// 1 / sqrt(mean + eps) of n squares in sixteen partial sums.
inline float rms_factor_of(F32x16 squares, int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps);
}

// 1 / sqrt(mean(x^2) + eps). Element i is added by lane i % 16 in ascending order; then the tree of reduce_add.
template <typename E>
inline float rms_factor(const typename E::Type* x, int64_t n, float eps) {
  F32x16 sum = zero();
  for (int64_t i = 0; i < n; i += 16) {
    const F32x16 v = load_n<E>(x + i, n - i);
    sum = fma(v, v, sum);
  }
  return rms_factor_of(sum, n, eps);
}

template <typename E>
inline void rms_norm_row(const typename E::Type* x, const typename E::Type* weight, typename E::Type* out, int64_t n,
                         float eps) {
  const F32x16 factor = splat(rms_factor<E>(x, n, eps));
  for (int64_t i = 0; i < n; i += 16)
    store_n<E>(out + i, load_n<E>(x + i, n - i) * factor * load_n<E>(weight + i, n - i), n - i);
}

}  // namespace reprise::cpu::REPRISE_ISA
