// silu_mul: silu of the first half of a row, rounded as the meaning has it, times the second half.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E>
void silu_mul_rows(const SiluMulArgs& a, const Launch& l) {
  const typename E::Type* gate_up = a.gate_up;
  typename E::Type* out = a.out;
  const int64_t n = a.width;
  const Range mine = share_rows_or_elements(l.size(a.rows), n, l.thread, l.threads);
  for_each_row_part(mine, n, [&](int64_t row, int64_t first, int64_t last) {
    const auto* gate = gate_up + row * 2 * n + first;
    auto* to = out + row * n + first;
    int64_t i = 0;
    for (; i + 32 <= last - first; i += 32) {
      F32x16 first_half, second_half;
      silu_times_up_two<E>(gate + i, gate + n + i, first_half, second_half);
      E::store_two(to + i, first_half, second_half);
    }
    each_sixteen(last - first - i, [&](int64_t j, int64_t rest) {
      store_n<E>(to + i + j, silu_times_up<E>(gate + i + j, gate + n + i + j, rest), rest);
    });
  });
}

}  // namespace

REPRISE_KERNELS(silu_mul, silu_mul_rows)

}  // namespace reprise::cpu::REPRISE_ISA
