#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/simd.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {

namespace {

void pick(const IndexSelectArgs& a, const Launch& l) {
  const char* x = a.x;
  const int32_t* index = a.index;
  char* out = a.out;
  const int64_t count = l.size(a.x_rows), bytes = a.width * a.element;
  const Range r = l.share(l.size(a.rows));
  for (int64_t i = r.begin; i < r.end; ++i) {
    if (index[i] >= 0 && index[i] < count)
      std::memcpy(out + i * bytes, x + index[i] * bytes, static_cast<size_t>(bytes));
    else
      std::memset(out + i * bytes, 0, static_cast<size_t>(bytes));
  }
}

}  // namespace

REPRISE_KERNEL(rows, pick)

}  // namespace reprise::cpu::REPRISE_ISA
