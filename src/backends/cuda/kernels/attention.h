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
// Two kernels follow it. "Few": a sequence with up to kFewRows rows a key/value head, one warp for 16 rows and one
// group, whose state goes to the workspace for the merge; where that has too few slots, one warp takes all groups.
// "Many": four warps for 64 rows, all groups. Grids are the device's size and work is found from the lengths, so a
// captured launch serves every step.
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
  float top[2], sum[2];
  float o[kColumns / 8][4];

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
template <class E, int kDepth, int kWarps, bool kInt8, bool kCapped>
struct Attention {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  static constexpr bool kFew = kWarps == 1;
  static constexpr int kTileRows = kWarps * 16;
  static constexpr int kOut = kDepth < kValueColumns ? kDepth : kValueColumns;
  static constexpr int kPasses = (kDepth + kValueColumns - 1) / kValueColumns;
  static constexpr int kQueryPitch = kDepth + 8;
  using Keys = CacheTile<E, kDepth, kInt8>;
  using Values = CacheTile<E, kOut, kInt8>;
  using State = RowState<kOut>;
  static constexpr int kStateFloats = 16 * (kOut + 2);

  const uint16_t* q;
  const void* cache;
  Lengths lengths;
  uint16_t* out;
  float* states;  // kSlots of kStateFloats
  AttentionSizes z;

  // One warp alone keeps keys and then values in one place: more such blocks fit a multiprocessor, and while one waits
  // others compute.
  static constexpr bool kOnePlace = kFew;
  static constexpr int kPlaces =
      kOnePlace ? greater(Keys::kElements, Values::kElements) : Keys::kElements + Values::kElements;
  static constexpr size_t kTileBytes = (size_t{kTileRows} * kQueryPitch + kPlaces) * 2 + 2 * kTileKeys * sizeof(float);
  static size_t shared_bytes(int64_t sequences) {
    return kTileBytes + static_cast<size_t>(sequences + 1) * sizeof(int32_t);
  }

  template <class L>
  struct Block {
    uint16_t* queries;
    uint16_t* keys;
    uint16_t* values;
    float* key_scales;
    float* value_scales;
    int32_t* begins;
    explicit DEV Block(L& lane) {
      queries = reinterpret_cast<uint16_t*>(lane.shared());
      keys = queries + kTileRows * kQueryPitch;
      values = kOnePlace ? keys : keys + Keys::kElements;
      key_scales = reinterpret_cast<float*>(keys + kPlaces);
      value_scales = key_scales + kTileKeys;
      begins = reinterpret_cast<int32_t*>(value_scales + kTileKeys);
    }
  };

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

  // Scores become weights; the state's largest, sums and outputs move to the new largest. `sees` are the last key of
  // the lane's two rows, `first_key` the tile's.
  template <class L>
  DEV void weigh(L& lane, const Block<L>& b, float (&s)[kTileKeys / 8][4], State& state, const int (&sees)[2],
                 int first_key) const {
    const int me = lane.thread() % 32;
    const float factor = z.factor();
    UNROLL
    for (int half = 0; half < 2; ++half) {
      // Positions of this lane's keys, relative to the tile's first key.
      const int last = sees[half] - first_key, first = z.oldest(sees[half]) - first_key;
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
      for (int n = 0; n < kOut / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) state.o[n][half * 2 + i] = state.o[n][half * 2 + i] * shrink;
    }
  }

  template <class L>
  DEV void add_values(L& lane, const Block<L>& b, const float (&s)[kTileKeys / 8][4], State& state) const {
    const int me = lane.thread() % 32;
    const uint16_t* values = b.values + (me / 8 % 2 * 8 + me % 8) * Values::kPitch + me / 16 * 8;
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
      for (int n = 0; n < kOut / 8; n += 2) {
        uint32_t r[4];
        lane.template load_matrices<true>(r, values + k * Values::kPitch + n * 8);
        const uint32_t first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
        lane.mma(E{}, state.o[n], a, first);
        lane.mma(E{}, state.o[n + 1], a, second);
      }
    }
  }

  // Keys [first, last) of a sequence in tiles; whole blocks take part.
  template <class L>
  DEV void attend(L& lane, const Block<L>& b, const Piece& p, State& state, const int (&sees)[2], int first,
                  int last) const {
    const int32_t* pages = lengths.page_table + p.sequence * z.columns;
    auto keys_from = [&](int key) {
      Keys::load(lane, b.keys, b.key_scales, cache, z, pages[key / kPageRows], false, p.head, key % kPageRows,
                 smaller(kTileKeys, last - key), 0);
    };
    auto values_from = [&](int key) {
      Values::load(lane, b.values, b.value_scales, cache, z, pages[key / kPageRows], true, p.head, key % kPageRows,
                   smaller(kTileKeys, last - key), p.pass * kOut);
    };
    keys_from(first);
    if (!kOnePlace) values_from(first);
    for (int key = first; key < last; key += kTileKeys) {
      if constexpr (kOnePlace)
        lane.template wait_copies<0>();
      else
        lane.template wait_copies<1>();
      lane.sync();
      float s[kTileKeys / 8][4];
      scores(lane, b, s);
      if constexpr (kOnePlace) {
        lane.sync();  // the keys are read no more
        values_from(key);
        weigh(lane, b, s, state, sees, key);
        lane.template wait_copies<0>();
      } else {
        weigh(lane, b, s, state, sees, key);
        lane.sync();  // the keys are read no more
        if (key + kTileKeys < last)
          keys_from(key + kTileKeys);
        else
          lane.commit_copies();
        lane.template wait_copies<1>();
      }
      lane.sync();
      add_values(lane, b, s, state);
      lane.sync();
      if (key + kTileKeys >= last) break;
      if constexpr (kOnePlace)
        keys_from(key + kTileKeys);
      else
        values_from(key + kTileKeys);
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
      for (int n = 0; n < kOut / 8; ++n) UNROLL
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
      if (me % 4 == 0) to[row] = state.top[half], to[16 + row] = state.sum[half];
      UNROLL
      for (int n = 0; n < kOut / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) to[32 + row * kOut + n * 8 + me % 4 * 2 + i] = state.o[n][half * 2 + i];
    }
  }

  template <class L>
  DEV void finish(L& lane, State& state, const Piece& p, int first_row, int rows) const {
    const int me = lane.thread() % 32, ratio = static_cast<int>(z.ratio());
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = first_row + lane.thread() / 32 * 16 + me / 4 + half * 8;
      if (at >= rows) continue;
      uint16_t* to =
          out + ((lengths.cu_seqlens[p.sequence] + at / ratio) * z.heads + p.head * ratio + at % ratio) * z.size;
      if (z.sinks) {
        const float by = join_sink(state.top[half], state.sum[half], p.head * ratio + at % ratio, z);
        UNROLL
        for (int n = 0; n < kOut / 8; ++n) UNROLL
        for (int i = 0; i < 2; ++i) state.o[n][half * 2 + i] = state.o[n][half * 2 + i] * by;
      }
      UNROLL
      for (int n = 0; n < kOut / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) {
        const int d = p.pass * kOut + n * 8 + me % 4 * 2 + i;
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
      const int me = lane.thread() % 32;
      int sees[2];
      for (int half = 0; half < 2; ++half) {
        const int at = smaller(rows - 1, first_row + lane.thread() / 32 * 16 + me / 4 + half * 8);
        sees[half] = before + at / ratio;
      }
      // Keys that any row of the block sees.
      const int last = before + smaller(rows - 1, first_row + kTileRows - 1) / ratio + 1;
      const int oldest = z.oldest(before + first_row / ratio);
      load_queries(lane, b, p, first_row, rows);
      lane.sync();
      State all;
      all.clear();
      const int first_group = pieces.split ? p.group : oldest / kGroupKeys;
      const int last_group = pieces.split ? p.group + 1 : (last + kGroupKeys - 1) / kGroupKeys;
      for (int g = first_group; g < last_group; ++g) {
        State state;
        state.clear();
        const int first = greater(g * kGroupKeys, oldest / kTileKeys * kTileKeys);
        const int end = smaller((g + 1) * kGroupKeys, last);
        if (first < end) attend(lane, b, p, state, sees, first, end);
        if (pieces.split) {
          keep(lane, state, item, rows - first_row);
          break;
        }
        fold(all, state, z.factor());
      }
      if (!pieces.split) finish(lane, all, p, first_row, rows);
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

  static size_t shared_bytes(int64_t sequences) { return static_cast<size_t>(sequences + 1) * sizeof(int32_t); }

  template <class L>
  DEV void operator()(L& lane) const {
    Pieces<16, true> pieces{lengths, z, kPasses, true, reinterpret_cast<int32_t*>(lane.shared())};
    pieces.count(lane);
    lane.sync();
    if (pieces.total() > kSlots) return;
    const int warps = kThreads / 32, me = lane.thread() % 32, ratio = static_cast<int>(z.ratio());
    // One unit is 16 rows of the first group of a tile; four warps take its rows in turn.
    for (int item = lane.block(); item < pieces.total(); item += lane.blocks()) {
      const Piece p = pieces.at(item);
      if (p.group != 0) continue;
      const int rows = pieces.tokens_of(p.sequence) * ratio, groups = pieces.groups_of(p.sequence);
      for (int i = lane.thread() / 32; i < 16; i += warps) {
        const int at = p.tile * 16 + i;
        if (at >= rows) break;
        float top = -__builtin_huge_valf(), sum = 0, o[kEach];
        UNROLL
        for (int j = 0; j < kEach; ++j) o[j] = 0;
        for (int g = 0; g < groups; ++g) {
          const float* from = states + static_cast<int64_t>(item + g * kPasses) * kStateFloats;
          const Fold f(top, from[i], z.factor());
          top = f.top;
          sum = f.of(sum, from[16 + i]);
          UNROLL
          for (int j = 0; j < kEach; ++j)
            if (me + j * 32 < kOut) o[j] = f.of(o[j], from[32 + i * kOut + me + j * 32]);
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
  AttentionSizes z{.heads = a.heads,
                   .kv_heads = a.kv_heads,
                   .size = a.size,
                   .sequences = launch.size(a.sequences),
                   .columns = launch.size(a.columns),
                   .window = a.window,
                   .chunk = a.chunk,
                   .tokens = launch.size(a.tokens),
                   .scale = static_cast<float>(a.scale)};
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
  using Few = Attention<E, kDepth, 1, kInt8, kCapped>;
  using Many = Attention<E, kDepth, 4, kInt8, kCapped>;
  using Merge = AttentionMerge<E, kDepth>;
  launch.run(launch.limits.multiprocessors * 9, Few::kThreads, Few::shared_bytes(z.sequences),
             Few{q, a.kv, lengths, out, states, z});
  launch.run(launch.limits.multiprocessors * 4, Merge::kThreads, Merge::shared_bytes(z.sequences),
             Merge{lengths, out, states, z});
  // Where every sequence has one token at most, none has many rows.
  if (z.tokens == z.sequences && z.ratio() <= kFewRows) return;
  launch.run(launch.limits.multiprocessors * 2, Many::kThreads, Many::shared_bytes(z.sequences),
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
