// The two matrix products of attention as one micro-kernel: a few rows times a panel of the KV cache.
//
// A panel is what kv_layout.h describes: row after row of cells, one cell per column; for bf16 a cell is a pair of
// numbers along the summed dimension. Every (row, column) is one chain of multiply-adds in ascending order of the
// summed dimension, whatever the number of rows and columns computed together, so the blocking never shows in the bits.
#pragma once

#include "backends/cpu/kernels/elements.h"

namespace reprise::cpu::REPRISE_ISA {

// The widest vectors the processor has, for loops whose lanes are independent.
#if defined(__AVX512F__)
using Vec = __m512;
constexpr int kLanes = 16;
inline Vec vec_zero() { return _mm512_setzero_ps(); }
inline Vec vec_set(float x) { return _mm512_set1_ps(x); }
inline Vec vec_load(const float* p) { return _mm512_loadu_ps(p); }
inline void vec_store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec vec_fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec vec_load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
#elif defined(__AVX2__)
using Vec = __m256;
constexpr int kLanes = 8;
inline Vec vec_zero() { return _mm256_setzero_ps(); }
inline Vec vec_set(float x) { return _mm256_set1_ps(x); }
inline Vec vec_load(const float* p) { return _mm256_loadu_ps(p); }
inline void vec_store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec vec_fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec vec_load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
using Vec = __m128;
constexpr int kLanes = 4;
inline Vec vec_zero() { return _mm_setzero_ps(); }
inline Vec vec_set(float x) { return _mm_set1_ps(x); }
inline Vec vec_load(const float* p) { return _mm_loadu_ps(p); }
inline void vec_store(float* p, Vec v) { _mm_storeu_ps(p, v); }
inline Vec vec_fma(Vec a, Vec b, Vec c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
inline Vec vec_load_f16(const uint16_t* p) {
  return _mm_setr_ps(half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3]));
}
#endif

// Cell: what a panel holds per column. Factor: what the left side holds, kFactors of them per cell.
// Wide: kLanes cells ready to multiply. kStep: numbers along the summed dimension in a cell.
struct PanelF32 {
  using Cell = float;
  using Factor = float;
  using Wide = Vec;
  static constexpr int kStep = 1, kFactors = 1;
  static Wide load(const Cell* p) { return vec_load(p); }
  static Wide load(const Cell* p, uint32_t) { return load(p); }
  static Wide broadcast(const Factor* a) { return vec_set(*a); }
  static Vec multiply_add(Wide a, Wide b, Vec sum) { return vec_fma(a, b, sum); }
};

struct PanelF16 {
  using Cell = uint16_t;
  using Factor = float;
  using Wide = Vec;
  static constexpr int kStep = 1, kFactors = 1;
  static Wide load(const Cell* p) { return vec_load_f16(p); }
  static Wide load(const Cell* p, uint32_t) { return load(p); }
  static Wide broadcast(const Factor* a) { return vec_set(*a); }
  static Vec multiply_add(Wide a, Wide b, Vec sum) { return vec_fma(a, b, sum); }
};

#if defined(__AVX512BF16__)
struct PanelBf16 {
  using Cell = uint32_t;
  using Factor = uint32_t;  // two bf16
  using Wide = __m512i;
  static constexpr int kStep = 2, kFactors = 1;
  static Wide load(const Cell* p) { return _mm512_loadu_si512(p); }
  // Keeps the bits of `mask` in every cell, to drop one number of each pair.
  static Wide load(const Cell* p, uint32_t mask) {
    return _mm512_and_si512(load(p), _mm512_set1_epi32(static_cast<int>(mask)));
  }
  static Wide broadcast(const Factor* a) { return _mm512_set1_epi32(static_cast<int>(*a)); }
  static Vec multiply_add(Wide a, Wide b, Vec sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
#else
struct PanelBf16 {
  using Cell = uint32_t;
  using Factor = float;
  struct Wide {
    Vec even, odd;
  };
  static constexpr int kStep = 2, kFactors = 2;
  static Wide load(const Cell* p) { return load(p, 0xffffffffu); }
  static Wide load(const Cell* p, uint32_t mask) {
    alignas(32) uint32_t even[kLanes], odd[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      even[i] = (p[i] & mask) << 16;
      odd[i] = p[i] & mask & 0xffff0000u;
    }
    Wide w;
    std::memcpy(&w.even, even, sizeof(Vec));
    std::memcpy(&w.odd, odd, sizeof(Vec));
    return w;
  }
  static Wide broadcast(const Factor* a) { return {vec_set(a[0]), vec_set(a[1])}; }
  static Vec multiply_add(Wide a, Wide b, Vec sum) { return vec_fma(a.odd, b.odd, vec_fma(a.even, b.even, sum)); }
};
#endif

// Left rows, panel and result of one product.
template <typename P>
struct Product {
  const typename P::Factor* left;
  int64_t left_stride;  // in factors, from row to row
  const typename P::Cell* panel;
  int64_t panel_stride;  // in cells, from step to step
  float* out;
  int64_t out_stride;
  int64_t steps;
  uint32_t first_mask = 0xffffffffu;  // for the first step's cells; heeded by product_tail only
  uint32_t last_mask = 0xffffffffu;   // for the last step's cells
  const char* ahead = nullptr;        // bytes to bring into the cache while this product runs, as many as it reads
};

// kRows rows times kVecs vectors of columns. kAhead: with few rows memory is the limit, and asking for the next block
// keeps it busy.
template <typename P, int kRows, int kVecs, bool kAhead>
inline void product_block(const Product<P>& p) {
  // Loops over the accumulators must be unrolled early, or GCC 12 keeps them in memory.
  Vec sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) sum[r][v] = vec_zero();
  const typename P::Cell* cells = p.panel;
  const typename P::Factor* left = p.left;
  const int64_t stride = p.left_stride;
  const bool masked = p.last_mask != 0xffffffffu;
  [[maybe_unused]] const char* ahead = p.ahead;
  for (int64_t k = p.steps - (masked ? 1 : 0); k > 0; --k, cells += p.panel_stride, left += P::kFactors) {
    typename P::Wide wide[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) wide[v] = P::load(cells + v * kLanes);
    if constexpr (kAhead) {
      constexpr int kBytes = kVecs * kLanes * static_cast<int>(sizeof(typename P::Cell));
#pragma GCC unroll 8
      for (int b = 0; b < kBytes; b += 64) _mm_prefetch(ahead + b, _MM_HINT_T1);
      ahead += kBytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename P::Wide a = P::broadcast(left + r * stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sum[r][v] = P::multiply_add(a, wide[v], sum[r][v]);
    }
  }
  if (masked) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const typename P::Wide wide = P::load(cells + v * kLanes, p.last_mask);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][v] = P::multiply_add(P::broadcast(left + r * stride), wide, sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) vec_store(p.out + r * p.out_stride + v * kLanes, sum[r][v]);
}

// One row times `columns` <= kLanes columns; reads no cell beyond them, and heeds both masks. For edges: not fast.
template <typename P>
inline void product_tail(const Product<P>& p, int64_t columns) {
  Vec sum = vec_zero();
  for (int64_t k = 0; k < p.steps; ++k) {
    typename P::Cell cells[kLanes] = {};
    for (int64_t c = 0; c < columns; ++c) cells[c] = p.panel[k * p.panel_stride + c];
    const uint32_t mask = (k == 0 ? p.first_mask : 0xffffffffu) & (k + 1 == p.steps ? p.last_mask : 0xffffffffu);
    sum = P::multiply_add(P::broadcast(p.left + k * P::kFactors), P::load(cells, mask), sum);
  }
  float out[kLanes];
  vec_store(out, sum);
  for (int64_t c = 0; c < columns; ++c) p.out[c] = out[c];
}

// Rows and vectors of the largest block that stays in registers.
#if defined(__AVX512F__)
constexpr int kBlockRows = 6, kBlockVecs = 4;
constexpr int kFlatRows = 3, kFlatVecs = 8;  // few rows: wider blocks read a page in longer stretches
#else
constexpr int kBlockRows = 3, kBlockVecs = 4;
constexpr int kFlatRows = 3, kFlatVecs = 4;
#endif

template <typename P, int kVecs, bool kAhead = false>
inline void product_rows(const Product<P>& p, int64_t rows) {
  switch (rows) {
    case 1: return product_block<P, 1, kVecs, kAhead>(p);
    case 2: return product_block<P, 2, kVecs, kAhead>(p);
    case 3: return product_block<P, 3, kVecs, kAhead>(p);
  }
  if constexpr (!kAhead && kBlockRows > 3) switch (rows) {
      case 4: return product_block<P, 4, kVecs, kAhead>(p);
      case 5: return product_block<P, 5, kVecs, kAhead>(p);
      case 6: return product_block<P, 6, kVecs, kAhead>(p);
    }
}

}  // namespace reprise::cpu::REPRISE_ISA
