// Register tiles of a matrix product of fp32 rows with weights in GGUF blocks: one chain of weights.
//
// A weight becomes the fp32 number that the checkpoint's reader would make of it, and an output element is one chain of
// fused multiply-adds over k from 0, as in tile.h for fp32 weights: packed or not, unpacked in registers or through
// scratch memory, the bits are the same. (The product of an f16 factor and a number of 8 bits is exact in fp32, so one
// fused multiply-add gives factor * number + minimum with its one rounding.)
#pragma once

#include "backends/cpu/kernels/linear_blocks.h"
#include "backends/cpu/kernels/packed_formats.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class P, int MR, int NV, int kPart = 0>
inline __attribute__((always_inline)) void packed_group(Reg (&acc)[MR][NV], const float* x, int64_t ldx,
                                                        const GroupNumbers<P> (&numbers)[NV], const Factors<P, NV>& f) {
  Reg b[NV];
#pragma GCC unroll 8
  for (int j = 0; j < NV; ++j) b[j] = packed_weight<P>(numbers[j].template at<kPart>(), f.d[j], f.m[j]);
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Reg a = reg_splat(x[m * ldx + kPart]);
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[m][j] = reg_fma(a, b[j], acc[m][j]);
  }
  if constexpr (kPart + 1 < kGroupK) packed_group<P, MR, NV, kPart + 1>(acc, x, ldx, numbers, f);
}

// c[m][0, NV * kLanes) += x[m] . w over some blocks; `resume` says that c holds sums already.
template <class P, int MR, int NV>
void packed_tile(const float* x, int64_t ldx, BlockWalk<P> at, int64_t blocks, int column, float* c, bool resume,
                 PackedAhead ahead) {
  Reg acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[m][j] = resume ? reg_load(c + m * kPanelColumns + j * kLanes) : reg_zero();
  for (int64_t i = 0; i < blocks; ++i, at.step(), x += P::kBlockK) {
    const Factors<P, NV> f(at, column);
    each_group<P>(
        at.block, ahead, [&](int64_t g, const uint8_t* group) __attribute__((always_inline)) {
          with_numbers<P, NV>(
              group, column, [&](const GroupNumbers<P>(&numbers)[NV]) __attribute__((always_inline)) {
                packed_group<P, MR, NV>(acc, x + g * kGroupK, ldx, numbers, f);
              });
        });
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) reg_store(c + m * kPanelColumns + j * kLanes, acc[m][j]);
}

// Rows of a tile that unpacks for itself, and registers across: factors and minima take registers too.
constexpr int kPackedRows = kLanes == 16 ? 9 : 6;
constexpr int packed_registers(int rows) {
  return kLanes == 16 ? (rows <= 4 ? 4 : 2) : rows == 1 ? 4 : rows <= 4 ? 2 : 1;
}

template <class P, int MR, int NV = packed_registers(MR)>
inline void packed_columns(const float* x, int64_t ldx, const BlockWalk<P>& at, int64_t blocks, int column, float* c,
                           int columns, bool resume, SharedAhead& ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    packed_tile<P, MR, NV>(x, ldx, at, blocks, column, c, resume, ahead.part(blocks * (P::kBlockK / kGroupK)));
    column += kWidth;
    c += kWidth;
    columns -= kWidth;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) packed_columns<P, MR, NV / 2>(x, ldx, at, blocks, column, c, columns, resume, ahead);
}

template <class P, int MR = kPackedRows>
inline void packed_rows(int rows, const float* x, int64_t ldx, const BlockWalk<P>& at, int64_t blocks, int column,
                        float* c, int columns, bool resume, SharedAhead& ahead) {
  if (rows == MR) return packed_columns<P, MR>(x, ldx, at, blocks, column, c, columns, resume, ahead);
  if constexpr (MR > 1) packed_rows<P, MR - 1>(rows, x, ldx, at, blocks, column, c, columns, resume, ahead);
}

// Tiles that unpack for themselves.
template <class P>
void packed_directly(const PackedPanel& a) {
  const auto* x = static_cast<const float*>(a.x);
  const int tiles = static_cast<int>((a.rows + kPackedRows - 1) / kPackedRows);
  const auto rows_of = [&](int t) { return share(a.rows, t, tiles); };
  int64_t passes = 0;
  for (int t = 0; t < tiles; ++t) {
    const int64_t width = kLanes * packed_registers(static_cast<int>(rows_of(t).end - rows_of(t).begin));
    passes += (a.columns + width - 1) / width;
  }
  each_part_of_panel<P>(a.panel, a.k / P::kBlockK, passes, [&](int64_t b, int64_t n, SharedAhead ahead) {
    const BlockWalk<P> at(a.panel, b);
    for (int t = 0; t < tiles; ++t) {
      const Range r = rows_of(t);
      packed_rows<P>(static_cast<int>(r.end - r.begin), x + r.begin * a.stride + b * P::kBlockK, a.stride, at, n,
                     a.first, a.c + r.begin * kPanelColumns, a.columns, b > 0, ahead);
    }
  });
}

// All rows of a panel.
template <class P>
__attribute__((noinline)) void packed_product(const PackedPanel& a) {
  const auto* x = static_cast<const float*>(a.x);
  const int64_t ldx = a.stride, rows = a.rows;
  const int64_t blocks = a.k / P::kBlockK;
  if (rows <= a.direct) return packed_directly<P>(a);
  constexpr int64_t kAtOnce = kBlockDepth / P::kBlockK;
  for (int64_t b = 0; b < blocks; b += kAtOnce) {
    const int64_t n = std::min(kAtOnce, blocks - b), bytes = n * P::kBlockBytes, depth = n * P::kBlockK;
    const BlockWalk<P> begin(a.panel, b);
    for (int j = 0; j < a.columns; j += kStripColumns) {
      const int width = std::min(kStripColumns, a.columns - j);
      BlockWalk<P> at = begin;
      for (int64_t i = 0; i < n; ++i, at.step())
        widen_block<P>(at, a.first + j, width, a.strip + i * P::kBlockK * kStripColumns);
      strip_of_tiles<WeightStrip>(x + b * P::kBlockK, ldx, rows, a.strip, depth, a.c + j, width, b > 0,
                                  reinterpret_cast<const char*>(begin.block) + bytes + bytes * j / a.columns,
                                  bytes * width / a.columns, nullptr);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
