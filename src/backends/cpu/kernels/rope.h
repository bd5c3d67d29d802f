// Rotation of one head by one row of the table, shared by the plain and the fused kernels so that both give the same
// bits.
#pragma once

#include "backends/cpu/kernels/elements.h"

namespace reprise::cpu::REPRISE_ISA {

// One pair of every lane, by cosine and sine.
inline F32x16 rope_first(F32x16 a, F32x16 b, F32x16 c, F32x16 s) { return fma(-b, s, a * c); }
inline F32x16 rope_second(F32x16 a, F32x16 b, F32x16 c, F32x16 s) { return fma(a, s, b * c); }

// Pairs (i, i + half) of the first 2 * half elements; the rest up to `size` is copied. out may be x.
template <typename E>
inline void rope_head(const typename E::Type* x, const float* table, typename E::Type* out, int64_t half,
                      int64_t size) {
  for (int64_t i = 0; i < half; i += 16) {
    const int64_t n = half - i;
    const F32x16 a = load_n<E>(x + i, n), b = load_n<E>(x + half + i, n);
    const F32x16 c = load_n<F32>(table + i, n), s = load_n<F32>(table + half + i, n);
    store_n<E>(out + i, rope_first(a, b, c, s), n);
    store_n<E>(out + half + i, rope_second(a, b, c, s), n);
  }
  for (int64_t i = 2 * half; i < size; ++i) out[i] = x[i];
}

// The same with pairs (2 i, 2 i + 1), whose results lie at (i, i + half). out may not be x.
template <typename E>
inline void rope_neighbours(const typename E::Type* x, const float* table, typename E::Type* out, int64_t half,
                            int64_t size) {
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    const F32x16 low = E::load(x + 2 * i), high = E::load(x + 2 * i + 16);
    const F32x16 a = even_lanes(low, high), b = odd_lanes(low, high);
    const F32x16 c = load(table + i), s = load(table + half + i);
    E::store(out + i, rope_first(a, b, c, s));
    E::store(out + half + i, rope_second(a, b, c, s));
  }
  for (; i < half; i += 8) {  // the same numbers, those of a pair beside each other
    const int64_t pairs = half - i < 8 ? half - i : 8;
    const F32x16 v = load_n<E>(x + 2 * i, 2 * pairs);
    const F32x16 c = load_n<F32>(table + i, pairs), s = load_n<F32>(table + half + i, pairs);
    const F32x16 cosines = interleave_low(c, c);
    const F32x16 sines = interleave_low(-s, s);
    const F32x16 r = fma(swap_pairs(v), sines, v * cosines);
    store_n<E>(out + i, even_lanes(r, r), pairs);
    store_n<E>(out + half + i, odd_lanes(r, r), pairs);
  }
  for (int64_t d = 2 * half; d < size; ++d) out[d] = x[d];
}

}  // namespace reprise::cpu::REPRISE_ISA
