// linear: x weight^T + bias on weights in the panel64 layout.
//
// Arguments: ptr x, weight, bias (or null), out; dim rows, K, N, use of vdpbf16ps (avx512 only). Workspace:
// linear_shape.h.
#include "backends/cpu/kernels/linear_tiles.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In, class Out>
void linear(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* bias = static_cast<const typename In::Type*>(args.ptr[2]);
  auto* out = static_cast<typename Out::Type*>(args.ptr[3]);
  const int64_t n = args.dim[2].factor;
  products_of<In>(args, live, rank, ranks,
                  [&](const float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
                    round_sums<In, Out>(sums, rows, columns, bias ? bias + column : nullptr, out + row * n + column, n);
                  });
}

}  // namespace

void linear_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear<F32, F32>(args, live, rank, ranks);
}
void linear_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear<Bf16, Bf16>(args, live, rank, ranks);
}
void linear_bf16_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear<Bf16, F32>(args, live, rank, ranks);
}
void linear_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear<F16, F16>(args, live, rank, ranks);
}
void linear_f16_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear<F16, F32>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
