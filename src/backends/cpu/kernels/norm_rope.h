// Norm and rotation of some heads at a time, for the fused kernels: the bits of rms_norm followed by rope.
#pragma once

#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/rope.h"
#include "backends/cpu/kernels/round_two.h"

namespace reprise::cpu::REPRISE_ISA {

constexpr int64_t kHeadsAtOnce = 16;

// Up to kHeadsAtOnce heads: several of one token (table_stride 0), or one of several tokens.
template <typename E>
struct HeadRows {
  using T = typename E::Type;
  const T* x;
  const float* table;
  T* out;
  int64_t x_stride, table_stride, out_stride;
  int64_t count;
};

// Whole heads of the usual sizes without a stop in memory between the two. All factors first: a head waits for its own
// through a sum, a root and a division, and meanwhile the processor goes on with the next head.
template <typename E, int kChunks>
inline void norm_rope_whole(const HeadRows<E>& rows, const typename E::Type* weight, float eps) {
  constexpr int kPairs = kChunks / 2;
  static_assert(kPairs % 2 == 0);
  float factors[kHeadsAtOnce];
  for (int64_t r = 0; r < rows.count; ++r) {
    const typename E::Type* x = rows.x + r * rows.x_stride;
    F32x16 squares = zero();
#pragma GCC unroll 8
    for (int i = 0; i < kChunks; ++i) {
      const F32x16 v = E::load(x + 16 * i);
      squares = fma(v, v, squares);
    }
    factors[r] = rms_factor_of(squares, 16 * kChunks, eps);
  }
  alignas(64) float weights[16 * kChunks];
  for (int i = 0; i < kChunks; ++i) store(weights + 16 * i, E::load(weight + 16 * i));
  for (int64_t r = 0; r < rows.count; ++r) {
    const typename E::Type* x = rows.x + r * rows.x_stride;
    const float* table = rows.table + r * rows.table_stride;
    typename E::Type* out = rows.out + r * rows.out_stride;
    const F32x16 factor = splat(factors[r]);
    auto normed = [&](int i) { return E::load(x + 16 * i) * factor * load(weights + 16 * i); };
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; i += 2) {
      F32x16 a[2] = {normed(i), normed(i + 1)}, b[2] = {normed(i + kPairs), normed(i + 1 + kPairs)};
      round_two<E>(a[0], a[1]);
      round_two<E>(b[0], b[1]);
      const F32x16 c[2] = {load(table + 16 * i), load(table + 16 * (i + 1))};
      const F32x16 s[2] = {load(table + 16 * (i + kPairs)), load(table + 16 * (i + 1 + kPairs))};
      E::store_two(out + 16 * i, rope_first(a[0], b[0], c[0], s[0]), rope_first(a[1], b[1], c[1], s[1]));
      E::store_two(out + 16 * (i + kPairs), rope_second(a[0], b[0], c[0], s[0]), rope_second(a[1], b[1], c[1], s[1]));
    }
  }
}

// `size` elements a head, of which the first `rot` are rotated; no norm without a weight.
template <typename E>
inline void norm_rope(const HeadRows<E>& rows, const typename E::Type* weight, int64_t size, int64_t rot, float eps) {
  if (weight && rot == size && size == 128) return norm_rope_whole<E, 8>(rows, weight, eps);
  if (weight && rot == size && size == 64) return norm_rope_whole<E, 4>(rows, weight, eps);
  for (int64_t r = 0; r < rows.count; ++r) {
    const typename E::Type* x = rows.x + r * rows.x_stride;
    typename E::Type* out = rows.out + r * rows.out_stride;
    if (weight) {
      rms_norm_row<E>(x, weight, out, size, eps);
      x = out;
    }
    rope_head<E>(x, rows.table + r * rows.table_stride, out, rot / 2, size);
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
