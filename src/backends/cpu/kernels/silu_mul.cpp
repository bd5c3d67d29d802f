// silu_mul: silu of the first half of a row, rounded as the meaning has it, times the second half.
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: gate_up, out. dim: rows, columns of out.
template <typename E>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* gate_up = static_cast<const typename E::Type*>(args.ptr[0]);
  auto* out = static_cast<typename E::Type*>(args.ptr[1]);
  const int64_t n = args.dim[1].value(live);
  const Range mine = share_rows_or_elements(args.dim[0].value(live), n, rank, ranks);
  for_each_row_part(mine, n, [&](int64_t row, int64_t first, int64_t last) {
    const auto* gate = gate_up + row * 2 * n + first;
    auto* to = out + row * n + first;
    int64_t i = 0;
    for (; i + 32 <= last - first; i += 32) {
      F32x16 a, b;
      silu_times_up_two<E>(gate + i, gate + n + i, a, b);
      E::store_two(to + i, a, b);
    }
    each_sixteen(last - first - i, [&](int64_t j, int64_t rest) {
      store_n<E>(to + i + j, silu_times_up<E>(gate + i + j, gate + n + i + j, rest), rest);
    });
  });
}

}  // namespace

REPRISE_KERNELS(silu_mul, run)

}  // namespace reprise::cpu::REPRISE_ISA
