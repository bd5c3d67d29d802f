// sum_parts: the parts of all ranks, side by side in a row, added in the order of ranks; then a bias, and one rounding.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elements.h"
#include "base/dtype.h"
#include "ops/args/collectives.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

F32x16 load_of(DType type, const void* numbers, int64_t first, int64_t n) {
  switch (type) {
    case DType::BF16: return load_n<Bf16>(static_cast<const uint16_t*>(numbers) + first, n);
    case DType::F16: return load_n<F16>(static_cast<const uint16_t*>(numbers) + first, n);
    default: return load_n<F32>(static_cast<const float*>(numbers) + first, n);
  }
}

template <class Out>
void sum_rows(const SumPartsArgs& a, Range rows, Range columns) {
  const float *x = a.x, *own = a.own;
  auto* out = static_cast<typename Out::Type*>(a.out.data);
  for (int64_t r = rows.begin; r < rows.end; ++r)
    each_sixteen(columns.end - columns.begin, [&](int64_t i, int64_t n) {
      const int64_t c = columns.begin + i;
      const float* from = x + r * a.parts * a.width + c;
      // The rank's own part is in its caches still, and what ranks exchange is not.
      const auto part = [&](int64_t p) { return p == a.place ? own + r * a.width + c : from + p * a.width; };
      F32x16 sum = load_n<F32>(part(0), n);
      for (int64_t p = 1; p < a.parts; ++p) sum = sum + load_n<F32>(part(p), n);
      if (a.bias.data) sum = sum + load_of(a.bias_type, a.bias.data, c, n);
      store_n<Out>(out + r * a.width + c, sum, n);
    });
}

void add_parts(const SumPartsArgs& a, const Launch& l) {
  const int64_t all = l.size(a.rows);
  constexpr int64_t kLine = 16;
  const bool by_rows = all >= 4 * l.threads;
  const Range rows = by_rows ? l.share(all) : Range{0, all};
  const Range columns = by_rows ? Range{0, a.width} : l.share(a.width, kLine);
  switch (a.out_type) {
    case DType::BF16: return sum_rows<Bf16>(a, rows, columns);
    case DType::F16: return sum_rows<F16>(a, rows, columns);
    default: return sum_rows<F32>(a, rows, columns);
  }
}

}  // namespace

REPRISE_KERNEL(sum_parts, add_parts)

}  // namespace reprise::cpu::REPRISE_ISA
