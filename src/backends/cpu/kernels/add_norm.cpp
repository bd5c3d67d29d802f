// add_rms_norm and its quantising variants: the sum of two rows is rounded and kept, its norm is rounded before it is
// quantised. Threads share rows.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "ops/args/norms.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// sum = x + r; the factor of its norm.
template <typename E>
float add_row(const typename E::Type* x, const typename E::Type* r, typename E::Type* sum, int64_t n, float eps) {
  F32x16 squares = zero();
  each_sixteen(n, [&](int64_t i, int64_t rest) {
    const F32x16 s = store_rounded_n<E>(sum + i, load_n<E>(x + i, rest) + load_n<E>(r + i, rest), rest);
    squares = fma(s, s, squares);
  });
  return rms_factor_of(squares, n, eps);
}

template <typename E, bool kBias>
struct Rows {
  using T = typename E::Type;
  Rows(const auto& a, const Launch& l)
      : x(a.x),
        r(a.r),
        params{a.weight, a.bias},
        sum(a.sum),
        n(a.width),
        eps(static_cast<float>(a.eps)),
        mine(l.share(l.size(a.rows))) {}
  F32x16 add(int64_t row) const { return splat(add_row<E>(x + row * n, r + row * n, sum + row * n, n, eps)); }

  const T* x;
  const T* r;
  NormParams<E, kBias> params;
  T* sum;
  int64_t n;
  float eps;
  Range mine;
};

// Each op with and without a bias.

template <typename E, bool kBias>
void run(const AddRmsNormArgs& args, const Launch& l) {
  const Rows<E, kBias> a(args, l);
  typename E::Type* out = args.out;
  for (int64_t row = a.mine.begin; row < a.mine.end; ++row) {
    const F32x16 factor = a.add(row);
    const auto* sum = a.sum + row * a.n;
    const auto params = a.params;
    store_each<E>(out + row * a.n, a.n, [=](int64_t i, int64_t rest) { return params.apply(sum, i, factor, rest); });
  }
}

template <typename E, bool kBias>
void run(const AddRmsNormQuantStaticArgs& args, const Launch& l) {
  const Rows<E, kBias> a(args, l);
  const StaticScale scale(args);
  int8_t* out = args.values;
  for (int64_t row = a.mine.begin; row < a.mine.end; ++row) {
    const F32x16 factor = a.add(row);
    const auto* sum = a.sum + row * a.n;
    each_sixteen(a.n, [&](int64_t i, int64_t rest) {
      const F32x16 v = E::round(a.params.apply(sum, i, factor, rest));
      store_i8_n(out + row * a.n + i, scale.apply(v, i, rest), rest);
    });
  }
}

// Workspace: one row of the norm per thread (quantize_shape.h).
template <typename E, bool kBias>
void run(const AddRmsNormQuantDynamicArgs& args, const Launch& l) {
  using T = typename E::Type;
  const Rows<E, kBias> a(args, l);
  int8_t* out = args.values;
  float* scales = args.scale;
  T* norm = l.scratch<T>(row_scratch_bytes(a.n, static_cast<int64_t>(sizeof(T))));
  for (int64_t row = a.mine.begin; row < a.mine.end; ++row) {
    const F32x16 factor = a.add(row);
    const auto* sum = a.sum + row * a.n;
    F32x16 top = zero();
    each_sixteen(a.n, [&](int64_t i, int64_t rest) {
      const F32x16 v = a.params.apply(sum, i, factor, rest);
      top = larger_magnitude(top, store_rounded_n<E>(norm + i, v, rest));
    });
    scales[row] = dynamic_scale(reduce_max(top));
    ByScale(scales[row]).store<E>(norm, out + row * a.n, a.n);
  }
}

template <typename E, typename A>
void norm(const A& a, const Launch& l) {
  if (a.bias)
    run<E, true>(a, l);
  else
    run<E, false>(a, l);
}

}  // namespace

REPRISE_KERNELS(add_rms_norm, norm, AddRmsNormArgs)
REPRISE_KERNELS(add_rms_norm_quant_static, norm, AddRmsNormQuantStaticArgs)
REPRISE_KERNELS(add_rms_norm_quant_dynamic, norm, AddRmsNormQuantDynamicArgs)

}  // namespace reprise::cpu::REPRISE_ISA
