// The two matrix products of attention as one micro-kernel: a few rows times a panel of the KV cache.
//
// A panel is what kv_layout.h describes: row after row of cells, one cell per column; for bf16 a cell is a pair of
// numbers along the summed dimension. Values and what is widened have all columns of a row side by side; keys have runs
// of sixteen columns, one panel behind the other. Every (row, column) is one chain of multiply-adds in ascending order
// of the summed dimension, regardless of the number of rows and columns computed together, so the blocking never shows
// in the bits.
#pragma once

#include <type_traits>

#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/float_mode.h"
#include "backends/cpu/kernels/kv_layout.h"
#include "backends/cpu/kernels/vector_register.h"

namespace reprise::cpu::REPRISE_ISA {

// Cell: what a panel holds per column. Factor: what the left side holds, kFactors of them per cell.
// kStep: numbers along the summed dimension in a cell. kParts: multiply-adds that a cell takes; load gives kLanes
// cells ready for one of them, of which the bits of `mask` count. kWiden: for many rows, cells are made floats
// beforehand. kScaled: a scale per token lies behind the cells of a block; products are made of the numbers without it.
struct PanelF32 {
  using Cell = float;
  using Factor = float;
  static constexpr int kStep = 1, kFactors = 1, kParts = 1;
  static constexpr bool kWiden = false, kScaled = false, kUnit = false;
  template <int kPart>
  static Reg load(const Cell* p, uint32_t) {
    return reg_load(p);
  }
  template <int kPart>
  static Reg broadcast(const Factor* a) {
    return reg_splat(*a);
  }
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return reg_fma(a, b, sum); }
};

struct PanelF16 {
  using Cell = uint16_t;
  using Factor = float;
  static constexpr int kStep = 1, kFactors = 1, kParts = 1;
  static constexpr bool kWiden = true, kScaled = false, kUnit = false;
  template <int kPart>
  static Reg load(const Cell* p, uint32_t) {
    return reg_f16(p);
  }
  template <int kPart>
  static Reg broadcast(const Factor* a) {
    return reg_splat(*a);
  }
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return reg_fma(a, b, sum); }
};

struct PanelI8 {
  using Cell = int8_t;
  using Factor = float;
  static constexpr int kStep = 1, kFactors = 1, kParts = 1;
  static constexpr bool kWiden = true, kScaled = true, kUnit = false;
  template <int kPart>
  static Reg load(const Cell* p, uint32_t) {
    return reg_i8(p);
  }
  template <int kPart>
  static Reg broadcast(const Factor* a) {
    return reg_splat(*a);
  }
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return reg_fma(a, b, sum); }
};

// The odd number of a pair is added before the even one: that is what vdpbf16ps does, so that with subnormals flushed
// both panels give the same bits, and each processor may take the faster one. The factors of a pair are swapped: they
// lie in the order of use.
struct PanelBf16 {
  using Cell = uint32_t;
  using Factor = float;
  static constexpr int kStep = 2, kFactors = 2, kParts = 2;
  static constexpr bool kWiden = true, kScaled = false, kUnit = false;
  template <int kPart>
  static Reg load(const Cell* p, uint32_t mask) {
    if (kPart == 0) return reg_words_and(p, mask & 0xffff0000u);
    return mask & 0xffffu ? reg_even_bf16(p) : reg_zero();
  }
  template <int kPart>
  static Reg broadcast(const Factor* a) {
    return reg_splat(a[kPart]);
  }
  static Reg multiply_add(Reg a, Reg b, Reg sum) { return reg_fma(a, b, sum); }
};

// What widen_panel leaves: floats in the order of use. A mask drops the first of the last two steps, the odd number.
struct PanelWide : PanelF32 {};

#if defined(__AVX512BF16__)
constexpr bool kDotBits = true;  // whether bf16 products are those of vdpbf16ps
struct PanelBf16Dot {
  using Cell = uint32_t;
  using Factor = uint32_t;  // two bf16
  static constexpr int kStep = 2, kFactors = 1, kParts = 1;
  static constexpr bool kWiden = false, kScaled = false, kUnit = false;
  template <int kPart>
  static Reg load(const Cell* p, uint32_t mask) {
    const __m512i cells = _mm512_loadu_si512(p);
    if (mask == 0xffffffffu) return _mm512_castsi512_ps(cells);
    return _mm512_castsi512_ps(_mm512_and_si512(cells, _mm512_set1_epi32(static_cast<int>(mask))));
  }
  template <int kPart>
  static Reg broadcast(const Factor* a) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*a)));
  }
  static Reg multiply_add(Reg a, Reg b, Reg sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
#else
constexpr bool kDotBits = false;
#endif

#ifdef REPRISE_TILES
// Pairs of bf16 on both sides, as the tile registers take them. No masks: attention_unit.h has zeros in their place.
struct PanelUnit {
  using Cell = uint32_t;
  using Factor = uint32_t;
  static constexpr int kStep = 2, kFactors = 1, kParts = 1;
  static constexpr bool kWiden = false, kScaled = false, kUnit = true;
};
#endif

// Subnormal results become zeros while it lives, because the weights of far lower scores are some and cost a hundred
// times as much; with pairs, subnormal factors as well, as vdpbf16ps and tile registers have it.
template <typename P>
class Flush {
 public:
  Flush() : saved_(float_mode()) {
    set_float_mode(saved_ | (P::kUnit || (kDotBits && P::kStep == 2) ? kFlushAll : kFlushResults));
  }
  ~Flush() { set_float_mode(saved_); }
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;

 private:
  FloatMode saved_;
};

// Left rows, panel and result of one product.
template <typename P>
struct Product {
  const typename P::Factor* left;
  int64_t left_stride;  // in factors, from row to row
  const typename P::Cell* panel;
  int64_t panel_stride;  // in cells, from step to step; of keys kKeyRun
  float* out;
  int64_t out_stride;
  int64_t steps;
  uint32_t first_mask = 0xffffffffu;  // for the first step's cells; heeded by product_tail only
  uint32_t last_mask = 0xffffffffu;   // for the last step's cells
  // Bytes to bring into the cache while this product runs: as many as it reads, and none from ahead_end on.
  const char* ahead = nullptr;
  const char* ahead_end = nullptr;
};

// Whether the columns of a panel lie in runs of keys, `run` cells apart, or all side by side.
enum class Columns { Together, Runs };

template <Columns kColumns, typename Cell>
inline const Cell* cells_of(const Cell* cells, int64_t run, int v) {
  constexpr int kRun = static_cast<int>(kKeyRun);
  return kColumns == Columns::Runs ? cells + v * kLanes / kRun * run + v * kLanes % kRun : cells + v * kLanes;
}

// One step of a block. With fewer rows than vectors the left side stays in registers, else the cells do.
template <typename P, int kRows, int kVecs, int kPart, Columns kColumns>
inline void product_step(Reg (&sum)[kRows][kVecs], const typename P::Cell* cells, int64_t run,
                         const typename P::Factor* left, int64_t stride, uint32_t mask) {
  if constexpr (kRows < kVecs) {
    Reg a[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) a[r] = P::template broadcast<kPart>(left + r * stride);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const Reg wide = P::template load<kPart>(cells_of<kColumns>(cells, run, v), mask);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][v] = P::multiply_add(a[r], wide, sum[r][v]);
    }
  } else {
    Reg wide[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) wide[v] = P::template load<kPart>(cells_of<kColumns>(cells, run, v), mask);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Reg a = P::template broadcast<kPart>(left + r * stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sum[r][v] = P::multiply_add(a, wide[v], sum[r][v]);
    }
  }
}

// kRows rows times kVecs vectors of columns. kAhead: with few rows memory is the limit, and asking for the next block
// keeps it busy.
template <typename P, int kRows, int kVecs, bool kAhead, Columns kColumns>
__attribute__((noinline)) void product_block(const Product<P>& p) {
  // Loops over the accumulators must be unrolled early, or GCC 12 keeps them in memory.
  Reg sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) sum[r][v] = reg_zero();
  const typename P::Cell* cells = p.panel;
  const typename P::Factor* left = p.left;
  const int64_t stride = p.left_stride;
  constexpr uint32_t kAll = 0xffffffffu;
  const int64_t run = p.steps * kKeyRun;
  const bool masked = p.last_mask != kAll;
  [[maybe_unused]] const char* ahead = p.ahead;
  constexpr int kMasked = std::is_same_v<P, PanelWide> ? 2 : 1;
  for (int64_t k = p.steps - (masked ? kMasked : 0); k > 0; --k, cells += p.panel_stride, left += P::kFactors) {
    if constexpr (kAhead) {
      constexpr int kBytes = kVecs * kLanes * static_cast<int>(sizeof(typename P::Cell));
      if (ahead < p.ahead_end) {
#pragma GCC unroll 8
        for (int b = 0; b < kBytes; b += 64) fetch_second_level(ahead + b);
        ahead += kBytes;
      }
    }
    product_step<P, kRows, kVecs, 0, kColumns>(sum, cells, run, left, stride, kAll);
    if constexpr (P::kParts == 2) product_step<P, kRows, kVecs, 1, kColumns>(sum, cells, run, left, stride, kAll);
  }
  if (masked) {
    if constexpr (std::is_same_v<P, PanelWide>) ++left, cells += p.panel_stride;
    product_step<P, kRows, kVecs, 0, kColumns>(sum, cells, run, left, stride, p.last_mask);
    if constexpr (P::kParts == 2)
      product_step<P, kRows, kVecs, 1, kColumns>(sum, cells, run, left, stride, p.last_mask);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) reg_store(p.out + r * p.out_stride + v * kLanes, sum[r][v]);
}

// One row times `columns` <= kLanes columns; reads no cell beyond them, and heeds both masks. For edges: not fast.
template <typename P>
inline void product_tail(const Product<P>& p, int64_t columns) {
  Reg sum = reg_zero();
  for (int64_t k = 0; k < p.steps; ++k) {
    typename P::Cell cells[kLanes] = {};
    for (int64_t c = 0; c < columns; ++c) cells[c] = p.panel[k * p.panel_stride + c];
    const uint32_t mask = (k == 0 ? p.first_mask : 0xffffffffu) & (k + 1 == p.steps ? p.last_mask : 0xffffffffu);
    const typename P::Factor* left = p.left + k * P::kFactors;
    sum = P::multiply_add(P::template broadcast<0>(left), P::template load<0>(cells, mask), sum);
    if constexpr (P::kParts == 2)
      sum = P::multiply_add(P::template broadcast<1>(left), P::template load<1>(cells, mask), sum);
  }
  float out[kLanes];
  reg_store(out, sum);
  for (int64_t c = 0; c < columns; ++c) p.out[c] = out[c];
}

// Rows and vectors of the largest block that stays in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kPanelRows = 6, kBlockVecs = 4;
constexpr int kFlatRows = 3, kFlatVecs = 8;  // few rows: wider blocks read a page in longer stretches
#else
constexpr int kPanelRows = 3, kBlockVecs = 4;
constexpr int kFlatRows = 3, kFlatVecs = 4;
#endif

// `steps` rows of cells, kBlockVecs vectors wide, as floats one row behind the other.
template <typename P, Columns kColumns>
inline void widen_panel(const typename P::Cell* cells, int64_t stride, int64_t steps, float* out) {
  constexpr int kWidth = kBlockVecs * kLanes;
  const int64_t run = steps * kKeyRun;
  for (int64_t s = 0; s < steps; ++s, cells += stride, out += P::kParts * kWidth)
    for (int v = 0; v < kBlockVecs; ++v) {
      const typename P::Cell* from = cells_of<kColumns>(cells, run, v);
      reg_store(out + v * kLanes, P::template load<0>(from, 0xffffffffu));
      if constexpr (P::kParts == 2) reg_store(out + kWidth + v * kLanes, P::template load<1>(from, 0xffffffffu));
    }
}

template <typename P, int kVecs, Columns kColumns = Columns::Together, bool kAhead = false>
inline void product_rows(const Product<P>& p, int64_t rows) {
  switch (rows) {
    case 1: return product_block<P, 1, kVecs, kAhead, kColumns>(p);
    case 2: return product_block<P, 2, kVecs, kAhead, kColumns>(p);
    case 3: return product_block<P, 3, kVecs, kAhead, kColumns>(p);
  }
  if constexpr (!kAhead && kPanelRows > 3) switch (rows) {
      case 4: return product_block<P, 4, kVecs, kAhead, kColumns>(p);
      case 5: return product_block<P, 5, kVecs, kAhead, kColumns>(p);
      case 6: return product_block<P, 6, kVecs, kAhead, kColumns>(p);
    }
}

}  // namespace reprise::cpu::REPRISE_ISA
