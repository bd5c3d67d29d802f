// Elementwise functions on sixteen floats, shared by the plain and the fused kernels so that both give the same bits.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/exp.h"
#include "backends/cpu/kernels/round_two.h"

namespace reprise::cpu::REPRISE_ISA {

// x / (1 + exp(-x)), written with exp(-|x|) so that nothing overflows: very negative x gives its true tiny value, then
// -0. The division costs nothing: the other steps keep the ports busy while the divider works.
inline F32x16 silu(F32x16 x) {
  const F32x16 e = exp_bounded(bits_as<F32x16>(bits_as<U32x16>(x) | 0x80000000u));
  // -inf * 0 would be NaN; below -200 the result is -0 anyway.
  const F32x16 bounded = larger(x, splat(-200.0f));
  return select(greater(zero(), x), bounded * e, x) / (e + 1.0f);
}

// silu(gate) * up of the first n of sixteen, not yet rounded; the gate's silu is.
template <typename E>
inline F32x16 silu_times_up(const typename E::Type* gate, const typename E::Type* up, int64_t n) {
  return E::round(silu(load_n<E>(gate, n))) * load_n<E>(up, n);
}

// The same of thirty-two: the first sixteen in a, the others in b.
template <typename E>
inline void silu_times_up_two(const typename E::Type* gate, const typename E::Type* up, F32x16& a, F32x16& b) {
  a = silu(E::load(gate));
  b = silu(E::load(gate + 16));
  round_two<E>(a, b);
  a *= E::load(up);
  b *= E::load(up + 16);
}

// A thread's part of the elements of a [rows, columns] tensor. Whole rows where every thread gets several of them, as
// the neighbours in the graph divide; else any 64 elements, so that one row keeps every thread busy.
inline Range share_rows_or_elements(int64_t rows, int64_t columns, int thread, int threads) {
  return rows >= 4 * threads ? share(rows * columns, columns > 0 ? columns : 1, thread, threads)
                             : share(rows * columns, 64, thread, threads);
}

// Calls body(row, first column, last column) for every row that the range touches.
template <typename Body>
inline void for_each_row_part(Range r, int64_t columns, const Body& body) {
  for (int64_t i = r.begin; i < r.end;) {
    const int64_t row = i / columns, first = i % columns;
    const int64_t last = columns < first + (r.end - i) ? columns : first + (r.end - i);
    body(row, first, last);
    i += last - first;
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
