// Attention over the paged cache in f32: the form of the goldens, by chains of fma; the rule stands in attention.h.
#pragma once

#include "backends/cuda/kernels/attention_pieces.h"
#include "backends/cuda/kernels/curves.h"
#include "backends/cuda/kernels/kv_layout.h"
#include "backends/cuda/kernels/rotation_limits.h"

namespace reprise::cuda {

// f32: a warp a row; four warps a block.
template <bool kInt8>
struct AttentionF32 {
  static constexpr int kThreads = 128, kBlocks = 1;
  static constexpr int kEach = kLargestHead / 32;
  const float* q;
  const void* cache;
  Lengths lengths;
  float* out;
  AttentionSizes z;

  DEV float number(const void* block, int64_t at) const {
    if constexpr (kInt8)
      return static_cast<float>(static_cast<const int8_t*>(block)[at]);
    else
      return static_cast<const float*>(block)[at];
  }
  DEV const void* block_of(int64_t page, bool values, int64_t head) const {
    if constexpr (kInt8)
      return static_cast<const int8_t*>(cache) + kv_block(page, values, head, z.kv_heads, z.size + 4);
    else
      return static_cast<const float*>(cache) + kv_block(page, values, head, z.kv_heads, z.size);
  }
  DEV float scale_of(const void* block, int64_t place) const {
    return reinterpret_cast<const float*>(static_cast<const int8_t*>(block) + kPageRows * z.size)[place];
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t u = static_cast<int64_t>(lane.block()) * (kThreads / 32) + lane.thread() / 32;
    const int me = lane.thread() % 32;
    if (u >= z.tokens * z.heads) return;
    const int64_t t = u / z.heads, h = u % z.heads, head = h / z.ratio();
    if (t >= lengths.cu_seqlens[z.sequences]) return;
    int low = 0, high = static_cast<int>(z.sequences);
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (lengths.cu_seqlens[middle] <= t)
        low = middle;
      else
        high = middle;
    }
    const int64_t sees = lengths.context_lens[low] - (lengths.cu_seqlens[low + 1] - t);
    const int64_t oldest = z.oldest(static_cast<int>(sees));
    const float* row = q + u * z.size;
    float top = -__builtin_huge_valf(), sum = 0, o[kEach];
    UNROLL
    for (int j = 0; j < kEach; ++j) o[j] = 0;
    for (int64_t first = oldest / 32 * 32; first <= sees; first += 32) {
      const int64_t key = first + me, page = lengths.page_table[low * z.columns + first / kPageRows];
      const int64_t place = first % kPageRows;
      const void* keys = block_of(page, false, head);
      const void* values = block_of(page, true, head);
      float s = -__builtin_huge_valf();
      if (key <= sees && key >= oldest) {
        s = 0;
        for (int64_t d = 0; d < z.size; ++d) s = fma(row[d], number(keys, (place + me) * z.size + d), s);
        if constexpr (kInt8) s = s * scale_of(keys, place + me);
        s = s * z.scale;
        if (z.cap > 0) s = tanh_of(divide(s, z.cap)) * z.cap;
      }
      const float tile_top = warp_max(lane, s), now = tile_top > top ? tile_top : top;
      const float base = base_of(now), shrink = exp_bounded(top - base), w = exp_bounded(s - base);
      top = now;
      sum = fma(sum, shrink, warp_sum(lane, w));
      const int count = static_cast<int>(smaller<int64_t>(32, sees + 1 - first));
      UNROLL
      for (int j = 0; j < kEach; ++j) o[j] = o[j] * shrink;
      for (int i = 0; i < count; ++i) {
        float weight = lane.shuffle(w, i);
        if constexpr (kInt8) weight = weight * scale_of(values, place + i);
        UNROLL
        for (int j = 0; j < kEach; ++j)
          if (me + j * 32 < z.size) o[j] = fma(weight, number(values, (place + i) * z.size + me + j * 32), o[j]);
      }
    }
    float by = 1;
    if (z.sinks) {
      const float sink = z.sinks[h], most = sink > top ? sink : top;
      by = exp_bounded(top - most);
      sum = fma(sum, by, exp_bounded(sink - most));
    }
    UNROLL
    for (int j = 0; j < kEach; ++j)
      if (me + j * 32 < z.size) out[u * z.size + me + j * 32] = divide(o[j] * by, sum);
  }
};

}  // namespace reprise::cuda
