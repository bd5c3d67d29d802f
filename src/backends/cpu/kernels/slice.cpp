// slice and copy: bytes from one place to another.
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/table.h"
#include "ops/args/elements.h"

namespace reprise::cpu::REPRISE_ISA {

namespace {

void take_columns(const SliceArgs& a, const Launch& l) {
  const char* x = a.x;
  char* out = a.out;
  const int64_t width = a.width * a.element, begin = a.begin * a.element, size = a.size * a.element;  // in bytes
  const Range mine = share_rows_or_elements(l.size(a.rows), size, l.thread, l.threads);
  if (mine.begin == mine.end) return;  // an empty tensor may have no address
  for_each_row_part(mine, size, [&](int64_t row, int64_t first, int64_t last) {
    std::memcpy(out + row * size + first, x + row * width + begin + first, static_cast<size_t>(last - first));
  });
}

void copy_bytes(const CopyArgs& a, const Launch& l) {
  const char* x = a.x;
  char* out = a.out;
  const Range mine = l.share(l.size(a.rows) * a.width * a.element, 64);
  if (mine.begin == mine.end) return;  // an empty tensor may have no address
  std::memcpy(out + mine.begin, x + mine.begin, static_cast<size_t>(mine.end - mine.begin));
}

}  // namespace

REPRISE_KERNEL(slice, take_columns)
REPRISE_KERNEL(copy, copy_bytes)

}  // namespace reprise::cpu::REPRISE_ISA
