// Register tiles of a matrix product of bf16 rows with weights in GGUF blocks: sums by blocks of 32 k, of q2_k, q3_k
// and q6_k of 16.
//
// The numbers of a block are exact in bf16, so they are added up as they are, and a factor is one multiply-add a block
// and column: s = a chain from 0 over the pairs (k, k + 4) of each eight k in turn, the second of a pair first; then
// sum = fma(d, s, sum), and where the format has minima sum = fma(m, X, sum) with the block's sum X of the row.
// Subnormals are zeros. That is what vdpbf16ps does with a pair, so the instruction and its emulation give the same
// bits, and neither tiles nor rows change any.
//
// The chain of packed_tiles.h (fp32 and f16) multiplies each number by its factor first, once for all rows of a tile.
#pragma once

#include "backends/cpu/kernels/linear_blocks.h"
#include "backends/cpu/kernels/packed_formats.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Two ways with the same bits; the faster one depends on the processor. Of each: an item of a row of x (4 bytes), items
// of 32 k, such k of x as items, and the product with pair kPair of a group and those behind it; and for strips
// (packed_strips.h) the same pairs as items in the order of use, a register of columns each, and the product with one.
// Products are inlined by force, or GCC 12 keeps the sums in memory.
struct PairFloats {  // the numbers of a pair one after the other, the second one first
  using Item = float;
  using Items = Reg;
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

  template <int kPart, int kItem, class Numbers, int MR, int NV>
  static __attribute__((always_inline)) void add_number(Reg (&s)[MR][NV], const RowsOfThree<Item, MR>& x,
                                                        const Numbers (&numbers)[NV]) {
    Reg b[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) b[j] = numbers[j].template at<kPart>();
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m) {
      const Reg a = reg_splat(x.of(m, kItem));
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) s[m][j] = reg_fma(a, b[j], s[m][j]);
    }
  }
  template <int kPair, class Numbers, int MR, int NV>
  static __attribute__((always_inline)) void add_pairs_from(Reg (&s)[MR][NV], const RowsOfThree<Item, MR>& x,
                                                            const Numbers (&numbers)[NV]) {
    add_number<kPair + 4, 2 * kPair>(s, x, numbers);
    add_number<kPair, 2 * kPair + 1>(s, x, numbers);
    if constexpr (kPair < 3) add_pairs_from<kPair + 1>(s, x, numbers);
  }
  template <class P, int MR, int NV>
  static __attribute__((always_inline)) void add_pairs(Reg (&s)[MR][NV], const RowsOfThree<Item, MR>& x,
                                                       const uint8_t* group, int column) {
    with_numbers<P, NV>(
        group, column, [&](const GroupNumbers<P>(&numbers)[NV]) __attribute__((always_inline)) {
          add_pairs_from<0>(s, x, numbers);
        });
  }

  template <class P>
  static __attribute__((always_inline)) void write_pairs(const uint8_t* group, int column, Item* out) {
    write_pairs_from<0>(GroupNumbers<P>{group, column}, out);
  }
  template <int kPair, class Numbers>
  static __attribute__((always_inline)) void write_pairs_from(const Numbers& numbers, Item* out) {
    reg_store(out, numbers.template at<kPair + 4>());
    reg_store(out + kStripColumns, numbers.template at<kPair>());
    if constexpr (kPair < 3) write_pairs_from<kPair + 1>(numbers, out + 2 * kStripColumns);
  }
  static Items read(const Item* strip) { return reg_load(strip); }
  static Items splat(Item x) { return reg_splat(x); }
  static Reg add(Reg s, Items a, Items b) { return reg_fma(a, b, s); }
};

#if defined(__AVX512BF16__)
struct PairWords {  // a pair as bf16 in one word, the first number in its low half
  using Item = uint32_t;
  using Items = __m512i;
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

  template <class P, int kPair = 0>
  static __attribute__((always_inline)) void write_pairs(const uint8_t* group, int column, Item* out) {
    _mm512_storeu_si512(out, P::template pair<kPair>(group, column));
    if constexpr (kPair < 3) write_pairs<P, kPair + 1>(group, column, out + kStripColumns);
  }
  static Items read(const Item* strip) { return _mm512_loadu_si512(strip); }
  static Items splat(Item x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static Reg add(Reg s, Items a, Items b) {
    return _mm512_dpbf16_ps(s, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
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

template <class W>
PairRows<W> rows_of(const PackedPanel& a) {
  return {static_cast<const typename W::Item*>(a.x), a.whole, a.stride};
}

template <class W>
PairRows<W> pair_rows(const uint16_t* x, int64_t rows, int64_t k, int64_t minimum_k, float* scratch) {
  const int64_t stride = packed_x_stride(k), items = k / kUnitK * W::kItems;
  auto* to = reinterpret_cast<typename W::Item*>(scratch);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < k / kUnitK; ++b) {
      const uint16_t* block = x + r * k + b * kUnitK;
      W::arrange(block, to + r * stride + b * W::kItems);
      float* sums = scratch + r * stride + items;
      if (minimum_k == kUnitK) sums[b] = reduce_add(Bf16::load(block) + Bf16::load(block + 16));
      if (minimum_k == 16)
        sums[2 * b] = reduce_add(Bf16::load(block)), sums[2 * b + 1] = reduce_add(Bf16::load(block + 16));
    }
  return {to, scratch + items, stride};
}

// c[m][0, NV * kLanes) = x[m] . w over all blocks.
template <class W, class P, int MR, int NV>
void sums_tile(const PairRows<W>& rows, BlockWalk<P> at, int64_t blocks, int column, float* c, bool resume,
               PackedAhead ahead) {
  RowsOfThree<typename W::Item, MR> x(rows.items, rows.stride);
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
        Reg sum = resume || i > 0 ? reg_load(to) : reg_zero();
        sum = reg_fma(f.d[j], s[m][j], sum);
        if constexpr (P::kMinimum) sum = reg_fma(f.m[j], whole, sum);
        reg_store(to, sum);
      }
    }
  }
}

// Rows of a tile, and registers across. Rows are cut evenly, or into the tallest tiles where those fit; between the two
// there are none, because their instances are the dearest to compile.
template <class W>
struct SumRows {
  static constexpr int kEven = kLanes == 16 ? 8 : 4, kMost = W::kItems < kUnitK ? 12 : kEven;
  static int next(int64_t left) {
    if (left == kMost || left >= kMost + kEven) return kMost;
    const int64_t tiles = (left + kEven - 1) / kEven;
    return static_cast<int>((left + tiles - 1) / tiles);
  }
};
constexpr int sums_registers(int rows) {
  if (kRegisters == 32) return rows <= 4 ? 4 : 2;
  return rows == 1 ? 4 : 2;
}

template <class W, class P, int MR, int NV = sums_registers(MR)>
inline void sums_columns(const PairRows<W>& x, const BlockWalk<P>& at, int64_t blocks, int column, float* c,
                         int columns, bool resume, SharedAhead& ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    sums_tile<W, P, MR, NV>(x, at, blocks, column, c, resume, ahead.part(blocks * (P::kBlockK / kGroupK)));
    column += kWidth;
    c += kWidth;
    columns -= kWidth;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) sums_columns<W, P, MR, NV / 2>(x, at, blocks, column, c, columns, resume, ahead);
}

template <class W, class P, int MR = SumRows<W>::kMost>
inline void sums_rows(int rows, const PairRows<W>& x, const BlockWalk<P>& at, int64_t blocks, int column, float* c,
                      int columns, bool resume, SharedAhead& ahead) {
  constexpr int kNext = MR > SumRows<W>::kEven ? SumRows<W>::kEven : MR - 1;
  if (rows == MR) return sums_columns<W, P, MR>(x, at, blocks, column, c, columns, resume, ahead);
  if constexpr (kNext > 0) sums_rows<W, P, kNext>(rows, x, at, blocks, column, c, columns, resume, ahead);
}

template <class W>
int64_t sums_passes(int64_t rows, int columns) {
  int64_t passes = 0;
  while (rows > 0) {
    const int tile = SumRows<W>::next(rows);
    const int64_t width = kLanes * sums_registers(tile);
    passes += (columns + width - 1) / width;
    rows -= tile;
  }
  return passes;
}

// As packed_product() of packed_tiles.h.
template <class W, class P>
__attribute__((noinline)) void sums_product(const PackedPanel& a) {
  constexpr int64_t kItems = W::kItems * P::kBlockK / kUnitK;
  const PairRows<W> x = rows_of<W>(a);
  each_part_of_panel<P>(a.panel, a.k / P::kBlockK, sums_passes<W>(a.rows, a.columns),
                        [&](int64_t b, int64_t n, SharedAhead ahead) {
                          const BlockWalk<P> at(a.panel, b);
                          for (int64_t r = 0; r < a.rows;) {
                            const int rows = SumRows<W>::next(a.rows - r);
                            const PairRows<W> from = x.from(r);
                            sums_rows<W, P>(rows, {from.items + b * kItems, from.sums + b, from.stride}, at, n, a.first,
                                            a.c + r * kPanelColumns, a.columns, b > 0, ahead);
                            r += rows;
                          }
                        });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
