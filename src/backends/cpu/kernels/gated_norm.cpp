// RMS norm of groups of a row times SiLU of a gate: first the gate, then the norm. Threads share rows.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Workspace: the numbers of one group per thread, in fp32.
template <typename E>
void rms_norm_gated(const GatedNormArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T *xs = a.x, *gates = a.gate, *weights = a.weight;
  T* outs = a.out;
  const int64_t n = a.width / a.groups;
  float* v = l.scratch<float>(row_scratch_bytes(n, static_cast<int64_t>(sizeof(float))));
  const Range parts = l.share(l.size(a.rows) * a.groups);
  for (int64_t part = parts.begin; part < parts.end; ++part) {
    const int64_t at = part * n;
    const T *x = xs + at, *gate = gates + at, *weight = weights + part % a.groups * n;
    F32x16 squares = zero();
    each_sixteen(n, [&](int64_t i, int64_t rest) {
      const F32x16 y = load_n<E>(x + i, rest) * silu(load_n<E>(gate + i, rest));
      store_n<F32>(v + i, y, rest);
      squares = fma(y, y, squares);
    });
    const F32x16 factor = splat(rms_factor_of(squares, n, static_cast<float>(a.eps)));
    store_each<E>(outs + at, n, [=](int64_t i, int64_t rest) {
      return load_n<F32>(v + i, rest) * factor * load_n<E>(weight + i, rest);
    });
  }
}

}  // namespace

REPRISE_KERNELS(rms_norm_gated, rms_norm_gated)

}  // namespace reprise::cpu::REPRISE_ISA
