// add_rms_norm and its quantising variants: the sum of two rows is rounded and kept, its norm is rounded before it is
// quantised. Ranks share rows.
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "backends/cpu/kernels/table.h"

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
  Rows(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks, int bias_at, int sum_at)
      : x(static_cast<const T*>(args.ptr[0])),
        r(static_cast<const T*>(args.ptr[1])),
        params{static_cast<const T*>(args.ptr[2]), static_cast<const T*>(args.ptr[static_cast<size_t>(bias_at)])},
        sum(static_cast<T*>(args.ptr[static_cast<size_t>(sum_at)])),
        n(args.dim[1].value(live)),
        eps(static_cast<float>(args.scalar[0])),
        mine(share(args.dim[0].value(live), rank, ranks)) {}
  F32x16 add(int64_t row) const { return splat(add_row<E>(x + row * n, r + row * n, sum + row * n, n, eps)); }

  const T* x;
  const T* r;
  NormParams<E, kBias> params;
  T* sum;
  int64_t n;
  float eps;
  Range mine;
};

// Each op as its kernel with and without a bias. kBiasAt: its place among the pointers, null when there is none.

// ptr: x, r, weight, bias or null, norm, sum. dim: rows, row size. scalar: eps.
struct Plain {
  static constexpr int kBiasAt = 3;
  template <typename E, bool kBias>
  static void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
    const Rows<E, kBias> a(args, live, rank, ranks, kBiasAt, 5);
    auto* out = static_cast<typename E::Type*>(args.ptr[4]);
    for (int64_t row = a.mine.begin; row < a.mine.end; ++row) {
      const F32x16 factor = a.add(row);
      const auto* sum = a.sum + row * a.n;
      const auto params = a.params;
      store_each<E>(out + row * a.n, a.n, [=](int64_t i, int64_t rest) { return params.apply(sum, i, factor, rest); });
    }
  }
};

// ptr: x, r, weight, scale, offset, bias or null, values, sum. dim: rows, row size, steps of scale and of offset (1, or
// 0 when one number serves all columns). scalar: eps.
struct QuantStatic {
  static constexpr int kBiasAt = 5;
  template <typename E, bool kBias>
  static void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
    const Rows<E, kBias> a(args, live, rank, ranks, kBiasAt, 7);
    const StaticScale scale(args.ptr[3], args.ptr[4], args.dim[2].factor, args.dim[3].factor);
    auto* out = static_cast<int8_t*>(args.ptr[6]);
    for (int64_t row = a.mine.begin; row < a.mine.end; ++row) {
      const F32x16 factor = a.add(row);
      const auto* sum = a.sum + row * a.n;
      each_sixteen(a.n, [&](int64_t i, int64_t rest) {
        const F32x16 v = E::round(a.params.apply(sum, i, factor, rest));
        store_i8_n(out + row * a.n + i, scale.apply(v, i, rest), rest);
      });
    }
  }
};

// ptr: x, r, weight, bias or null, values, scales, sum. dim: rows, row size. scalar: eps. Workspace: one row of the
// norm per rank (quantize_shape.h).
struct QuantDynamic {
  static constexpr int kBiasAt = 3;
  template <typename E, bool kBias>
  static void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
    const Rows<E, kBias> a(args, live, rank, ranks, kBiasAt, 6);
    auto* out = static_cast<int8_t*>(args.ptr[4]);
    auto* scales = static_cast<float*>(args.ptr[5]);
    auto* norm = reinterpret_cast<typename E::Type*>(
        static_cast<char*>(args.workspace) + rank * row_scratch_bytes(a.n, static_cast<int64_t>(sizeof(*a.sum))));
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
};

template <typename E, typename Op>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  if (args.ptr[Op::kBiasAt])
    Op::template run<E, true>(args, live, rank, ranks);
  else
    Op::template run<E, false>(args, live, rank, ranks);
}

}  // namespace

REPRISE_KERNELS(add_rms_norm, run, Plain)
REPRISE_KERNELS(add_rms_norm_quant_static, run, QuantStatic)
REPRISE_KERNELS(add_rms_norm_quant_dynamic, run, QuantDynamic)

}  // namespace reprise::cpu::REPRISE_ISA
