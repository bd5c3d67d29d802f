#include "backends/cpu/kernels/argmax.h"

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: x, out. dim: rows, columns. Workspace: argmax_shape.h.
template <typename E>
void search(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  const int64_t rows = args.dim[0].value(live), n = args.dim[1].value(live);
  Best* found = static_cast<Best*>(args.workspace) + rank * best_stride(rows);
  const Range columns = share(n, 64, rank, ranks);
  for (int64_t r = 0; r < rows; ++r) found[r] = best_of<E>(x + r * n, columns.begin, columns.end);
}

}  // namespace

REPRISE_KERNELS(argmax, search)
void argmax_merge(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  merge_best(static_cast<const Best*>(args.workspace), static_cast<int32_t*>(args.ptr[1]), args.dim[0].value(live),
             rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
