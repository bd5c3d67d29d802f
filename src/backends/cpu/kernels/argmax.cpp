#include "backends/cpu/kernels/argmax.h"

#include "backends/cpu/kernels/define.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Workspace: argmax_shape.h.
template <typename E>
void search(const UnaryArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  const int64_t rows = l.size(a.rows), n = a.width;
  Best* found = static_cast<Best*>(l.workspace) + l.thread * best_stride(rows);
  const Range columns = l.share(n, 64);
  for (int64_t r = 0; r < rows; ++r) found[r] = best_of<E>(x + r * n, columns.begin, columns.end);
}

void merge_columns(const UnaryArgs& a, const Launch& l) {
  merge_best(static_cast<const Best*>(l.workspace), a.out, l.size(a.rows), l.thread, l.threads);
}

}  // namespace

REPRISE_KERNELS(argmax, search)
REPRISE_KERNEL(argmax_merge, merge_columns)

}  // namespace reprise::cpu::REPRISE_ISA
