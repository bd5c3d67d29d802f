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
  static F32x16 round(F32x16 v) { return v; }
  static F32x16 store_rounded(float* p, F32x16 v) {
    REPRISE_ISA::store(p, v);
    return v;
  }
};

struct Bf16 {
  using Type = uint16_t;
  static F32x16 load(const uint16_t* p) { return load_bf16(p); }
  static void store(uint16_t* p, F32x16 v) { store_bf16(p, v); }
  static F32x16 round(F32x16 v) { return reinterpret_cast<F32x16>(bf16_bits(v) << 16); }
  static F32x16 store_rounded(uint16_t* p, F32x16 v) {
    const U32x16 bits = bf16_bits(v);
    store_bf16_bits(p, bits);
    return reinterpret_cast<F32x16>(bits << 16);
  }
};

struct F16 {
  using Type = uint16_t;
  static F32x16 load(const uint16_t* p) { return load_f16(p); }
  static void store(uint16_t* p, F32x16 v) { store_f16(p, v); }
  static F32x16 round(F32x16 v) {
    uint16_t part[16];
    return store_rounded(part, v);
  }
  static F32x16 store_rounded(uint16_t* p, F32x16 v) {
    store_f16(p, v);
    return load_f16(p);
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
