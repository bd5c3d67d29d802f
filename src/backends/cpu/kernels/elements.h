// Storage types of kernel sources: how sixteen elements (or the n < 16 of a tail) of one dtype become floats and go
// back. A tail is padded with zeros, so that code after the load is the same for every length. round() gives what a
// store and a load would: fused kernels call it where their meaning has a value of the dtype.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {

struct F32 {
  using Type = float;
  static F32x16 load(const float* p) { return REPRISE_ISA::load(p); }
  static void store(float* p, F32x16 v) { REPRISE_ISA::store(p, v); }
  static void store_two(float* p, F32x16 a, F32x16 b) {
    REPRISE_ISA::store(p, a);
    REPRISE_ISA::store(p + 16, b);
  }
  static F32x16 round(F32x16 v) { return v; }
  static F32x16 store_rounded(float* p, F32x16 v) {
    REPRISE_ISA::store(p, v);
    return v;
  }
};

struct Bf16 {
  using Type = uint16_t;
  static F32x16 load(const uint16_t* p) { return widen_bf16(load_16bit(p)); }
  static void store(uint16_t* p, F32x16 v) { store_16bit(p, narrow_bf16(v)); }
  static void store_two(uint16_t* p, F32x16 a, F32x16 b) { store_two_bf16(p, a, b); }
  static F32x16 round(F32x16 v) { return round_bf16(v); }
  static F32x16 store_rounded(uint16_t* p, F32x16 v) {
    const U16x16 bits = narrow_bf16(v);
    store_16bit(p, bits);
    return widen_bf16(bits);
  }
};

struct F16 {
  using Type = uint16_t;
  static F32x16 load(const uint16_t* p) { return widen_f16(load_16bit(p)); }
  static void store(uint16_t* p, F32x16 v) { store_16bit(p, narrow_f16(v)); }
  static void store_two(uint16_t* p, F32x16 a, F32x16 b) {
    store(p, a);
    store(p + 16, b);
  }
  static F32x16 round(F32x16 v) { return widen_f16(narrow_f16(v)); }
  static F32x16 store_rounded(uint16_t* p, F32x16 v) {
    const U16x16 bits = narrow_f16(v);
    store_16bit(p, bits);
    return widen_f16(bits);
  }
};

// The first n of sixteen, 0 <= n <= 16; nothing behind them is touched.
template <typename E>
inline F32x16 load_n(const typename E::Type* p, int64_t n) {
  if (n >= 16) return E::load(p);
  typename E::Type part[16] = {};
  for (int64_t i = 0; i < n; ++i) part[i] = p[i];
  return E::load(part);
}

template <typename E>
inline void store_n(typename E::Type* p, F32x16 v, int64_t n) {
  if (n >= 16) return E::store(p, v);
  typename E::Type part[16];
  E::store(part, v);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}

// Calls f(i, 16) for whole sixteens of [0, n) and f(i, rest) for what is left. Apart from each other, because a tail
// goes through memory and calls: in one loop with it, nothing would stay in registers.
template <typename F>
inline void each_sixteen(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, int64_t{16});
  if (i < n) f(i, n - i);
}

// out[i] for i in [0, n), where f(i, rest) gives the sixteen from i on and may look at `rest` of them at most.
template <typename E, typename F>
inline void store_each(typename E::Type* out, int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) E::store_two(out + i, f(i, int64_t{16}), f(i + 16, int64_t{16}));
  for (; i < n; i += 16) store_n<E>(out + i, f(i, n - i), n - i);
}

// store_n and round in one.
template <typename E>
inline F32x16 store_rounded_n(typename E::Type* p, F32x16 v, int64_t n) {
  if (n >= 16) return E::store_rounded(p, v);
  typename E::Type part[16];
  v = E::store_rounded(part, v);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
  return v;
}

}  // namespace reprise::cpu::REPRISE_ISA
