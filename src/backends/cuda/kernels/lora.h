// The two thin products of LoRA adapters in slots. A row meets the slot that it names and nothing else, in the CPU's
// order of sums, so the bits are the CPU's, whichever adapters share the step.
#pragma once

#include "backends/cuda/kernels/elementwise.h"
#include "ops/args/lora.h"

namespace reprise::cuda {

// The slot of a row and how many rows of it there are; 0 where the row names none.
struct SlotRank {
  int64_t slot, rank;
  DEV SlotRank(const int32_t* ids, const int32_t* ranks, int64_t row) : slot(ids[row] - 1) {
    rank = slot < 0 ? 0 : ranks[slot];
  }
};

// Sixteen lanes a number of the result: number i of a row goes to partial sum i % 16, then they are folded by 8, 4, 2,
// 1. Blocks go over tiles of the rank, row by row.
template <class E>
struct LoraShrink {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  static constexpr int kColumns = kThreads / 16;
  const typename E::Type* x;
  const int32_t* ids;
  const typename E::Type* a;
  const int32_t* ranks;
  const float* scales;
  float* h;
  int64_t width, rank;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t tiles = (rank + kColumns - 1) / kColumns, row = lane.block() / tiles;
    const int64_t column = lane.block() % tiles * kColumns + lane.thread() / 16;
    const int me = lane.thread() % 16;
    const SlotRank of(ids, ranks, row);
    const bool exists = column < of.rank;
    float sum = 0;
    if (exists) {
      const typename E::Type* from = x + row * width;
      const typename E::Type* with = a + (of.slot * rank + column) * width;
      for (int64_t i = me; i < width; i += 16) sum = fma(E::load(from[i]), E::load(with[i]), sum);
    }
    UNROLL
    for (int mask = 8; mask > 0; mask >>= 1) sum = sum + lane.shuffle_xor(sum, mask);
    if (me == 0 && column < rank) h[row * rank + column] = exists ? sum * scales[of.slot] : 0.0f;
  }
};

// A thread has a column of one row.
template <class E>
struct LoraExpand {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  typename E::Type* y;
  const float* h;
  const int32_t* ids;
  const typename E::Type* b;
  const int32_t* ranks;
  int64_t width, begin, columns, rank;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t tiles = (columns + kThreads - 1) / kThreads, row = lane.block() / tiles;
    const int64_t column = lane.block() % tiles * kThreads + lane.thread();
    const SlotRank of(ids, ranks, row);
    if (of.rank == 0 || column >= columns) return;
    const typename E::Type* with = b + of.slot * rank * columns + column;
    float sum = 0;
    for (int64_t i = 0; i < of.rank; ++i) sum = fma(h[row * rank + i], E::load(with[i * columns]), sum);
    typename E::Type* to = y + row * width + begin + column;
    *to = E::store(E::load(*to) + sum);
  }
};

template <class E, class L>
void run_lora_shrink(const LoraShrinkArgs& a, L& launch) {
  using K = LoraShrink<E>;
  launch.run(launch.size(a.rows) * blocks_for(a.rank, K::kColumns), K::kThreads, 0,
             K{a.x, a.ids, a.a, a.ranks, a.scales, a.h, a.width, a.rank});
}

template <class E, class L>
void run_lora_expand(const LoraExpandArgs& a, L& launch) {
  using K = LoraExpand<E>;
  launch.run(launch.size(a.rows) * blocks_for(a.columns, K::kThreads), K::kThreads, 0,
             K{a.y, a.h, a.ids, a.b, a.ranks, a.width, a.begin, a.columns, a.rank});
}

template <class L>
void fill_lora_of(KernelTable& table) {
  table.lora_shrink = REPRISE_CUDA_PER_TYPE(run_lora_shrink, L);
  table.lora_expand = REPRISE_CUDA_PER_TYPE(run_lora_expand, L);
}

}  // namespace reprise::cuda
