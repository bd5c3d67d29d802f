// A product whose weight has gate rows and then up rows, with silu_mul behind it: y[t, f] = silu(g), rounded, times u,
// where g and u are the rounded sums of rows f and F + f.
//
// A tile's columns are gate and up rows in turn, so that the thread which has a sum of one has that of the other, and
// what lies between the two ops never leaves the registers. Each sum is the chain that `linear` makes of it, and every
// rounding is where the two ops have it: the same bits.
#pragma once

#include "backends/cuda/kernels/linear.h"

namespace reprise::cuda {

// Columns 2 f and 2 f + 1 of a tile are rows f and F + f of the weight, which has 2 F.
struct GateAndUp {
  static DEV int64_t at(int64_t column, int64_t columns) {
    const int64_t up = column % 2, it = column < columns ? column : columns - 2 + up;
    return it / 2 + up * (columns / 2);
  }
};

template <class E, int kTokens, int kWarps, int kStages, int kStageBytes = 128>
struct LinearSiluMul {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  using Tile = ProductTile<E, kTokens, kWarps, kStages, kStageBytes, RowsInOrder, GateAndUp>;
  Tile tile;
  typename E::Type* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * kTokens;
    typename Tile::Sum d[kTokens / 16][4];
    tile.sums(lane, first_column, first_token, d);
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int64_t width = tile.columns / 2, f = first_column / 2 + warp * 4 + me % 4;
    if (f >= width) return;
    UNROLL
    for (int m = 0; m < kTokens / 16; ++m) UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t t = first_token + m * 16 + half * 8 + me / 4;
      const float gate = rounded<E>(d[m][half * 2]), up = rounded<E>(d[m][half * 2 + 1]);
      if (t < tile.tokens) out[t * width + f] = E::store(SiluMul<E>::apply(gate, up));
    }
  }
};

template <class E, int kTokens, int kWarps, int kStages, int kStageBytes = 128, class L>
void launch_gated(const ProductSizes& z, const void* x, const void* weight, void* out, L& launch) {
  using K = LinearSiluMul<E, kTokens, kWarps, kStages, kStageBytes>;
  K k{{static_cast<const uint8_t*>(x), static_cast<const uint8_t*>(weight), z.tokens, z.depth, z.columns},
      static_cast<typename E::Type*>(out)};
  launch.run(blocks_for(z.columns, K::Tile::kColumns), K::kThreads, K::Tile::kSharedBytes, k,
             blocks_for(z.tokens, kTokens));
}

// Workspace: gated_bytes(). From kManyTokens on the library has the product first, as without the fusion, and silu_mul
// is a launch of its own then.
template <class E, class L>
void run_linear_silu_mul(const LinearSiluMulArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  if (z.tokens == 0) return;
  if (z.tokens >= kManyTokens && launch.workspace &&
      launch.product({number_of<E>(), number_of<E>(), z.tokens, z.depth, z.columns, a.x, a.weight, launch.workspace})) {
    const int64_t width = z.columns / 2;
    launch.run(blocks_for(z.tokens * width, kElementThreads * (width % 8 == 0 ? 8 : 1)), kElementThreads, 0,
               SiluMul<E>{static_cast<const typename E::Type*>(launch.workspace), a.out, z.tokens, width});
    return;
  }
  if (z.tokens <= 16)
    launch_gated<E, 16, 4, 6, 256>(z, a.x, a.weight, a.out, launch);
  else if (z.tokens <= 32)
    launch_gated<E, 32, 4, 6>(z, a.x, a.weight, a.out, launch);
  else
    launch_gated<E, 64, 8, 5>(z, a.x, a.weight, a.out, launch);
}

template <class L>
void fill_linear_silu_mul_of(KernelTable& table) {
  table.linear_silu_mul = {nullptr, erased<L, run_linear_silu_mul<BF16, L>>, erased<L, run_linear_silu_mul<F16, L>>};
}

}  // namespace reprise::cuda
