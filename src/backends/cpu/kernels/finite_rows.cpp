// Whether the numbers of a row are finite.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/simd.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// A number minus itself is 0, or NaN where it is not finite, which no sum loses.
template <typename E>
void look(const UnaryArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  int32_t* out = a.out;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const typename E::Type* row = x + r * a.width;
    F32x16 sum = splat(0);
    int64_t i = 0;
    for (; i + 16 <= a.width; i += 16) {
      const F32x16 v = E::load(row + i);
      sum += v - v;
    }
    const F32x16 rest = load_n<E>(row + i, a.width - i);
    sum += rest - rest;
    out[r] = reduce_add(sum) == 0 ? 1 : 0;
  }
}

}  // namespace

REPRISE_KERNELS(finite_rows, look)

}  // namespace reprise::cpu::REPRISE_ISA
