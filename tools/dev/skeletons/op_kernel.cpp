// skeleton_op: what it computes, and where it rounds.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E>
void run(const UnaryArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  typename E::Type* out = a.out;
  const Range r = share_rows_or_elements(l.size(a.rows), a.width, l.thread, l.threads);
  // Here x as it is: write what the op computes, on 16 values in fp32.
  for (int64_t i = r.begin; i < r.end; i += 16) store_n<E>(out + i, load_n<E>(x + i, r.end - i), r.end - i);
}

}  // namespace

REPRISE_KERNELS(skeleton_op, run)

}  // namespace reprise::cpu::REPRISE_ISA
