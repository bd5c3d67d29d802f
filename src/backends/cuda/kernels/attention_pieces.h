// How the work of an attention launch is divided: pieces of sequences, heads, tiles of rows and groups of keys, found
// from the lengths on the device, so that one grid serves every step.
#pragma once

#include "backends/cuda/kernels/attention_sizes.h"
#include "backends/cuda/kernels/lane.h"

namespace reprise::cuda {

constexpr int kTileKeys = 64, kGroupKeys = 128;
constexpr int kFewRows = 64;

constexpr float kLog2E = 1.4426950408889634f;

// What an attention launch reads. Sizes are the capture's, lengths the step's.
struct AttentionSizes {
  int64_t heads, kv_heads, size, sequences, columns, window, chunk, tokens;
  float scale;
  float exponent = scale * kLog2E;  // scores are exponents to the base 2; under a cap they come scaled
  float cap = 0;                    // of scores; 0: none
  float bend = 0;                   // 2 log2(e) scale / cap
  const float* sinks = nullptr;     // of each query head a score more, which has no value

  HOST_DEV float factor() const { return exponent; }
  HOST_DEV int64_t ratio() const { return heads / kv_heads; }
  // The first key that the row of a position sees: of its window, or of its chunk; 0: all.
  DEV int oldest(int position) const {
    if (chunk > 0) return position / static_cast<int>(chunk) * static_cast<int>(chunk);
    const int first = position - static_cast<int>(window) + 1;
    return window > 0 && first > 0 ? first : 0;
  }
};

struct Lengths {
  const int32_t* page_table;
  const int32_t* context_lens;
  const int32_t* cu_seqlens;
};

// Pieces of work of one kind over all sequences. A piece: sequence, key/value head, tile of rows, group of keys, pass.
struct Piece {
  int sequence, head, tile, group, pass;
};

// The number of pieces of each sequence, and where each begins; `begins` is sequences + 1 integers of shared memory.
// "Few" is up to kMost rows.
template <int kTileRows, bool kFew, int kMost = kFewRows>
struct Pieces {
  const Lengths& lengths;
  const AttentionSizes& z;
  int passes;
  bool split;  // groups are pieces of their own
  int32_t* begins;
  bool any = false;  // regardless of the number of rows

  DEV int tokens_of(int r) const { return lengths.cu_seqlens[r + 1] - lengths.cu_seqlens[r]; }
  DEV int groups_of(int r) const { return (lengths.context_lens[r] + kGroupKeys - 1) / kGroupKeys; }
  DEV int tiles_of(int r) const {
    const int rows = tokens_of(r) * static_cast<int>(z.ratio());
    if (!any && (rows <= kMost) != kFew) return 0;
    return (rows + kTileRows - 1) / kTileRows;
  }
  DEV int count_of(int r) const {
    if (r >= z.sequences) return 0;
    return tiles_of(r) * static_cast<int>(z.kv_heads) * passes * (split ? groups_of(r) : 1);
  }

  // By the first warp, in ascending order of sequences; the caller synchronises. Every lane takes a run of sequences.
  template <class L>
  DEV void count(L& lane) const {
    if (lane.thread() >= 32) return;
    const int me = lane.thread(), run = (static_cast<int>(z.sequences) + 31) / 32;
    int32_t sum = 0;
    for (int i = 0; i < run; ++i) sum += count_of(me * run + i);
    int32_t before = sum;
    UNROLL
    for (int step = 1; step < 32; step <<= 1) {
      const int32_t other = lane.shuffle(before, me >= step ? me - step : me);
      if (me >= step) before += other;
    }
    before -= sum;
    for (int i = 0; i < run; ++i) {
      const int r = me * run + i;
      if (r > z.sequences) break;
      begins[r] = before;
      before += count_of(r);
    }
    if (me == 31) begins[z.sequences] = before;
  }
  DEV int total() const { return begins[z.sequences]; }

  DEV Piece at(int item) const {
    int low = 0, high = static_cast<int>(z.sequences);  // begins[low] <= item < begins[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (begins[middle] <= item)
        low = middle;
      else
        high = middle;
    }
    int rest = item - begins[low];
    Piece p;
    p.sequence = low;
    p.pass = rest % passes, rest /= passes;
    const int groups = split ? groups_of(low) : 1;
    p.group = rest % groups, rest /= groups;
    p.head = rest % static_cast<int>(z.kv_heads), rest /= static_cast<int>(z.kv_heads);
    // Later tiles of a prompt have more keys: they come first, and blocks take what is about as long in turn.
    p.tile = tiles_of(low) - 1 - rest;
    return p;
  }
};

// What the exponents of a row are taken against: nothing seen yet must not make NaN.
DEV float base_of(float top) { return top == -__builtin_huge_valf() ? 0.0f : top; }

// A score under the cap: cap * tanh(score * scale / cap), within 2e-7 of the cap.
DEV float capped(float score, const AttentionSizes& z) {
  const float twice = score * z.bend;
  return z.cap - divide(2.0f * z.cap, exp2_of(twice > 127.0f ? 127.0f : twice) + 1.0f);
}

// The sink of a query head joins a row's sum of weights as the last of them; what the row's outputs are multiplied
// with.
DEV float join_sink(float top, float& sum, int64_t head, const AttentionSizes& z) {
  const float mine = base_of(top) * z.factor(), sink = z.sinks[head] * kLog2E, most = sink > mine ? sink : mine;
  const float by = exp2_of(mine - most);
  sum = fma(sum, by, exp2_of(sink - most));
  return by;
}

}  // namespace reprise::cuda
