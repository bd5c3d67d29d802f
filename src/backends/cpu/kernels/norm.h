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
  each_sixteen(n, [&](int64_t i, int64_t rest) {
    const F32x16 v = load_n<E>(x + i, rest);
    sum = fma(v, v, sum);
  });
  return rms_factor_of(sum, n, eps);
}

// What a norm multiplies with and, where it has a bias, adds. A type of its own for each case, so that norms without a
// bias pay nothing for it.
template <typename E, bool kBias>
struct NormParams {
  const typename E::Type* weight;
  const typename E::Type* bias;

  // Elements [i, i + n) of x / rms * weight (+ bias).
  F32x16 apply(const typename E::Type* x, int64_t i, F32x16 factor, int64_t n) const {
    const F32x16 v = load_n<E>(x + i, n) * factor;
    if constexpr (kBias) return fma(v, load_n<E>(weight + i, n), load_n<E>(bias + i, n));
    return v * load_n<E>(weight + i, n);
  }
};

template <typename E, bool kBias>
inline void rms_norm_row(const typename E::Type* x, const NormParams<E, kBias>& params, typename E::Type* out,
                         int64_t n, float eps) {
  const F32x16 factor = splat(rms_factor<E>(x, n, eps));
  store_each<E>(out, n, [=](int64_t i, int64_t rest) { return params.apply(x, i, factor, rest); });
}

template <typename E>
inline void rms_norm_row(const typename E::Type* x, const typename E::Type* weight, typename E::Type* out, int64_t n,
                         float eps) {
  rms_norm_row<E>(x, NormParams<E, false>{weight, nullptr}, out, n, eps);
}

}  // namespace reprise::cpu::REPRISE_ISA
