// Encoders and pooled rows: attention without a cache, rows picked or averaged, unit vectors. Sums are made in the
// CPU's order, by chains of fma in fp32 in every dtype, so the bits are the CPU's: encoders are small, and their
// vectors are compared across machines.
#pragma once

#include "backends/cuda/kernels/encoder_limits.h"
#include "backends/cuda/kernels/experts.h"
#include "ops/args/encoder.h"

namespace reprise::cuda {

// A block has kQueries queries of one head of one sequence, eight threads each, and goes over the keys twice: for the
// largest score, and then for weights and outputs. Thread i of a query's eight has keys i, i + 8, ... of a tile, in two
// of sixteen partial sums of weights, and columns i, i + 8, ... of the output, of kMostSize in all. With a window it
// goes over those keys alone that one of its queries sees, from a multiple of sixteen on; keys that a query does not
// see have the weight 0.
template <class E, int kMostSize>
struct SegmentAttention {
  static constexpr int kQueries = 16, kKeys = 64;
  static constexpr int kThreads = kQueries * 8, kBlocks = 1;
  using T = typename E::Type;
  const T* q;
  const T* k;
  const T* v;
  T* out;
  Groups sequences;
  int64_t heads, kv_heads, size, window;
  float scale;

  // Queries, keys or values of a tile, weights.
  static size_t shared_bytes(int64_t size) {
    return static_cast<size_t>(kQueries * (size + 1) + kKeys * (size + 1) + kQueries * kKeys) * sizeof(float);
  }

  // Rows of one of `of` heads from row `from` on, as floats that lie size + 1 apart.
  template <class L>
  DEV void load(L& lane, float* to, const T* x, int64_t of, int64_t from, int64_t rows) const {
    const int width = static_cast<int>(size);
    for (int i = lane.thread(); i < rows * width; i += kThreads) {
      const int row = i / width, d = i % width;
      to[row * (width + 1) + d] = E::load(x[((from + row) * of) * size + d]);
    }
  }

  // The scores of a thread's keys, of which the query sees those from `seen_from` to `seen_to`.
  DEV void score(const float* query, const float* keys, int me, int64_t seen_from, int64_t seen_to,
                 float (&s)[kKeys / 8]) const {
    UNROLL
    for (int i = 0; i < kKeys / 8; ++i) s[i] = 0;
    for (int64_t d = 0; d < size; ++d) {
      const float x = query[d];
      UNROLL
      for (int i = 0; i < kKeys / 8; ++i) s[i] = fma(x, keys[(me + i * 8) * (size + 1) + d], s[i]);
    }
    UNROLL
    for (int i = 0; i < kKeys / 8; ++i) {
      const bool seen = me + i * 8 >= seen_from && me + i * 8 < seen_to;
      s[i] = seen ? s[i] * scale : -__builtin_huge_valf();
    }
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const TileOfGroup of = sequences.tile(lane, kQueries, lane.block_y());
    if (of.first >= of.last) return;
    const int64_t head = lane.block(), rows = smaller<int64_t>(kQueries, of.last - of.first);
    const int query = lane.thread() / 8, me = lane.thread() % 8;
    const bool exists = query < rows;
    T* to = out + ((of.first + query) * heads + head) * size;
    if (of.group >= sequences.count) {
      for (int64_t d = me; d < size && exists; d += 8) to[d] = E::store(0.0f);
      return;
    }
    const int64_t start = sequences.starts[of.group], mine_at = of.first + (exists ? query : 0),
                  kv_head = head / (heads / kv_heads);
    // What the first and the last query of the block see, and what this one does.
    int64_t begin = start, end = of.last, from = start, to_key = of.last;
    if (window > 0) {
      begin = start + greater<int64_t>(0, of.first - window + 1 - start) / 16 * 16;
      end = smaller(end, of.first + rows - 1 + window);
      from = greater(start, mine_at - window + 1);
      to_key = smaller(to_key, mine_at + window);
    }
    auto* queries = reinterpret_cast<float*>(lane.shared());
    float* tile = queries + kQueries * (size + 1);
    float* weights = tile + kKeys * (size + 1);
    const float* mine = queries + (exists ? query : 0) * (size + 1);
    load(lane, queries, q + head * size, heads, of.first, rows);
    float top = -__builtin_huge_valf(), s[kKeys / 8];
    for (int64_t key = begin; key < end; key += kKeys) {
      lane.sync();
      load(lane, tile, k + kv_head * size, kv_heads, key, smaller<int64_t>(kKeys, end - key));
      lane.sync();
      score(mine, tile, me, from - key, to_key - key, s);
      UNROLL
      for (int i = 0; i < kKeys / 8; ++i) top = s[i] > top ? s[i] : top;
    }
    UNROLL
    for (int mask = 4; mask > 0; mask >>= 1) {
      const float other = lane.shuffle_xor(top, mask);
      top = other > top ? other : top;
    }
    float sums[2] = {0, 0}, o[kMostSize / 8];
    UNROLL
    for (int c = 0; c < kMostSize / 8; ++c) o[c] = 0;
    for (int64_t key = begin; key < end; key += kKeys) {
      const int keys = static_cast<int>(smaller<int64_t>(kKeys, end - key));
      lane.sync();
      load(lane, tile, k + kv_head * size, kv_heads, key, keys);
      lane.sync();
      score(mine, tile, me, from - key, to_key - key, s);
      UNROLL
      for (int i = 0; i < kKeys / 8; ++i) {
        const bool seen = me + i * 8 >= from - key && me + i * 8 < to_key - key;
        const float w = seen ? exp_bounded(s[i] - top) : 0.0f;
        sums[i % 2] = sums[i % 2] + w;
        weights[query * kKeys + me + i * 8] = w;
      }
      lane.sync();
      load(lane, tile, v + kv_head * size, kv_heads, key, keys);
      lane.sync();
      for (int j = 0; j < keys; ++j) {
        const float w = weights[query * kKeys + j];
        UNROLL
        for (int c = 0; c < kMostSize / 8; ++c)
          if (me + c * 8 < size) o[c] = fma(w, tile[j * (size + 1) + me + c * 8], o[c]);
      }
    }
    float sum = sums[0] + sums[1];
    UNROLL
    for (int mask = 4; mask > 0; mask >>= 1) sum = sum + lane.shuffle_xor(sum, mask);
    const float factor = divide(1.0f, sum);
    UNROLL
    for (int c = 0; c < kMostSize / 8; ++c)
      if (exists && me + c * 8 < size) to[me + c * 8] = E::store(o[c] * factor);
  }
};

// A thread has a column of one row of the result; a row outside the tokens gives zeros.
template <class E>
struct PoolRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  const int32_t* borders;
  const int32_t* rows;
  float* out;
  int64_t tokens, sequences, width, kind;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t c = static_cast<int64_t>(lane.block()) * kThreads + lane.thread(), row = rows[lane.block_y()];
    if (c >= width) return;
    float* to = out + lane.block_y() * width + c;
    if (row < 0 || row >= tokens) {
      *to = 0;
      return;
    }
    int64_t low = 0, high = sequences;  // the first sequence that ends behind the row
    while (low + 1 < high) {
      const int64_t middle = (low + high) / 2;
      (borders[middle] <= row ? low : high) = middle;
    }
    const int64_t begin = borders[low], last = kind == 2 ? begin : row, first = kind == 0 ? row : begin;
    float sum = 0;
    for (int64_t t = first; t <= last; ++t) sum = sum + E::load(x[t * width + c]);
    *to = kind == 1 ? divide(sum, static_cast<float>(last - first + 1)) : sum;
  }
};

// Sixteen lanes a row, a partial sum each.
struct UnitRows {
  static constexpr int kThreads = 128, kBlocks = 1;
  const float* x;
  float* out;
  int64_t rows, width;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t row = static_cast<int64_t>(lane.block()) * (kThreads / 16) + lane.thread() / 16;
    const bool exists = row < rows;
    const int me = lane.thread() % 16;
    const float* from = x + (exists ? row : 0) * width;
    float squares = 0;
    for (int64_t i = me; i < width; i += 16) squares = fma(from[i], from[i], squares);
    UNROLL
    for (int mask = 8; mask > 0; mask >>= 1) squares = squares + lane.shuffle_xor(squares, mask);
    const float norm = root(squares), divisor = norm > 1e-12f ? norm : 1e-12f;
    for (int64_t i = me; i < width && exists; i += 16) out[row * width + i] = divide(from[i], divisor);
  }
};

template <class E, int kMostSize, class L>
void run_segments(const SegmentAttentionArgs& a, L& launch) {
  using K = SegmentAttention<E, kMostSize>;
  const Groups sequences{a.cu_seqlens, launch.size(a.borders) - 1, launch.size(a.tokens)};
  launch.run(a.heads, K::kThreads, K::shared_bytes(a.size),
             K{a.q, a.k, a.v, a.out, sequences, a.heads, a.kv_heads, a.size, a.window, static_cast<float>(a.scale)},
             sequences.most_tiles(K::kQueries));
}

template <class E, class L>
void run_segment_attention(const SegmentAttentionArgs& a, L& launch) {
  if (a.size <= kUsualSegmentHead) return run_segments<E, kUsualSegmentHead>(a, launch);
  run_segments<E, kMostSegmentHead>(a, launch);
}

template <class E, class L>
void run_pool_rows(const PoolRowsArgs& a, L& launch) {
  launch.run(
      blocks_for(a.width, kElementThreads), kElementThreads, 0,
      PoolRows<E>{a.x, a.cu_seqlens, a.rows, a.out, launch.size(a.tokens), launch.size(a.borders) - 1, a.width, a.kind},
      launch.size(a.count));
}

template <class L>
void run_l2_normalize(const VectorsArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(blocks_for(rows, UnitRows::kThreads / 16), UnitRows::kThreads, 0, UnitRows{a.x, a.out, rows, a.width});
}

template <class L>
void fill_encoder_of(KernelTable& table) {
  table.segment_attention = REPRISE_CUDA_PER_TYPE(run_segment_attention, L);
  table.pool_rows = REPRISE_CUDA_PER_TYPE(run_pool_rows, L);
  table.l2_normalize = erased<L, run_l2_normalize<L>>;
}

}  // namespace reprise::cuda
