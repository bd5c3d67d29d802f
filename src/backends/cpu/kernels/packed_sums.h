// Register tiles of a matrix product of bf16 rows with weights in GGUF blocks: sums by blocks of 32 k, of q6_k of 16.
//
// The numbers of a block are exact in bf16, so they are added up as they are, and a factor is one multiply-add a block
// and column: s = a chain from 0 over the pairs (k, k + 4) of each eight k in turn, the second of a pair first; then
// sum = fma(d, s, sum), and where the format has minima sum = fma(m, X, sum) with the block's sum X of the row.
// Subnormals are zeros. That is what vdpbf16ps does with a pair, so the instruction and its emulation give the same
// bits, and neither tiles nor rows change any.
//
// The chain of packed_tiles.h (fp32 and f16) multiplies each number by its factor first, once for all rows of a tile.
#pragma once

#include "backends/cpu/kernels/packed_formats.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Two ways with the same bits; the faster one depends on the processor. Of each: an item of a row of x (4 bytes), items
// of 32 k, such k of x as items, and the product with pair kPair of a group and those behind it. Products are
// inlined by force, or GCC 12 keeps the sums in memory.
struct PairFloats {  // the numbers of a pair one after the other, the second one first
  using Item = float;
  static constexpr int kItems = kUnitK;

  static void arrange(const uint16_t* x, Item* out) {
    float wide[kUnitK];
    store(wide, Bf16::load(x));
    store(wide + 16, Bf16::load(x + 16));
    for (int64_t g = 0; g < kUnitK; g += 8)
      for (int64_t i = 0; i < 4; ++i) {
        out[g + 2 * i] = wide[g + i + 4];
        out[g + 2 * i + 1] = wide[g + i];
      }
  }

  template <class P, int kPart, int kItem, int MR, int NV>
  static __attribute__((always_inline)) void add_number(Reg (&s)[MR][NV], const RowsOfThree<Item, MR>& x,
                                                        const uint8_t* group, int column) {
    Reg b[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) b[j] = P::template number<kPart>(group, column + j * kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m) {
      const Reg a = reg_splat(x.of(m, kItem));
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) s[m][j] = reg_fma(a, b[j], s[m][j]);
    }
  }

  template <class P, int kPair = 0, int MR, int NV>
  static __attribute__((always_inline)) void add_pairs(Reg (&s)[MR][NV], const RowsOfThree<Item, MR>& x,
                                                       const uint8_t* group, int column) {
    add_number<P, kPair + 4, 2 * kPair>(s, x, group, column);
    add_number<P, kPair, 2 * kPair + 1>(s, x, group, column);
    if constexpr (kPair < 3) add_pairs<P, kPair + 1>(s, x, group, column);
  }
};

#if defined(__AVX512BF16__)
struct PairWords {  // a pair as bf16 in one word, the first number in its low half
  using Item = uint32_t;
  static constexpr int kItems = kUnitK / 2;

  static void arrange(const uint16_t* x, Item* out) {
    const __m512i order = _mm512_set_epi16(31, 27, 30, 26, 29, 25, 28, 24, 23, 19, 22, 18, 21, 17, 20, 16, 15, 11, 14,
                                           10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, _mm512_loadu_si512(x)));
  }

  template <class P, int kPair = 0, int MR, int NV>
  static __attribute__((always_inline)) void add_pairs(Reg (&s)[MR][NV], const RowsOfThree<Item, MR>& x,
                                                       const uint8_t* group, int column) {
    __m512i b[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) b[j] = P::template pair<kPair>(group, column + j * kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m) {
      const __m512i a = _mm512_set1_epi32(static_cast<int>(x.of(m, kPair)));
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j)
        s[m][j] = _mm512_dpbf16_ps(s[m][j], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b[j]));
    }
    if constexpr (kPair < 3) add_pairs<P, kPair + 1>(s, x, group, column);
  }
};
#endif

// Rows of x as the tiles read them: items in the order of use, and for formats with minima X of every block.
template <class W>
struct PairRows {
  const typename W::Item* items;
  const float* sums;
  int64_t stride;  // from row to row, of both
  PairRows from(int64_t row) const { return {items + row * stride, sums + row * stride, stride}; }
};

template <class W, class P>
PairRows<W> pair_rows(const uint16_t* x, int64_t rows, int64_t k, float* scratch) {
  static_assert(!P::kMinimum || P::kBlockK == kUnitK);
  const int64_t stride = packed_x_stride(k), items = k / kUnitK * W::kItems;
  auto* to = reinterpret_cast<typename W::Item*>(scratch);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < k / kUnitK; ++b) {
      const uint16_t* block = x + r * k + b * kUnitK;
      W::arrange(block, to + r * stride + b * W::kItems);
      if constexpr (P::kMinimum)
        scratch[r * stride + items + b] = reduce_add(Bf16::load(block) + Bf16::load(block + 16));
    }
  return {to, scratch + items, stride};
}

// c[m][0, NV * kLanes) = x[m] . w over all blocks.
template <class W, class P, int MR, int NV>
void sums_tile(const PairRows<W>& rows, const uint8_t* panel, int64_t blocks, int column, float* c, bool ahead) {
  RowsOfThree<typename W::Item, MR> x(rows.items, rows.stride);
  BlockWalk<P> at(panel, 0);
  for (int64_t i = 0; i < blocks; ++i, at.step()) {
    Reg s[MR][NV];
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) s[m][j] = reg_zero();
    each_group<P>(
        at.block, ahead, [&](int64_t, const uint8_t* group) __attribute__((always_inline)) {
          W::template add_pairs<P>(s, x, group, column);
          x.step(W::kItems * kGroupK / kUnitK);
        });
    const Factors<P, NV> f(at, column);
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m) {
      const Reg whole = P::kMinimum ? reg_splat(rows.sums[m * rows.stride + i]) : reg_zero();
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        float* to = c + m * kPanelColumns + j * kLanes;
        Reg sum = i > 0 ? reg_load(to) : reg_zero();
        sum = reg_fma(f.d[j], s[m][j], sum);
        if constexpr (P::kMinimum) sum = reg_fma(f.m[j], whole, sum);
        reg_store(to, sum);
      }
    }
  }
}

// Rows of a tile, and registers across. Every tile unpacks the numbers again: unpacking them once for all tiles,
// through scratch memory, was not faster for up to 96 rows (AMD Zen 4, both ways of AVX-512, and AVX2).
constexpr int kSumRows = kLanes == 16 ? 12 : 4;
constexpr int sums_registers(int rows) {
  if (kRegisters == 32) return rows <= 4 ? 4 : 2;
  return rows == 1 ? 4 : 2;
}

template <class W, class P, int MR, int NV = sums_registers(MR)>
inline void sums_columns(const PairRows<W>& x, const uint8_t* panel, int64_t blocks, int column, float* c, int columns,
                         bool ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    sums_tile<W, P, MR, NV>(x, panel, blocks, column, c, ahead);
    column += kWidth;
    c += kWidth;
    columns -= kWidth;
    ahead = false;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) sums_columns<W, P, MR, NV / 2>(x, panel, blocks, column, c, columns, ahead);
}

template <class W, class P, int MR = kSumRows>
inline void sums_rows(int rows, const PairRows<W>& x, const uint8_t* panel, int64_t blocks, int column, float* c,
                      int columns, bool ahead) {
  if (rows == MR) return sums_columns<W, P, MR>(x, panel, blocks, column, c, columns, ahead);
  if constexpr (MR > 1) sums_rows<W, P, MR - 1>(rows, x, panel, blocks, column, c, columns, ahead);
}

// As packed_product() of packed_tiles.h.
template <class W, class P>
__attribute__((noinline)) void sums_product(const PairRows<W>& x, int64_t rows, const uint8_t* panel, int first,
                                            int64_t k, int columns, Scratch& scratch) {
  const int tiles = static_cast<int>((rows + kSumRows - 1) / kSumRows);
  for (int t = 0; t < tiles; ++t) {
    const Range r = share(rows, t, tiles);
    sums_rows<W, P>(static_cast<int>(r.end - r.begin), x.from(r.begin), panel, k / P::kBlockK, first,
                    scratch.c + r.begin * kPanelColumns, columns, t == 0);
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
