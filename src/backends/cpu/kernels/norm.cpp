#include "backends/cpu/kernels/norm.h"

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: x, weight, out. dim: first size, rows per unit of it, last size. scalar: eps.
// A single row is one rank's work: a second rank would save less than it costs to sum the row twice.
template <typename E>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  const auto* weight = static_cast<const typename E::Type*>(args.ptr[1]);
  auto* out = static_cast<typename E::Type*>(args.ptr[2]);
  const int64_t n = args.dim[2].value(live);
  const Range rows = share(args.dim[0].value(live) * args.dim[1].value(live), rank, ranks);
  for (int64_t r = rows.begin; r < rows.end; ++r)
    rms_norm_row<E>(x + r * n, weight, out + r * n, n, static_cast<float>(args.scalar[0]));
}

}  // namespace

void rms_norm_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<F32>(args, live, rank, ranks);
}
void rms_norm_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<Bf16>(args, live, rank, ranks);
}
void rms_norm_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<F16>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
