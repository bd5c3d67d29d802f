// linear: x weight^T + bias on weights in the panel64 layout. Workspace: linear_shape.h.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/linear_tiles.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In, class Out>
void linear(const LinearArgs& a, const Launch& l) {
  const typename In::Type* bias = a.bias;
  typename Out::Type* out = a.out;
  const int64_t n = a.shape.columns;
  products_of<In>(a, l, [&](Sums<float> sums, int64_t row, int64_t column) {
    round_sums<In, Out>(sums, bias ? bias + column : nullptr, out + row * n + column, n);
  });
}

}  // namespace

REPRISE_KERNEL(linear_bf16, linear<Bf16, Bf16>)
REPRISE_KERNEL(linear_bf16_f32, linear<Bf16, F32>)
#ifndef REPRISE_TILES
REPRISE_KERNEL(linear_f32, linear<F32, F32>)
REPRISE_KERNEL(linear_f16, linear<F16, F16>)
REPRISE_KERNEL(linear_f16_f32, linear<F16, F32>)
#endif

}  // namespace reprise::cpu::REPRISE_ISA
