// concat: the columns of two tensors side by side.
#include <cstring>

#include "backends/cpu/kernels/define.h"
#include "ops/args/encoder.h"

namespace reprise::cpu::REPRISE_ISA {

namespace {

void join_columns(const ConcatArgs& c, const Launch& l) {
  const char *a = c.a, *b = c.b;
  char* out = c.out;
  const Range mine = l.share(l.size(c.rows));
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    char* to = out + row * (c.a_width + c.b_width);
    std::memcpy(to, a + row * c.a_width, static_cast<size_t>(c.a_width));
    std::memcpy(to + c.a_width, b + row * c.b_width, static_cast<size_t>(c.b_width));
  }
}

}  // namespace

REPRISE_KERNEL(concat, join_columns)

}  // namespace reprise::cpu::REPRISE_ISA
