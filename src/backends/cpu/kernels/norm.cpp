#include "backends/cpu/kernels/norm.h"

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: x, weight, bias or null, out. dim: first size, rows per unit of it, last size. scalar: eps.
// A single row is one rank's work: a second rank would save less than it costs to sum the row twice.
template <typename E, bool kBias>
void norm_rows(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  using T = typename E::Type;
  const auto* x = static_cast<const T*>(args.ptr[0]);
  const NormParams<E, kBias> params{static_cast<const T*>(args.ptr[1]), static_cast<const T*>(args.ptr[2])};
  auto* out = static_cast<T*>(args.ptr[3]);
  const int64_t n = args.dim[2].value(live);
  const Range rows = share(args.dim[0].value(live) * args.dim[1].value(live), rank, ranks);
  for (int64_t r = rows.begin; r < rows.end; ++r)
    rms_norm_row<E>(x + r * n, params, out + r * n, n, static_cast<float>(args.scalar[0]));
}

template <typename E>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  if (args.ptr[2])
    norm_rows<E, true>(args, live, rank, ranks);
  else
    norm_rows<E, false>(args, live, rank, ranks);
}

}  // namespace

REPRISE_KERNELS(rms_norm, run)

}  // namespace reprise::cpu::REPRISE_ISA
