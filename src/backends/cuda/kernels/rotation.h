// Rotary embedding, and everything between the query/key/value projection and attention: split, norm of heads,
// rotation, cache write.
#pragma once

#include "backends/cuda/kernels/kv_layout.h"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/quantise_row.h"
#include "backends/cuda/kernels/rotation_limits.h"
#include "ops/args/rotation.h"

namespace reprise::cuda {

constexpr int kHeadWarps = 4;  // of a block; each has a head of its own

// The angle is a product of floats, as HF computes it; its cosine and sine are taken in double and rounded once.
struct RopeTable {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const int32_t* positions;
  float* table;
  int64_t tokens, half, window;
  double ntk_base, ntk_factor;
  float scale;
  double inv_freq[kMaxRotatedHalf];

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t u = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (u >= tokens * half) return;
    const int64_t t = u / half, i = u % half, dim = 2 * half;
    const int64_t length = static_cast<int64_t>(positions[t]) + 1;
    double freq = inv_freq[i];
    if (window > 0 && length > window) {
      const double stretch = ntk_factor * static_cast<double>(length) / static_cast<double>(window) - (ntk_factor - 1);
      const double power = static_cast<double>(dim) / static_cast<double>(dim - 2);
      const double log2_base = ::log2(ntk_base) + power * ::log2(stretch);
      freq = ::exp2(-2.0 * static_cast<double>(i) / static_cast<double>(dim) * log2_base);
    }
    const float angle = static_cast<float>(positions[t]) * static_cast<float>(freq);
    table[t * dim + i] = static_cast<float>(::cos(static_cast<double>(angle))) * scale;
    table[t * dim + half + i] = static_cast<float>(::sin(static_cast<double>(angle))) * scale;
  }
};

// The same angle of one of several positions.
struct AxesTable {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const int32_t* positions;
  float* table;
  int64_t tokens, half, columns;
  float scale;
  double inv_freq[kMaxRotatedHalf];
  uint8_t axes[kMaxRotatedHalf];

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t u = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (u >= tokens * half) return;
    const int64_t t = u / half, i = u % half;
    const float angle = static_cast<float>(positions[t * columns + axes[i]]) * static_cast<float>(inv_freq[i]);
    table[t * 2 * half + i] = static_cast<float>(::cos(static_cast<double>(angle))) * scale;
    table[t * 2 * half + half + i] = static_cast<float>(::sin(static_cast<double>(angle))) * scale;
  }
};

// Number d of a head of which the first `rot` are rotated in pairs (i, i + rot/2). `neighbours`: the pairs are
// (2 i, 2 i + 1), and only their results lie at (i, i + rot/2).
template <class E>
DEV float rotate(const typename E::Type* x, const float* angles, int64_t d, int64_t rot, bool neighbours) {
  if (d >= rot) return E::load(x[d]);
  const int64_t half = rot / 2, pair = d % half;
  const bool second = d >= half;
  const float c = angles[pair], s = angles[half + pair];
  const float v = E::load(x[neighbours ? 2 * pair + second : d]);
  const float other = E::load(x[neighbours ? 2 * pair + !second : second ? d - half : d + half]);
  return second ? fma(other, s, v * c) : fma(-other, s, v * c);
}

template <class E>
struct Rope {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  const float* table;
  typename E::Type* out;
  int64_t tokens, heads, size, rot;
  bool neighbours;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t u = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (u >= tokens * heads * size) return;
    const int64_t row = u / size;
    out[u] = E::store(rotate<E>(x + row * size, table + row / heads * rot, u % size, rot, neighbours));
  }
};

// Where a row of a cache goes: as it is, or as int8 and its scale. A warp writes a row.
template <class E, bool kInt8>
struct CacheRow {
  using Cell = typename std::conditional<kInt8, int8_t, typename E::Type>::type;

  // `row` lies in shared memory.
  template <class L>
  static DEV void write(L& lane, Cell* block, int64_t place, const typename E::Type* row, int64_t size) {
    const int me = lane.thread() % 32;
    if constexpr (kInt8) {
      float top = 0;
      for (int64_t d = me; d < size; d += 32) top = larger_magnitude(top, E::load(row[d]));
      const float scale = dynamic_scale(warp_max(lane, top));
      for (int64_t d = me; d < size; d += 32) block[place * size + d] = to_i8(divide(E::load(row[d]), scale));
      if (me == 0) {
        // The scales lie behind 128 * size bytes; a block is aligned to four.
        *reinterpret_cast<float*>(block + kPageRows * size + place * 4) = scale;
      }
    } else {
      for (int64_t d = me; d < size; d += 32) block[place * size + d] = row[d];
    }
  }
};

// A warp takes one head of one token: query heads first, then keys, then values. Null weights: no norm. With a cache,
// keys and values go there and `k_out`, `v_out` are null.
template <class E, bool kInt8>
struct SplitHeads {
  static constexpr int kThreads = 32 * kHeadWarps, kBlocks = 1;
  using T = typename E::Type;
  using Cell = typename CacheRow<E, kInt8>::Cell;
  const T* qkv;
  const float* table;
  const T* q_weight;
  const T* k_weight;
  T* q_out;
  T* k_out;
  T* v_out;
  Cell* cache;
  const int32_t* slots;
  int64_t tokens, heads, kv_heads, size, rot;
  float eps;

  template <class L>
  DEV void operator()(L& lane) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int64_t all = heads + 2 * kv_heads;
    const int64_t u = static_cast<int64_t>(lane.block()) * kHeadWarps + warp;
    if (u >= tokens * all) return;  // whole warps leave; nothing below waits for the block
    const int64_t t = u / all, h = u % all;
    T* head = reinterpret_cast<T*>(lane.shared()) + warp * 2 * kLargestHead;
    T* turned = head + kLargestHead;
    const T* x = qkv + u * size;
    const bool key = h >= heads && h < heads + kv_heads, value = h >= heads + kv_heads;
    const T* weight = value ? nullptr : key ? k_weight : q_weight;
    if (weight) {
      const int64_t i = me * 8;
      float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      if (i < size) load_chunk<E>(x, i, size, v);
      const float factor = rms_factor(warp_sum(lane, square_chunk(v, 0.0f)), size, eps);
      if (i < size) {
        normalise_chunk<E>(v, factor, weight, nullptr, i, size);
        UNROLL
        for (int j = 0; j < 8; ++j)
          if (i + j < size) head[i + j] = E::store(v[j]);
      }
    } else {
      for (int64_t d = me; d < size; d += 32) head[d] = x[d];
    }
    lane.warp_sync();
    if (!value) {
      for (int64_t d = me; d < size; d += 32)
        turned[d] = d < rot ? E::store(rotate<E>(head, table + t * rot, d, rot, false)) : head[d];
      lane.warp_sync();
      head = turned;
    }
    if (h < heads) {
      for (int64_t d = me; d < size; d += 32) q_out[(t * heads + h) * size + d] = head[d];
      return;
    }
    const int64_t g = value ? h - heads - kv_heads : h - heads;
    if (!cache) {
      T* out = value ? v_out : k_out;
      for (int64_t d = me; d < size; d += 32) out[(t * kv_heads + g) * size + d] = head[d];
    } else if (const int32_t slot = slots[t]; slot >= 0) {
      const int64_t row = kInt8 ? size + 4 : size;
      CacheRow<E, kInt8>::write(lane, cache + kv_block(slot / kPageRows, value, g, kv_heads, row), slot % kPageRows,
                                head, size);
    }
  }
};

// A warp takes one key or value head of one token.
template <class E, bool kInt8>
struct KvWrite {
  static constexpr int kThreads = 32 * kHeadWarps, kBlocks = 1;
  using T = typename E::Type;
  using Cell = typename CacheRow<E, kInt8>::Cell;
  Cell* cache;
  const T* k;
  const T* v;
  const int32_t* slots;
  int64_t tokens, kv_heads, size;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t u = static_cast<int64_t>(lane.block()) * kHeadWarps + lane.thread() / 32;
    if (u >= tokens * kv_heads * 2) return;
    const int64_t t = u / (kv_heads * 2), h = u % (kv_heads * 2), g = h % kv_heads;
    const int32_t slot = slots[t];
    if (slot < 0) return;
    const bool value = h >= kv_heads;
    const int64_t row = kInt8 ? size + 4 : size;
    CacheRow<E, kInt8>::write(lane, cache + kv_block(slot / kPageRows, value, g, kv_heads, row), slot % kPageRows,
                              (value ? v : k) + (t * kv_heads + g) * size, size);
  }
};

// Row t of `rows` goes to slot slots[t]; a negative one is skipped. One block a row.
struct RowWrite {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  char* cache;
  const char* rows;
  const int32_t* slots;
  int64_t bytes;

  template <class L>
  DEV void operator()(L& lane) const {
    const int32_t slot = slots[lane.block()];
    if (slot < 0) return;
    for (int64_t i = lane.thread() * 2; i < bytes; i += lane.threads() * 2)
      *reinterpret_cast<uint16_t*>(cache + slot * bytes + i) =
          *reinterpret_cast<const uint16_t*>(rows + lane.block() * bytes + i);
  }
};

template <class L>
void run_rope_table(const RopeTableArgs& a, L& launch) {
  RopeTable k{};
  k.positions = a.positions;
  k.table = a.table;
  k.tokens = launch.size(a.tokens);
  k.half = a.dim / 2;
  k.window = a.ntk_window;
  k.scale = static_cast<float>(a.scale);
  k.ntk_base = a.ntk_base;
  k.ntk_factor = a.ntk_factor;
  std::memcpy(k.inv_freq, a.inv_freq, static_cast<size_t>(k.half) * sizeof(double));
  launch.run(blocks_for(k.tokens * k.half, kElementThreads), kElementThreads, 0, k);
}

template <class L>
void run_rope_table_axes(const RopeTableAxesArgs& a, L& launch) {
  AxesTable k{};
  k.positions = a.positions;
  k.table = a.table;
  k.tokens = launch.size(a.tokens);
  k.half = a.frequencies;
  k.columns = a.columns;
  k.scale = static_cast<float>(a.scale);
  std::memcpy(k.inv_freq, a.inv_freq, static_cast<size_t>(k.half) * sizeof(double));
  for (int64_t i = 0; i < k.half; ++i) k.axes[i] = static_cast<uint8_t>(a.axes[i]);
  launch.run(blocks_for(k.tokens * k.half, kElementThreads), kElementThreads, 0, k);
}

struct PositionScale {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const int32_t* positions;
  float* out;
  int64_t tokens, count, period, offset;
  float factors[kMaxScaleFactors];

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t t = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (t >= tokens) return;
    const int64_t at = positions[t] < 0 ? 0 : (positions[t] + offset) / period;
    out[t] = factors[at < count ? at : count - 1];
  }
};

template <class L>
void run_position_scale(const PositionScaleArgs& a, L& launch) {
  PositionScale k{};
  k.positions = a.positions;
  k.out = a.out;
  k.tokens = launch.size(a.tokens);
  k.count = a.count;
  k.period = a.period;
  k.offset = a.offset;
  for (int64_t i = 0; i < a.count; ++i) k.factors[i] = static_cast<float>(a.factors[i]);
  launch.run(blocks_for(k.tokens, kElementThreads), kElementThreads, 0, k);
}

template <class E, class L>
void run_rope(const RopeArgs& a, L& launch) {
  const Rope<E> k{a.x, a.table, a.out, launch.size(a.tokens), a.heads, a.size, a.rotated, a.interleaved};
  launch.run(blocks_for(k.tokens * k.heads * k.size, kElementThreads), kElementThreads, 0, k);
}

// What both splits have in common; the places of keys and values are set already.
template <class E, bool kInt8, class A, class L>
void run_split_heads(SplitHeads<E, kInt8> k, const A& a, L& launch) {
  k.qkv = a.qkv;
  k.table = a.table;
  k.q_weight = a.q_weight;
  k.k_weight = a.k_weight;
  k.q_out = a.q;
  k.tokens = launch.size(a.sizes.tokens);
  k.heads = a.sizes.heads;
  k.kv_heads = a.sizes.kv_heads;
  k.size = a.sizes.size;
  k.rot = a.sizes.rotated;
  k.eps = static_cast<float>(a.sizes.eps);
  launch.run(blocks_for(k.tokens * (k.heads + 2 * k.kv_heads), kHeadWarps), 32 * kHeadWarps,
             kHeadWarps * 2 * kLargestHead * sizeof(typename E::Type), k);
}

template <class E, class L>
void run_split_qk_norm_rope(const SplitArgs& a, L& launch) {
  SplitHeads<E, false> k{};
  k.k_out = a.k;
  k.v_out = a.v;
  run_split_heads(k, a, launch);
}

template <class E, bool kInt8, class L>
void run_split_into_cache(const SplitKvArgs& a, L& launch) {
  SplitHeads<E, kInt8> k{};
  k.cache = a.kv;
  k.slots = a.slots;
  run_split_heads(k, a, launch);
}
template <class E, class L>
void run_split_qk_norm_rope_kv(const SplitKvArgs& a, L& launch) {
  run_split_into_cache<E, false>(a, launch);
}
template <class E, class L>
void run_split_qk_norm_rope_kv_i8(const SplitKvArgs& a, L& launch) {
  run_split_into_cache<E, true>(a, launch);
}

template <class E, bool kInt8, class L>
void run_write(const KvWriteArgs& a, L& launch) {
  const KvWrite<E, kInt8> k{a.kv, a.k, a.v, a.slots, launch.size(a.tokens), a.heads, a.size};
  launch.run(blocks_for(k.tokens * k.kv_heads * 2, kHeadWarps), 32 * kHeadWarps, 0, k);
}
template <class E, class L>
void run_kv_write(const KvWriteArgs& a, L& launch) {
  run_write<E, false>(a, launch);
}
template <class E, class L>
void run_kv_write_i8(const KvWriteArgs& a, L& launch) {
  run_write<E, true>(a, launch);
}

template <class L>
void run_row_write(const RowWriteArgs& a, L& launch) {
  launch.run(launch.size(a.tokens), kElementThreads, 0, RowWrite{a.cache, a.rows, a.slots, a.width * a.element});
}

template <class L>
void fill_rotation_of(KernelTable& table) {
  table.rope = REPRISE_CUDA_PER_TYPE(run_rope, L);
  table.split_qk_norm_rope = REPRISE_CUDA_PER_TYPE(run_split_qk_norm_rope, L);
  table.split_qk_norm_rope_kv = REPRISE_CUDA_PER_TYPE(run_split_qk_norm_rope_kv, L);
  table.split_qk_norm_rope_kv_i8 = REPRISE_CUDA_PER_TYPE(run_split_qk_norm_rope_kv_i8, L);
  table.kv_write = REPRISE_CUDA_PER_TYPE(run_kv_write, L);
  table.kv_write_i8 = REPRISE_CUDA_PER_TYPE(run_kv_write_i8, L);
  table.position_scale = erased<L, run_position_scale<L>>;
  table.rope_table = erased<L, run_rope_table<L>>;
  table.rope_table_axes = erased<L, run_rope_table_axes<L>>;
  table.row_write = erased<L, run_row_write<L>>;
}

}  // namespace reprise::cuda
