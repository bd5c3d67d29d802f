// Attention over the paged cache.
//
// The rule, for a row (token, query head) of bf16 or f16, the same in every graph mode, batch and chunk:
//   keys are taken in groups of 128 and tiles of 64, both counted from key 0 of the sequence;
//   a score is one chain of tensor-core blocks of 16 over the head; keys that the row does not see are -inf; with
//   c = scale * log2(e), a tile's weights are 2^fma(score, c, -c * largest so far), summed by lane (8 key pairs in
//   order), then xor 1, 2;
//   within a group, from zero, the output is scaled by 2^(c * (old largest - new largest)) and goes on as one chain
//   over the tile's keys, weights rounded to the dtype; groups are folded in ascending order: o = fma(o, a, o_g * b),
//   likewise the sums; at last o / l, rounded once, a sink being the last weight of l.
// Under a cap a score becomes cap * tanh(score * scale / cap) before it is masked, and c is log2(e).
// A tile or group of which a row sees nothing leaves its bits alone, so it does not matter which are visited.
//
// Two kernels of four warps follow it. "Few": a sequence with up to kFewRows rows a key/value head; a block takes 16
// rows and one group, whose state goes to the workspace for the merge, or all groups where that has too few slots. Each
// warp has the scores of 16 keys of a tile, then all weights and a quarter of the output's columns. "Many": 64 rows and
// all groups; a warp has 16 rows. Grids are the device's size and work is found from the lengths, so a captured launch
// serves every step.
//
// With f32, a warp takes one row: tiles of 32 keys, a key a lane, chains of fma; the state goes on from tile to tile.
#pragma once

#include "backends/cuda/kernels/attention_f32.h"
#include "backends/cuda/kernels/attention_pieces.h"
#include "backends/cuda/kernels/kv_layout.h"
#include "backends/cuda/kernels/linear.h"
#include "backends/cuda/kernels/rotation.h"
#include "ops/args/attention.h"

namespace reprise::cuda {

// State of 16 rows in one warp: lane has rows lane / 4 and lane / 4 + 8, and of every eight columns two.
template <int kColumns>
struct RowState {
  static constexpr int kTiles = kColumns / 8;
  float top[2], sum[2];
  float o[kTiles][4];

  DEV void clear() {
    top[0] = top[1] = -__builtin_huge_valf();
    sum[0] = sum[1] = 0;
    UNROLL
    for (int n = 0; n < kColumns / 8; ++n) UNROLL
    for (int i = 0; i < 4; ++i) o[n][i] = 0;
  }
};

// One row's state folded with the next group's.
struct Fold {
  float top, mine, theirs;
  DEV Fold(float top_mine, float top_theirs, float factor) : top(top_theirs > top_mine ? top_theirs : top_mine) {
    mine = exp2_of((top_mine - base_of(top)) * factor);
    theirs = exp2_of((top_theirs - base_of(top)) * factor);
  }
  DEV float of(float a, float b) const { return fma(a, mine, b * theirs); }
};

// How a tile of keys or values comes into shared memory: [64][kDepth + 8], zeros behind the head's size and behind the
// last key. Of int8 the numbers become E, which is exact, and their scales go to `scales`.
template <class E, int kWidth, bool kInt8>
struct CacheTile {
  static constexpr int kPitch = kWidth + 8;
  static constexpr int kElements = kTileKeys * kPitch;

  template <class L>
  static DEV void load(L& lane, uint16_t* to, float* scales, const void* cache, const AttentionSizes& z, int64_t page,
                       bool values, int64_t head, int place, int keys, int first_column) {
    const int width = static_cast<int>(smaller<int64_t>(kWidth, z.size - first_column));
    constexpr int kChunks = kWidth / 8;
    if constexpr (kInt8) {
      const auto* block = static_cast<const int8_t*>(cache) + kv_block(page, values, head, z.kv_heads, z.size + 4);
      const auto* of_block = reinterpret_cast<const float*>(block + kPageRows * z.size);
      for (int i = lane.thread(); i < kTileKeys; i += lane.threads()) scales[i] = i < keys ? of_block[place + i] : 0;
      for (int i = lane.thread(); i < kTileKeys * kChunks; i += lane.threads()) {
        const int key = i / kChunks, column = i % kChunks * 8;
        uint16_t* at = to + key * kPitch + column;
        const int8_t* from = block + (place + key) * z.size + first_column + column;
        UNROLL
        for (int j = 0; j < 8; ++j)
          at[j] = key < keys && column + j < width ? E::store(static_cast<float>(from[j])) : uint16_t{0};
      }
    } else {
      const int size = static_cast<int>(z.size);
      const auto* block = static_cast<const uint16_t*>(cache) + kv_block(page, values, head, z.kv_heads, z.size) +
                          place * z.size + first_column;
      if (keys == kTileKeys && width == kWidth && size % 8 == 0) {
        // A thread has one column of every so many keys.
        const int column = lane.thread() % kChunks * 8, first = lane.thread() / kChunks;
        const int step = lane.threads() / kChunks;
        const uint16_t* from = block + first * size + column;
        uint16_t* at = to + first * kPitch + column;
        UNROLL
        for (int key = 0; key < kTileKeys / step; ++key) {
          lane.copy_async(at, from, 16);
          from += step * size;
          at += step * kPitch;
        }
      } else {
        for (int i = lane.thread(); i < kTileKeys * kChunks; i += lane.threads()) {
          const int key = i / kChunks, column = i % kChunks * 8;
          const int left = key < keys ? greater(0, smaller(8, width - column)) : 0;
          uint16_t* at = to + key * kPitch + column;
          const uint16_t* from = left > 0 ? block + key * size + column : block;
          if (size % 8 == 0) {
            lane.copy_async(at, from, left * 2);
          } else {
            UNROLL
            for (int j = 0; j < 8; ++j) at[j] = j < left ? from[j] : uint16_t{0};
          }
        }
      }
    }
    lane.commit_copies();
  }
};

// kDepth: the head's size in blocks of 16, at most 256. kCapped: a kernel of its own, because capping takes registers.
template <class E, int kDepth, bool kFew, bool kInt8, bool kCapped>
struct Attention {
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kBlocks = 1;
  static constexpr int kTileRows = kFew ? 16 : kWarps * 16;
  static constexpr int kOut = kDepth < kValueColumns ? kDepth : kValueColumns;
  static constexpr int kMine = kFew ? kOut / kWarps : kOut;  // columns of the output that a warp has
  static constexpr int kPasses = (kDepth + kValueColumns - 1) / kValueColumns;
  static constexpr int kQueryPitch = kDepth + 8;
  using Keys = CacheTile<E, kDepth, kInt8>;
  using Values = CacheTile<E, kOut, kInt8>;
  using State = RowState<kMine>;
  static constexpr int kStateFloats = 16 * (kOut + 2);

  const uint16_t* q;
  const void* cache;
  Lengths lengths;
  uint16_t* out;
  float* states;  // kSlots of kStateFloats
  AttentionSizes z;

  // "Few" waits for memory most of the time: it keeps two tiles of keys and values on their way.
  static constexpr int kStages = kFew ? 2 : 1;
  static constexpr int kStageElements = Keys::kElements + Values::kElements;
  static constexpr int kScorePitch = kTileKeys + 8;
  static constexpr size_t kScoreBytes = kFew ? 16 * kScorePitch * sizeof(float) : 0;
  static constexpr size_t kTileBytes = (size_t{kTileRows} * kQueryPitch + size_t{kStages} * kStageElements) * 2 +
                                       size_t{kStages} * 2 * kTileKeys * sizeof(float) + kScoreBytes;
  static size_t shared_bytes(int64_t sequences) {
    return kTileBytes + static_cast<size_t>(sequences + 1) * sizeof(int32_t);
  }

  template <class L>
  struct Block {
    uint16_t* queries;
    uint16_t* keys;  // of a stage, as the next three
    uint16_t* values;
    float* key_scales;
    float* value_scales;
    float* scores;
    int32_t* begins;
    explicit DEV Block(L& lane, int stage = 0) {
      queries = reinterpret_cast<uint16_t*>(lane.shared());
      uint16_t* tiles = queries + kTileRows * kQueryPitch;
      keys = tiles + stage * kStageElements;
      values = keys + Keys::kElements;
      auto* scales = reinterpret_cast<float*>(tiles + kStages * kStageElements);
      key_scales = scales + stage * 2 * kTileKeys;
      value_scales = key_scales + kTileKeys;
      scores = scales + kStages * 2 * kTileKeys;
      begins = reinterpret_cast<int32_t*>(scores + kScoreBytes / sizeof(float));
    }
  };

  // Where a warp's rows begin among the block's, and its columns of the output among a pass's.
  template <class L>
  DEV static int my_row(L& lane) {
    return kFew ? 0 : lane.thread() / 32 * 16;
  }
  template <class L>
  DEV static int my_column(L& lane) {
    return kFew ? lane.thread() / 32 * kMine : 0;
  }

  template <class L>
  DEV void load_queries(L& lane, const Block<L>& b, const Piece& p, int first_row, int rows) const {
    const int ratio = static_cast<int>(z.ratio()), start = lengths.cu_seqlens[p.sequence];
    if (z.size % 8 == 0) {
      constexpr int kChunks = kDepth / 8;
      for (int i = lane.thread(); i < kTileRows * kChunks; i += kThreads) {
        const int row = i / kChunks, d = i % kChunks * 8, at = first_row + row;
        const bool exists = at < rows && d < z.size;
        const uint16_t* from = q + ((start + at / ratio) * z.heads + p.head * ratio + at % ratio) * z.size + d;
        *reinterpret_cast<Sixteen*>(b.queries + row * kQueryPitch + d) =
            exists ? *reinterpret_cast<const Sixteen*>(from) : Sixteen{};
      }
      return;
    }
    for (int i = lane.thread(); i < kTileRows * kDepth; i += kThreads) {
      const int row = i / kDepth, d = i % kDepth, at = first_row + row;
      const bool exists = at < rows && d < z.size;
      b.queries[row * kQueryPitch + d] =
          exists ? q[((start + at / ratio) * z.heads + p.head * ratio + at % ratio) * z.size + d] : uint16_t{0};
    }
  }

  // The scores of a warp's 16 rows and the tile's keys.
  template <class L>
  DEV void scores(L& lane, const Block<L>& b, float (&s)[kTileKeys / 8][4]) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    UNROLL
    for (int n = 0; n < kTileKeys / 8; ++n) UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
    const uint16_t* rows = b.queries + (warp * 16 + me / 8 % 2 * 8 + me % 8) * kQueryPitch + me / 16 * 8;
    const uint16_t* keys = b.keys + (me / 16 * 8 + me % 8) * Keys::kPitch + me / 8 % 2 * 8;
    UNROLL
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[4];
      lane.template load_matrices<false>(a, rows + k);
      UNROLL
      for (int n = 0; n < kTileKeys / 8; n += 2) {
        uint32_t r[4];
        lane.template load_matrices<false>(r, keys + n * 8 * Keys::kPitch + k);
        const uint32_t first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
        lane.mma(E{}, s[n], a, first);
        lane.mma(E{}, s[n + 1], a, second);
      }
    }
  }

  // Of "few": each warp's scores are of 16 keys, and every warp gets all of them.
  template <class L>
  DEV void shared_scores(L& lane, const Block<L>& b, float (&s)[kTileKeys / 8][4]) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    float mine[2][4];
    UNROLL
    for (int n = 0; n < 2; ++n) UNROLL
    for (int i = 0; i < 4; ++i) mine[n][i] = 0;
    const uint16_t* rows = b.queries + (me / 8 % 2 * 8 + me % 8) * kQueryPitch + me / 16 * 8;
    const uint16_t* keys = b.keys + (warp * 16 + me / 16 * 8 + me % 8) * Keys::kPitch + me / 8 % 2 * 8;
    UNROLL
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[4], r[4];
      lane.template load_matrices<false>(a, rows + k);
      lane.template load_matrices<false>(r, keys + k);
      const uint32_t first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
      lane.mma(E{}, mine[0], a, first);
      lane.mma(E{}, mine[1], a, second);
    }
    float* at = b.scores + me / 4 * kScorePitch + me % 4 * 2;
    UNROLL
    for (int n = 0; n < 2; ++n) UNROLL
    for (int i = 0; i < 4; ++i) at[i / 2 * 8 * kScorePitch + warp * 16 + n * 8 + i % 2] = mine[n][i];
    lane.sync();
    UNROLL
    for (int n = 0; n < kTileKeys / 8; ++n) UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = at[i / 2 * 8 * kScorePitch + n * 8 + i % 2];
  }

  // Scores become weights; the state's largest, sums and outputs move to the new largest. `sees` are the last key of
  // the lane's two rows, `first_key` the tile's.
  template <class L>
  DEV void weigh(L& lane, const Block<L>& b, float (&s)[kTileKeys / 8][4], State& state, const int (&sees)[2],
                 int first_key) const {
    const int me = lane.thread() % 32, window = static_cast<int>(z.window);
    const float factor = z.factor();
    UNROLL
    for (int half = 0; half < 2; ++half) {
      // Positions of this lane's keys, relative to the tile's first key.
      const int last = sees[half] - first_key, first = window == 0 ? 0 : last - window + 1;
      const bool all = last >= kTileKeys - 1 && first <= 0;
      float top = state.top[half];
      UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) {
        const int place = n * 8 + me % 4 * 2 + i;
        float v = s[n][half * 2 + i];
        if constexpr (kInt8) v = v * b.key_scales[place];
        if constexpr (kCapped) v = capped(v, z);
        if (!all) v = place <= last && place >= first ? v : -__builtin_huge_valf();
        s[n][half * 2 + i] = v;
        top = v > top ? v : top;
      }
      UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) {
        const float other = lane.shuffle_xor(top, mask);
        top = other > top ? other : top;
      }
      const float base = base_of(top), from = -(base * factor);
      const float shrink = exp2_of((state.top[half] - base) * factor);
      float sum = 0;
      UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) {
        const float w = exp2_of(fma(s[n][half * 2 + i], factor, from));
        sum = sum + w;
        s[n][half * 2 + i] = w;
      }
      UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) sum = sum + lane.shuffle_xor(sum, mask);
      state.sum[half] = fma(state.sum[half], shrink, sum);
      state.top[half] = top;
      UNROLL
      for (int n = 0; n < State::kTiles; ++n) UNROLL
      for (int i = 0; i < 2; ++i) state.o[n][half * 2 + i] = state.o[n][half * 2 + i] * shrink;
    }
  }

  template <class L>
  DEV void add_values(L& lane, const Block<L>& b, const float (&s)[kTileKeys / 8][4], State& state) const {
    const int me = lane.thread() % 32;
    const uint16_t* values =
        b.values + (me / 8 % 2 * 8 + me % 8) * Values::kPitch + me / 16 * 8 + my_column(lane);
    UNROLL
    for (int k = 0; k < kTileKeys; k += 16) {
      uint32_t a[4];
      UNROLL
      for (int i = 0; i < 4; ++i) {
        float first = s[k / 8 + i / 2][i % 2 * 2], second = s[k / 8 + i / 2][i % 2 * 2 + 1];
        if constexpr (kInt8) {
          const float* scale = b.value_scales + k + i / 2 * 8 + me % 4 * 2;
          first = first * scale[0], second = second * scale[1];
        }
        a[i] = pack_two<E>(first, second);
      }
      UNROLL
      for (int n = 0; n < State::kTiles; n += 2) {
        uint32_t r[4];
        lane.template load_matrices<true>(r, values + k * Values::kPitch + n * 8);
        const uint32_t first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
        lane.mma(E{}, state.o[n], a, first);
        lane.mma(E{}, state.o[n + 1], a, second);
      }
    }
  }

  template <class L>
  DEV void load_keys(L& lane, const Block<L>& b, const Piece& p, int key, int last) const {
    const int32_t* pages = lengths.page_table + p.sequence * z.columns;
    Keys::load(lane, b.keys, b.key_scales, cache, z, pages[key / kPageRows], false, p.head, key % kPageRows,
               smaller(kTileKeys, last - key), 0);
  }
  template <class L>
  DEV void load_values(L& lane, const Block<L>& b, const Piece& p, int key, int last) const {
    const int32_t* pages = lengths.page_table + p.sequence * z.columns;
    Values::load(lane, b.values, b.value_scales, cache, z, pages[key / kPageRows], true, p.head, key % kPageRows,
                 smaller(kTileKeys, last - key), p.pass * kOut);
  }

  // Keys [first, last) of a sequence in tiles of which the states of groups come; `done(group, state)` takes each.
  // Whole blocks take part.
  template <class L, class Done>
  DEV void attend_few(L& lane, const Piece& p, const int (&sees)[2], int first, int last, const Done& done) const {
    const Block<L> even(lane, 0), odd(lane, 1);
    auto load = [&](const Block<L>& b, int key) {
      if (key < last) {
        load_keys(lane, b, p, key, last);
        load_values(lane, b, p, key, last);
      } else {
        lane.commit_copies();
        lane.commit_copies();
      }
    };
    State state;
    state.clear();
    auto tile = [&](const Block<L>& b, int key) {
      lane.template wait_copies<3>();
      lane.sync();
      float s[kTileKeys / 8][4];
      shared_scores(lane, b, s);
      weigh(lane, b, s, state, sees, key);
      lane.template wait_copies<2>();
      lane.sync();
      add_values(lane, b, s, state);
      lane.sync();  // the tile is read no more
      load(b, key + 2 * kTileKeys);
      const int next = key + kTileKeys;
      if (next % kGroupKeys != 0 && next < last) return;
      done(key / kGroupKeys, state);
      state.clear();
    };
    load(even, first);
    load(odd, first + kTileKeys);
    for (int key = first; key < last; key += 2 * kTileKeys) {
      tile(even, key);
      if (key + kTileKeys < last) tile(odd, key + kTileKeys);
    }
    lane.template wait_copies<0>();
    lane.sync();
  }

  // Keys [first, last) of one group in tiles; whole blocks take part.
  template <class L>
  DEV void attend_many(L& lane, const Block<L>& b, const Piece& p, State& state, const int (&sees)[2], int first,
                       int last) const {
    load_keys(lane, b, p, first, last);
    load_values(lane, b, p, first, last);
    for (int key = first; key < last; key += kTileKeys) {
      lane.template wait_copies<1>();
      lane.sync();
      float s[kTileKeys / 8][4];
      scores(lane, b, s);
      weigh(lane, b, s, state, sees, key);
      lane.sync();  // the keys are read no more
      if (key + kTileKeys < last)
        load_keys(lane, b, p, key + kTileKeys, last);
      else
        lane.commit_copies();
      lane.template wait_copies<1>();
      lane.sync();
      add_values(lane, b, s, state);
      lane.sync();
      if (key + kTileKeys < last) load_values(lane, b, p, key + kTileKeys, last);
    }
    lane.template wait_copies<0>();
    lane.sync();
  }

  DEV static void fold(State& all, const State& group, float factor) {
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const Fold f(all.top[half], group.top[half], factor);
      all.top[half] = f.top;
      all.sum[half] = f.of(all.sum[half], group.sum[half]);
      UNROLL
      for (int n = 0; n < State::kTiles; ++n) UNROLL
      for (int i = 0; i < 2; ++i) all.o[n][half * 2 + i] = f.of(all.o[n][half * 2 + i], group.o[n][half * 2 + i]);
    }
  }

  // `rows` of the 16 exist.
  template <class L>
  DEV void keep(L& lane, const State& state, int64_t slot, int rows) const {
    const int me = lane.thread() % 32;
    float* to = states + slot * kStateFloats;
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = me / 4 + half * 8;
      if (row >= rows) continue;
      if (lane.thread() < 32 && me % 4 == 0) to[row] = state.top[half], to[16 + row] = state.sum[half];
      UNROLL
      for (int n = 0; n < State::kTiles; ++n) UNROLL
      for (int i = 0; i < 2; ++i)
        to[32 + row * kOut + my_column(lane) + n * 8 + me % 4 * 2 + i] = state.o[n][half * 2 + i];
    }
  }

  template <class L>
  DEV void finish(L& lane, State& state, const Piece& p, int first_row, int rows) const {
    const int me = lane.thread() % 32, ratio = static_cast<int>(z.ratio());
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = first_row + my_row(lane) + me / 4 + half * 8;
      if (at >= rows) continue;
      uint16_t* to =
          out + ((lengths.cu_seqlens[p.sequence] + at / ratio) * z.heads + p.head * ratio + at % ratio) * z.size;
      if (z.sinks) {
        const float by = join_sink(state.top[half], state.sum[half], p.head * ratio + at % ratio, z);
        UNROLL
        for (int n = 0; n < State::kTiles; ++n) UNROLL
        for (int i = 0; i < 2; ++i) state.o[n][half * 2 + i] = state.o[n][half * 2 + i] * by;
      }
      UNROLL
      for (int n = 0; n < State::kTiles; ++n) UNROLL
      for (int i = 0; i < 2; ++i) {
        const int d = p.pass * kOut + my_column(lane) + n * 8 + me % 4 * 2 + i;
        if (d < z.size) to[d] = E::store(divide(state.o[n][half * 2 + i], state.sum[half]));
      }
    }
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const Block<L> b(lane);
    Pieces<kTileRows, kFew> pieces{lengths, z, kPasses, kFew, b.begins};
    pieces.count(lane);
    lane.sync();
    if (kFew && pieces.total() > kSlots) {
      lane.sync();
      pieces.split = false;
      pieces.count(lane);
      lane.sync();
    }
    const int total = pieces.total();
    for (int item = lane.block(); item < total; item += lane.blocks()) {
      const Piece p = pieces.at(item);
      const int tokens = pieces.tokens_of(p.sequence), ratio = static_cast<int>(z.ratio());
      const int rows = tokens * ratio, first_row = p.tile * kTileRows;
      const int length = lengths.context_lens[p.sequence], before = length - tokens;
      const int me = lane.thread() % 32, window = static_cast<int>(z.window);
      int sees[2];
      for (int half = 0; half < 2; ++half) {
        const int at = smaller(rows - 1, first_row + my_row(lane) + me / 4 + half * 8);
        sees[half] = before + at / ratio;
      }
      // Keys that any row of the block sees.
      const int last = before + smaller(rows - 1, first_row + kTileRows - 1) / ratio + 1;
      const int oldest = window == 0 ? 0 : greater(0, before + first_row / ratio - window + 1);
      load_queries(lane, b, p, first_row, rows);
      lane.sync();
      const int first_group = pieces.split ? p.group : oldest / kGroupKeys;
      const int last_group = pieces.split ? p.group + 1 : (last + kGroupKeys - 1) / kGroupKeys;
      const int first = greater(first_group * kGroupKeys, oldest / kTileKeys * kTileKeys);
      State all;
      all.clear();
      if constexpr (kFew) {
        attend_few(lane, p, sees, first, smaller(last_group * kGroupKeys, last), [&](int, const State& state) {
          if (pieces.split)
            all = state;
          else
            fold(all, state, z.factor());
        });
        if (pieces.split)
          keep(lane, all, item, rows - first_row);
        else
          finish(lane, all, p, first_row, rows);
      } else {
        for (int g = first_group; g < last_group; ++g) {
          State state;
          state.clear();
          const int from = greater(g * kGroupKeys, first), end = smaller((g + 1) * kGroupKeys, last);
          if (from < end) attend_many(lane, b, p, state, sees, from, end);
          fold(all, state, z.factor());
        }
        finish(lane, all, p, first_row, rows);
      }
      lane.sync();
    }
  }
};

// The second half of "few": folds the groups of every row. A warp takes a row of one head and pass.
template <class E, int kDepth>
struct AttentionMerge {
  static constexpr int kThreads = 128, kBlocks = 1;
  static constexpr int kOut = kDepth < kValueColumns ? kDepth : kValueColumns;
  static constexpr int kPasses = (kDepth + kValueColumns - 1) / kValueColumns;
  static constexpr int kStateFloats = 16 * (kOut + 2);
  static constexpr int kEach = (kOut + 31) / 32;

  Lengths lengths;
  uint16_t* out;
  const float* states;
  AttentionSizes z;

  static constexpr int kAtOnce = 8;  // groups on their way from memory together

  static size_t shared_bytes(int64_t sequences) { return 2 * static_cast<size_t>(sequences + 1) * sizeof(int32_t); }

  template <class L>
  DEV void operator()(L& lane) const {
    auto* begins = reinterpret_cast<int32_t*>(lane.shared());
    Pieces<16, true> pieces{lengths, z, kPasses, true, begins};             // a group of a tile
    Pieces<16, true> tiles{lengths, z, kPasses, false, begins + z.sequences + 1};  // all groups of it
    pieces.count(lane);
    tiles.count(lane);
    lane.sync();
    if (pieces.total() > kSlots) return;
    const int warps = kThreads / 32, me = lane.thread() % 32, ratio = static_cast<int>(z.ratio());
    for (int item = lane.block(); item < tiles.total(); item += lane.blocks()) {
      const Piece p = tiles.at(item);
      const int rows = pieces.tokens_of(p.sequence) * ratio, groups = pieces.groups_of(p.sequence);
      const float* of_tile = states + static_cast<int64_t>(pieces.item_of(p)) * kStateFloats;
      for (int i = lane.thread() / 32; i < 16; i += warps) {
        const int at = p.tile * 16 + i;
        if (at >= rows) break;
        float top = -__builtin_huge_valf(), sum = 0, o[kEach];
        UNROLL
        for (int j = 0; j < kEach; ++j) o[j] = 0;
        for (int first = 0; first < groups; first += kAtOnce) {
          float tops[kAtOnce], sums[kAtOnce], os[kAtOnce][kEach];
          UNROLL
          for (int g = 0; g < kAtOnce; ++g) {
            const float* from = of_tile + static_cast<int64_t>((first + g) * kPasses) * kStateFloats;
            const bool exists = first + g < groups;
            tops[g] = exists ? from[i] : 0.0f;
            sums[g] = exists ? from[16 + i] : 0.0f;
            UNROLL
            for (int j = 0; j < kEach; ++j)
              os[g][j] = exists && me + j * 32 < kOut ? from[32 + i * kOut + me + j * 32] : 0.0f;
          }
          UNROLL
          for (int g = 0; g < kAtOnce; ++g) {
            if (first + g >= groups) break;
            const Fold f(top, tops[g], z.factor());
            top = f.top;
            sum = f.of(sum, sums[g]);
            UNROLL
            for (int j = 0; j < kEach; ++j) o[j] = f.of(o[j], os[g][j]);
          }
        }
        uint16_t* to =
            out + ((lengths.cu_seqlens[p.sequence] + at / ratio) * z.heads + p.head * ratio + at % ratio) * z.size;
        const float by = z.sinks ? join_sink(top, sum, p.head * ratio + at % ratio, z) : 1.0f;
        UNROLL
        for (int j = 0; j < kEach; ++j) {
          const int c = me + j * 32, d = p.pass * kOut + c;
          if (c < kOut && d < z.size) to[d] = E::store(divide(o[j] * by, sum));
        }
      }
    }
  }
};

template <class L>
AttentionSizes attention_sizes(const PagedAttentionArgs& a, const L& launch) {
  AttentionSizes z{a.heads,
                   a.kv_heads,
                   a.size,
                   launch.size(a.sequences),
                   launch.size(a.columns),
                   a.window,
                   launch.size(a.tokens),
                   static_cast<float>(a.scale)};
  z.sinks = a.sinks;
  if (a.softcap > 0) {
    z.cap = static_cast<float>(a.softcap);
    z.bend = 2 * kLog2E * z.scale / z.cap;
    z.exponent = kLog2E;
  }
  return z;
}

template <class E, int kDepth, bool kInt8, bool kCapped, class L>
void launch_attention(const PagedAttentionArgs& a, L& launch) {
  const AttentionSizes z = attention_sizes(a, launch);
  const Lengths lengths{a.page_table, a.context_lens, a.cu_seqlens};
  const uint16_t* q = a.q;
  uint16_t* out = a.out;
  auto* states = static_cast<float*>(launch.workspace);
  using Few = Attention<E, kDepth, true, kInt8, kCapped>;
  using Many = Attention<E, kDepth, false, kInt8, kCapped>;
  using Merge = AttentionMerge<E, kDepth>;
  // As many blocks as a multiprocessor has room for.
  constexpr int64_t kMost = (size_t{224} << 10) / (Few::kTileBytes + (4 << 10));
  launch.run(launch.multiprocessors * smaller<int64_t>(kMost, 8), Few::kThreads, Few::shared_bytes(z.sequences),
             Few{q, a.kv, lengths, out, states, z});
  launch.run(launch.multiprocessors * 4, Merge::kThreads, Merge::shared_bytes(z.sequences),
             Merge{lengths, out, states, z});
  // Where every sequence has one token at most, none has many rows.
  if (z.tokens == z.sequences && z.ratio() <= kFewRows) return;
  launch.run(launch.multiprocessors * 2, Many::kThreads, Many::shared_bytes(z.sequences),
             Many{q, a.kv, lengths, out, states, z});
}

template <class E, bool kInt8, bool kCapped, class L>
void attend_by_size(const PagedAttentionArgs& a, L& launch) {
  if (a.size <= 64)
    launch_attention<E, 64, kInt8, kCapped>(a, launch);
  else if (a.size <= 128)
    launch_attention<E, 128, kInt8, kCapped>(a, launch);
  else
    launch_attention<E, 256, kInt8, kCapped>(a, launch);
}

template <class E, bool kInt8, class L>
void attend_to(const PagedAttentionArgs& a, L& launch) {
  if (launch.size(a.tokens) == 0) return;
  if constexpr (sizeof(typename E::Type) == 4) {
    const AttentionSizes z = attention_sizes(a, launch);
    launch.run(blocks_for(z.tokens * z.heads, 4), AttentionF32<kInt8>::kThreads, 0,
               AttentionF32<kInt8>{a.q, a.kv, {a.page_table, a.context_lens, a.cu_seqlens}, a.out, z});
  } else {
    if (a.softcap > 0)
      attend_by_size<E, kInt8, true>(a, launch);
    else
      attend_by_size<E, kInt8, false>(a, launch);
  }
}
template <class E, class L>
void run_attention(const PagedAttentionArgs& a, L& launch) {
  attend_to<E, false>(a, launch);
}
template <class E, class L>
void run_attention_i8(const PagedAttentionArgs& a, L& launch) {
  attend_to<E, true>(a, launch);
}

template <class L>
void fill_attention_of(KernelTable& table) {
  table.attention = REPRISE_CUDA_PER_TYPE(run_attention, L);
  table.attention_i8 = REPRISE_CUDA_PER_TYPE(run_attention_i8, L);
}

}  // namespace reprise::cuda
