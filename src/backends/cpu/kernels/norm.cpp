#include "backends/cpu/kernels/norm.h"

#include "backends/cpu/kernels/define.h"
#include "ops/args/norms.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// A single row is one thread's work: a second thread would save less than it costs to sum the row twice.
template <typename E, bool kBias>
void norm_rows(const RmsNormArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T* x = a.x;
  const NormParams<E, kBias> params{a.weight, a.bias};
  T* out = a.out;
  const int64_t n = a.width;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r)
    rms_norm_row<E>(x + r * n, params, out + r * n, n, static_cast<float>(a.eps));
}

template <typename E>
void rms_norm_rows(const RmsNormArgs& a, const Launch& l) {
  if (a.bias)
    norm_rows<E, true>(a, l);
  else
    norm_rows<E, false>(a, l);
}

template <typename E>
void unit(const UnitRmsNormArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T* x = a.x;
  T* out = a.out;
  const int64_t n = a.width;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* row = x + r * n;
    const F32x16 factor = splat(rms_factor<E>(row, n, static_cast<float>(a.eps)));
    store_each<E>(out + r * n, n, [=](int64_t i, int64_t rest) { return load_n<E>(row + i, rest) * factor; });
  }
}

template <typename E>
void centred(const CentredRmsNormArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T *x = a.x, *weight = a.weight;
  T* out = a.out;
  const int64_t n = a.width;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* row = x + r * n;
    const F32x16 factor = splat(rms_factor<E>(row, n, static_cast<float>(a.eps)));
    store_each<E>(out + r * n, n, [=](int64_t i, int64_t rest) {
      return load_n<E>(row + i, rest) * factor * (load_n<E>(weight + i, rest) + 1.0f);
    });
  }
}

// The sum over a row, as rms_factor adds: element i by lane i % 16, then the tree.
template <typename E, typename F>
float sum_of(const typename E::Type* x, int64_t n, const F& f) {
  F32x16 sum = zero();
  each_sixteen(n, [&](int64_t i, int64_t rest) {
    F32x16 v = f(load_n<E>(x + i, rest));
    for (int64_t j = rest; j < 16; ++j) v[j] = 0;
    sum += v;
  });
  return reduce_add(sum);
}

template <typename E>
void layer_norm(const LayerNormArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T *x = a.x, *weights = a.weight, *biases = a.bias;
  T* out = a.out;
  const int64_t n = a.width;
  const float count = static_cast<float>(n), eps = static_cast<float>(a.eps);
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* row = x + r * n;
    const T* weight = weights + r % a.vectors * n;
    const T* bias = biases ? biases + r % a.vectors * n : nullptr;
    const F32x16 mean = splat(sum_of<E>(row, n, [](F32x16 v) { return v; }) / count);
    const float variance = sum_of<E>(row, n, [=](F32x16 v) { return (v - mean) * (v - mean); }) / count;
    const F32x16 factor = splat(1.0f / __builtin_sqrtf(variance + eps));
    store_each<E>(out + r * n, n, [=](int64_t i, int64_t rest) {
      const F32x16 v = (load_n<E>(row + i, rest) - mean) * factor * load_n<E>(weight + i, rest);
      return bias ? v + load_n<E>(bias + i, rest) : v;
    });
  }
}

}  // namespace

REPRISE_KERNELS(rms_norm, rms_norm_rows)
REPRISE_KERNELS(rms_norm_centred, centred)
REPRISE_KERNELS(unit_rms_norm, unit)
REPRISE_KERNELS(layer_norm, layer_norm)

}  // namespace reprise::cpu::REPRISE_ISA
