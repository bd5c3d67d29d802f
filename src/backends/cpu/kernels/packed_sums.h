// Register tiles of a matrix product of bf16 rows with weights in GGUF blocks: sums by blocks of 32 k.
//
// The numbers of a block are exact in bf16, so they are added up as they are, and a factor is one multiply-add a block
// and column: s = a chain from 0 over the pairs (k, k + 4) of each eight k in turn, the second of a pair first; then
// sum = fma(d, s, sum), and where the format has minima sum = fma(m, X, sum) with the block's sum X of the row.
// Subnormals are zeros. That is what vdpbf16ps does with a pair, so the instruction and its emulation give the same
// bits, and neither tiles nor rows change any.
//
// The chain of packed_tiles.h (fp32 and f16) multiplies each number by its factor first: twice the multiply-adds.
#pragma once

#include "backends/cpu/kernels/packed_formats.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows of x for these tiles: 4 bytes an item, the pairs of all k in the order of use (a pair in an item where
// vdpbf16ps is there, else an fp32 number in each), then X of every block.
#if defined(__AVX512BF16__)
constexpr bool kPairsInWords = true;
using PairItem = uint32_t;
#else
constexpr bool kPairsInWords = false;
using PairItem = float;
#endif
constexpr int kGroupItems = kPairsInWords ? kGroupK / 2 : kGroupK;

struct PairRows {
  const PairItem* items;
  const float* sums;
  int64_t stride;  // from row to row, of both
  PairRows from(int64_t row) const { return {items + row * stride, sums + row * stride, stride}; }
};

// One block of a row, to kBlockK / kGroupK * kGroupItems items; X is its numbers in sixteen sums and a tree.
inline float pair_block(const uint16_t* x, PairItem* out) {
#if defined(__AVX512BF16__)
  const __m512i order = _mm512_set_epi16(31, 27, 30, 26, 29, 25, 28, 24, 23, 19, 22, 18, 21, 17, 20, 16, 15, 11, 14, 10,
                                         13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, _mm512_loadu_si512(x)));
  return reduce_add(Bf16::load(x) + Bf16::load(x + 16));
#else
  const F32x16 low = Bf16::load(x), high = Bf16::load(x + 16);
  float wide[kBlockK];
  store(wide, low);
  store(wide + 16, high);
  for (int64_t g = 0; g < kBlockK; g += kGroupK)
    for (int64_t i = 0; i < 4; ++i) {
      out[g + 2 * i] = wide[g + i + 4];
      out[g + 2 * i + 1] = wide[g + i];
    }
  return reduce_add(low + high);
#endif
}

inline PairRows pair_rows(const uint16_t* x, int64_t rows, int64_t k, float* scratch) {
  const int64_t stride = packed_x_stride(k), blocks = k / kBlockK, items = k / kGroupK * kGroupItems;
  auto* to = reinterpret_cast<PairItem*>(scratch);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < blocks; ++b)
      scratch[r * stride + items + b] =
          pair_block(x + r * k + b * kBlockK, to + r * stride + b * (kBlockK / kGroupK) * kGroupItems);
  return {to, scratch + items, stride};
}

// Inlined by force, or GCC 12 keeps the sums in memory.
#if !defined(__AVX512BF16__)
// Number kPart of each column's group times item kItem of each row.
template <class P, int MR, int NV, int kPart, int kItem>
inline __attribute__((always_inline)) void add_numbers(Reg (&s)[MR][NV], const RowsOfThree<PairItem, MR>& x,
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
#endif

template <class P, int MR, int NV, int kPair = 0>
inline __attribute__((always_inline)) void add_pairs(Reg (&s)[MR][NV], const RowsOfThree<PairItem, MR>& x,
                                                     const uint8_t* group, int column) {
#if defined(__AVX512BF16__)
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
#else
  add_numbers<P, MR, NV, kPair + 4, 2 * kPair>(s, x, group, column);
  add_numbers<P, MR, NV, kPair, 2 * kPair + 1>(s, x, group, column);
#endif
  if constexpr (kPair < 3) add_pairs<P, MR, NV, kPair + 1>(s, x, group, column);
}

// c[m][0, NV * kLanes) = x[m] . w over all blocks.
template <class P, int MR, int NV>
void sums_tile(const PairRows& rows, const uint8_t* block, int64_t blocks, int column, float* c, bool ahead) {
  RowsOfThree<PairItem, MR> x(rows.items, rows.stride);
  for (int64_t i = 0; i < blocks; ++i, block += P::kBlockBytes) {
    Reg s[MR][NV];
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) s[m][j] = reg_zero();
    const uint8_t* group = block + P::kFactorBytes;
#pragma GCC unroll 1
    for (int g = 0; g < kBlockK / kGroupK; ++g, group += kGroupBytes<P>) {
      if (ahead)
        for (int64_t line = 0; line < P::kBlockBytes / 4; line += 64)
          fetch_first_level(reinterpret_cast<const char*>(group) + kPackedAhead + line);
      add_pairs<P, MR, NV>(s, x, group, column);
      x.step(kGroupItems);
    }
    const Factors<P, NV> f(block, column);
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

// Rows of a tile, and registers across. Every tile unpacks the numbers again: that costs the units of products little,
// and less than ways through scratch memory do, however many rows there are (measured on AVX-512 and AVX2).
constexpr int kSumRows = kLanes == 16 ? 12 : 4;
constexpr int sums_registers(int rows) {
  if (kRegisters == 32) return rows <= 4 ? 4 : 2;
  return rows == 1 ? 4 : 2;
}

template <class P, int MR, int NV = sums_registers(MR)>
inline void sums_columns(const PairRows& x, const uint8_t* panel, int64_t blocks, int column, float* c, int columns,
                         bool ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    sums_tile<P, MR, NV>(x, panel, blocks, column, c, ahead);
    column += kWidth;
    c += kWidth;
    columns -= kWidth;
    ahead = false;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) sums_columns<P, MR, NV / 2>(x, panel, blocks, column, c, columns, ahead);
}

template <class P, int MR = kSumRows>
inline void sums_rows(int rows, const PairRows& x, const uint8_t* panel, int64_t blocks, int column, float* c,
                      int columns, bool ahead) {
  if (rows == MR) return sums_columns<P, MR>(x, panel, blocks, column, c, columns, ahead);
  if constexpr (MR > 1) sums_rows<P, MR - 1>(rows, x, panel, blocks, column, c, columns, ahead);
}

// As packed_product() of packed_tiles.h.
template <class P>
__attribute__((noinline)) void sums_product(const PairRows& x, int64_t rows, const uint8_t* panel, int first, int64_t k,
                                            int columns, Scratch& scratch) {
  const int tiles = static_cast<int>((rows + kSumRows - 1) / kSumRows);
  for (int t = 0; t < tiles; ++t) {
    const Range r = share(rows, t, tiles);
    sums_rows<P>(static_cast<int>(r.end - r.begin), x.from(r.begin), panel, k / kBlockK, first,
                 scratch.c + r.begin * kPanelColumns, columns, t == 0);
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
