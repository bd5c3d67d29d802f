#include "backends/cpu/kernels/norm.h"

#include "backends/cpu/kernels/table.h"
#include "ops/args/norms.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// A single row is one thread's work: a second thread would save less than it costs to sum the row twice.
template <typename E, bool kBias>
void norm_rows(const RmsNormArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T* x = a.x;
  const NormParams<E, kBias> params{a.weight, a.bias};
  T* out = a.out;
  const int64_t n = a.width;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r)
    rms_norm_row<E>(x + r * n, params, out + r * n, n, static_cast<float>(a.eps));
}

template <typename E>
void run(const RmsNormArgs& a, const Launch& l) {
  if (a.bias)
    norm_rows<E, true>(a, l);
  else
    norm_rows<E, false>(a, l);
}

}  // namespace

REPRISE_KERNELS(rms_norm, run)

}  // namespace reprise::cpu::REPRISE_ISA
