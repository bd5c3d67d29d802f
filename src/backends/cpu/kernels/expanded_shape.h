// The scratch of one thread for attention over latents whose keys and values are expanded, shared by the kernel and the
// entry that reserves it. Internal linkage, because kernel sources may not share inline code across instruction sets.
#pragma once

#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/linear_shape.h"

namespace reprise::cpu {

// Sizes of numbers; offsets are in floats, whole cache lines. Every number has the room of a float, also where its
// stored type is smaller.
struct ExpandedSizes {
  int64_t latent = 0, rope = 0, nope = 0, value = 0;
  int64_t tokens = 0;  // of the step

  [[gnu::always_inline]] int64_t key() const { return nope + rope; }
  [[gnu::always_inline]] static int64_t lines(int64_t floats) { return (floats + 15) / 16 * 16; }
  // The keys' matrix of a head with latents as its inner size: panels of 64 columns.
  [[gnu::always_inline]] int64_t weight_floats() const { return (nope + 63) / 64 * 64 * lines(latent); }
  [[gnu::always_inline]] int64_t x_floats() const { return lines(kBlockRows * linear_x_stride(latent)); }
  // Rows of keys, rows of values, and both as blocks of a page.
  [[gnu::always_inline]] int64_t page_floats() const { return lines(2 * kKvTokens * (key() + value)); }
  [[gnu::always_inline]] int64_t state_floats() const { return lines(tokens * (2 + value)); }
  // Tile::scratch_floats.
  [[gnu::always_inline]] int64_t tile_floats() const {
    return lines(AttentionSizes::kTileRows * (AttentionSizes::query_floats(key()) + value + kKvTokens + 4) +
                 AttentionSizes::wide_floats(key() > value ? key() : value));
  }
  // Queries of a tile as rows of keys.
  [[gnu::always_inline]] int64_t query_floats() const { return lines(key()); }
  [[gnu::always_inline]] int64_t thread_floats() const {
    return weight_floats() + x_floats() + page_floats() + state_floats() + tile_floats() + query_floats();
  }
};

}  // namespace reprise::cpu
