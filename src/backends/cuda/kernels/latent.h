// Multi-head latent attention in its absorbed form, and its projections of one matrix per head.
//
// A head's product is `linear` of its rows: the same chain, so the same bits.
//
// Attention of bf16 and f16 follows the rule of attention.h with one key/value head, all query heads being its rows: a
// score is one chain over the latent and then the rotated key, each padded with zeros to blocks of 16, and the values
// are the latents. A block has 16 rows, or 32 where its shared memory has room for them, and for each 16 four warps:
// each of the four scores a quarter of the keys of a tile, and keeps 128 columns of the output. Weights and sums are
// computed by all four alike.
// With f32, a warp takes one row, as in attention.h.
#pragma once

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/latent_sizes.h"

namespace reprise::cuda {

// Token i of a head's product is token list[i], or i itself where there is no list.
struct HeadRows {
  const int32_t* list;
  int64_t tokens, heads, head;
  DEV int64_t at(int64_t i) const {
    const int64_t t = list ? list[i] : i;
    return t >= 0 && t < tokens ? t * heads + head : -1;
  }
  // How many of the first `n` entries come before the first negative one; whole blocks take part.
  template <class L>
  DEV int64_t listed(L& lane, int64_t n) const {
    if (!list) return n;
    auto end = static_cast<int32_t>(n);
    for (int64_t i = lane.thread(); i < n; i += lane.threads())
      if (list[i] < 0) end = smaller(end, static_cast<int32_t>(i));
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) end = smaller(end, lane.shuffle_xor(end, mask));
    auto* of_warps = reinterpret_cast<int32_t*>(lane.shared());
    if (lane.thread() % 32 == 0) of_warps[lane.thread() / 32] = end;
    lane.sync();
    for (int w = 0; w < lane.threads() / 32; ++w) end = smaller(end, of_warps[w]);
    lane.sync();
    return end;
  }
};

// The grid's columns are tiles of columns, head by head.
template <class E, int kTokens, int kWarps, int kStages>
struct HeadProduct {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  using Tile = ProductTile<E, kTokens, kWarps, kStages, 128, HeadRows>;
  Tile tile;  // of the first head
  typename E::Type* out;
  int64_t column_tiles;

  template <class L>
  DEV void operator()(L& lane) const {
    Tile mine = tile;
    mine.rows.head = lane.block() / column_tiles;
    const int64_t first_column = lane.block() % column_tiles * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * kTokens;
    mine.tokens = mine.rows.listed(lane, smaller(tile.tokens, first_token + kTokens));
    if (first_token >= mine.tokens) return;
    mine.weight += mine.rows.head * tile.columns * tile.row_bytes();
    float d[kTokens / 16][4];
    mine.sums(lane, first_column, first_token, d);
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int64_t column = first_column + warp * 8 + me % 4 * 2;
    UNROLL
    for (int m = 0; m < kTokens / 16; ++m) UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t t = first_token + m * 16 + me / 4 + half * 8;
      const int64_t row = t < mine.tokens ? mine.rows.at(t) : -1;
      if (row < 0) continue;
      UNROLL
      for (int i = 0; i < 2; ++i)
        if (column + i < tile.columns) out[row * tile.columns + column + i] = E::store(d[m][half * 2 + i]);
    }
  }
};

struct HeadProductF32 {
  using Tile = ChainTile<NumbersOf<F32, HeadRows>, NumbersOf<F32>>;
  static constexpr int kThreads = Tile::kThreads, kBlocks = 1;
  Tile tile;
  float* out;
  int64_t column_tiles;

  template <class L>
  DEV void operator()(L& lane) const {
    Tile mine = tile;
    HeadRows& rows = mine.x.rows;
    rows.head = lane.block() / column_tiles;
    const int64_t first_column = lane.block() % column_tiles * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * Tile::kTokens;
    mine.tokens = rows.listed(lane, smaller(tile.tokens, first_token + Tile::kTokens));
    if (first_token >= mine.tokens) return;
    mine.weight.p += rows.head * tile.columns * tile.depth;
    float sum[2];
    mine.sums(lane, first_column, first_token, sum);
    mine.each(lane.thread(), first_column, first_token, sum, [&](int64_t t, int64_t c, float v) {
      if (const int64_t row = rows.at(t); row >= 0) out[row * tile.columns + c] = v;
    });
  }
};

struct ZeroBytes {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  char* out;
  int64_t bytes;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = (static_cast<int64_t>(lane.block()) * kThreads + lane.thread()) * 16;
    if (i + 16 <= bytes)
      *reinterpret_cast<Sixteen*>(out + i) = Sixteen{};
    else
      for (int64_t j = i; j < bytes; ++j) out[j] = 0;
  }
};

struct LatentSizes {
  AttentionSizes z;  // one key/value head; its size is the latent's
  int64_t rope;
  int64_t state_columns;  // latent_state_columns()

  HOST_DEV int64_t state_floats() const { return 16 * (state_columns + 2); }
  HOST_DEV static int64_t blocks(int64_t n) { return (n + 15) / 16 * 16; }
  HOST_DEV int64_t depth() const { return blocks(z.size) + blocks(rope); }
  // Pitch of a row of queries or keys in shared memory: eight rows lie in different banks.
  HOST_DEV int64_t pitch() const { return depth() + 8; }
};

// Sequences of so few rows have their groups of keys in blocks of their own, as far as the workspace goes.
constexpr int kFewLatentRows = 512;
using FewLatents = Pieces<16, true, kFewLatentRows>;

// kFew: a block takes one group of keys and keeps its state for LatentMerge.
template <class E, int kRowWarps, bool kFew>
struct LatentAttention {
  static constexpr int kColumnWarps = static_cast<int>(kLargestLatent) / kLatentWarpColumns;
  static constexpr int kThreads = kRowWarps * kColumnWarps * 32, kBlocks = 1;
  static constexpr int kTileRows = kRowWarps * 16;
  static constexpr int kOut = kLatentWarpColumns;
  static constexpr int kScorePitch = kTileKeys + 8;
  static constexpr int kScoredKeys = kTileKeys / kColumnWarps;
  static_assert(kScoredKeys == 16);
  using State = RowState<kOut>;

  const uint16_t* q;
  const uint16_t* q_rope;
  const uint16_t* c_kv;
  const uint16_t* k_pe;
  Lengths lengths;
  uint16_t* out;
  float* states;  // kLatentSlots
  LatentSizes sizes;

  static size_t shared_bytes(const LatentSizes& s) {
    return static_cast<size_t>(kTileKeys + kTileRows) * static_cast<size_t>(s.pitch()) * 2 +
           (kTileRows * kScorePitch + static_cast<size_t>(s.z.sequences) + 1) * sizeof(float);
  }

  struct Block {
    uint16_t* keys;
    uint16_t* queries;
    float* scores;
    int32_t* begins;
    int pitch;
    template <class L>
    DEV Block(L& lane, const LatentSizes& s) {
      pitch = static_cast<int>(s.pitch());
      keys = reinterpret_cast<uint16_t*>(lane.shared());
      queries = keys + kTileKeys * pitch;
      scores = reinterpret_cast<float*>(queries + kTileRows * pitch);
      begins = reinterpret_cast<int32_t*>(scores + kTileRows * kScorePitch);
    }
  };

  // Rows [first, first + rows) of latents and of rotated keys side by side, zeros behind each and behind the last row.
  template <class L>
  DEV void load(L& lane, uint16_t* to, int pitch, int room, const uint16_t* latent, const uint16_t* rope, int64_t first,
                int rows) const {
    const int left_width = static_cast<int>(sizes.z.size), right_width = static_cast<int>(sizes.rope);
    const int left_columns = static_cast<int>(LatentSizes::blocks(left_width));
    const int chunks = static_cast<int>(sizes.depth()) / 8;
    const bool whole = (left_width | right_width) % 8 == 0;
    KEEP_LOOP
    for (int i = lane.thread(); i < room * chunks; i += kThreads) {
      const int row = i / chunks, column = i % chunks * 8;
      const bool right = column >= left_columns;
      const int width = right ? right_width : left_width, at = right ? column - left_columns : column;
      const uint16_t* base = right ? rope : latent;
      const int left = row < rows ? greater(0, smaller(8, width - at)) : 0;
      const uint16_t* from = left > 0 ? base + (first + row) * width + at : base;
      uint16_t* put = to + row * pitch + column;
      if (whole) {
        lane.copy_async(put, from, left * 2);
      } else {
        UNROLL
        for (int j = 0; j < 8; ++j) put[j] = j < left ? from[j] : uint16_t{0};
      }
    }
    lane.commit_copies();
  }

  // A quarter of the tile's keys: scores, -inf where a row does not see the key.
  template <class L>
  DEV void score(L& lane, const Block& b, const int (&sees)[2], int first_key) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int row_warp = warp / kColumnWarps, quarter = warp % kColumnWarps;
    float s[2][4];
    UNROLL
    for (int n = 0; n < 2; ++n) UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
    const uint16_t* rows = b.queries + (row_warp * 16 + me / 8 % 2 * 8 + me % 8) * b.pitch + me / 16 * 8;
    const uint16_t* keys = b.keys + (quarter * kScoredKeys + me / 16 * 8 + me % 8) * b.pitch + me / 8 % 2 * 8;
    const int depth = static_cast<int>(sizes.depth());
    for (int k = 0; k < depth; k += 16) {
      uint32_t a[4], r[4];
      lane.template load_matrices<false>(a, rows + k);
      lane.template load_matrices<false>(r, keys + k);
      const uint32_t first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
      lane.mma(E{}, s[0], a, first);
      lane.mma(E{}, s[1], a, second);
    }
    UNROLL
    for (int n = 0; n < 2; ++n) UNROLL
    for (int i = 0; i < 4; ++i) {
      const int place = quarter * kScoredKeys + n * 8 + me % 4 * 2 + i % 2;
      const bool seen = first_key + place <= sees[i / 2];
      b.scores[(row_warp * 16 + me / 4 + i / 2 * 8) * kScorePitch + place] = seen ? s[n][i] : -__builtin_huge_valf();
    }
  }

  // As Attention::weigh of attention.h, from the scores in shared memory; weights come out as operands of a product, of
  // every eight keys a pair of each of the lane's rows.
  template <class L>
  DEV void weigh(L& lane, const Block& b, uint32_t (&weights)[kTileKeys / 8][2], State& state) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const float factor = sizes.z.factor();
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const float* row = b.scores + (warp / kColumnWarps * 16 + me / 4 + half * 8) * kScorePitch + me % 4 * 2;
      float top = state.top[half];
      UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) top = row[n * 8 + i] > top ? row[n * 8 + i] : top;
      UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) {
        const float other = lane.shuffle_xor(top, mask);
        top = other > top ? other : top;
      }
      const float base = base_of(top), from = -(base * factor);
      const float shrink = exp2_of((state.top[half] - base) * factor);
      float sum = 0;
      UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) {
        const float first = exp2_of(fma(row[n * 8], factor, from));
        const float second = exp2_of(fma(row[n * 8 + 1], factor, from));
        sum = sum + first;
        sum = sum + second;
        weights[n][half] = pack_two<E>(first, second);
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

  // The warp's columns of the values, which are the latents of the tile; columns behind the last have undefined
  // contents and are not kept.
  template <class L>
  DEV void add_values(L& lane, const Block& b, const uint32_t (&weights)[kTileKeys / 8][2], State& state) const {
    const int me = lane.thread() % 32, first = lane.thread() / 32 % kColumnWarps * kOut;
    if (first >= sizes.z.size) return;
    const uint16_t* values = b.keys + (me / 8 % 2 * 8 + me % 8) * b.pitch + first + me / 16 * 8;
    UNROLL
    for (int k = 0; k < kTileKeys; k += 16) {
      const uint32_t a[4] = {weights[k / 8][0], weights[k / 8][1], weights[k / 8 + 1][0], weights[k / 8 + 1][1]};
      UNROLL
      for (int n = 0; n < kOut / 8; n += 2) {
        uint32_t r[4];
        lane.template load_matrices<true>(r, values + k * b.pitch + n * 8);
        const uint32_t one[2] = {r[0], r[1]}, two[2] = {r[2], r[3]};
        lane.mma(E{}, state.o[n], a, one);
        lane.mma(E{}, state.o[n + 1], a, two);
      }
    }
  }

  // Keys [first, last) of a sequence in tiles; whole blocks take part.
  template <class L>
  DEV void attend(L& lane, const Block& b, int sequence, State& state, const int (&sees)[2], int first,
                  int last) const {
    const int32_t* pages = lengths.page_table + sequence * sizes.z.columns;
    KEEP_LOOP
    for (int key = first; key < last; key += kTileKeys) {
      load(lane, b.keys, b.pitch, kTileKeys, c_kv, k_pe, int64_t{pages[key / kPageRows]} * kPageRows + key % kPageRows,
           smaller(kTileKeys, last - key));
      lane.template wait_copies<0>();
      lane.sync();
      score(lane, b, sees, key);
      lane.sync();
      uint32_t weights[kTileKeys / 8][2];
      weigh(lane, b, weights, state);
      add_values(lane, b, weights, state);
      lane.sync();  // keys and scores are read no more
    }
  }

  DEV void fold(State& all, const State& group) const {
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const Fold f(all.top[half], group.top[half], sizes.z.factor());
      all.top[half] = f.top;
      all.sum[half] = f.of(all.sum[half], group.sum[half]);
      UNROLL
      for (int n = 0; n < kOut / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) all.o[n][half * 2 + i] = f.of(all.o[n][half * 2 + i], group.o[n][half * 2 + i]);
    }
  }

  template <class L>
  DEV void keep(L& lane, const State& state, int64_t slot) const {
    const int me = lane.thread() % 32, first = lane.thread() / 32 % kColumnWarps * kOut;
    if (first >= sizes.z.size) return;
    const int64_t columns = sizes.state_columns;
    float* to = states + slot * sizes.state_floats();
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = me / 4 + half * 8;
      if (first == 0 && me % 4 == 0) to[row] = state.top[half], to[16 + row] = state.sum[half];
      UNROLL
      for (int n = 0; n < kOut / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) to[32 + row * columns + first + n * 8 + me % 4 * 2 + i] = state.o[n][half * 2 + i];
    }
  }

  template <class L>
  DEV void finish(L& lane, const State& state, int64_t start, int first_row, int rows) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32, first = warp % kColumnWarps * kOut;
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = first_row + warp / kColumnWarps * 16 + me / 4 + half * 8;
      if (at >= rows) continue;
      uint16_t* to = out + (start * sizes.z.heads + at) * sizes.z.size;
      UNROLL
      for (int n = 0; n < kOut / 8; ++n) UNROLL
      for (int i = 0; i < 2; ++i) {
        const int d = first + n * 8 + me % 4 * 2 + i;
        if (d < sizes.z.size) to[d] = E::store(divide(state.o[n][half * 2 + i], state.sum[half]));
      }
    }
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const Block b(lane, sizes);
    const AttentionSizes& z = sizes.z;
    FewLatents few{lengths, z, 1, true, b.begins};
    few.count(lane);
    lane.sync();
    const bool fits = few.total() <= kLatentSlots;
    lane.sync();
    if (kFew && !fits) return;
    // Without enough slots the other kernel takes all sequences.
    Pieces<kTileRows, kFew, kFewLatentRows> pieces{lengths, z, 1, kFew, b.begins, !fits};
    pieces.count(lane);
    lane.sync();
    const int total = pieces.total(), heads = static_cast<int>(z.heads);
    KEEP_LOOP
    for (int item = lane.block(); item < total; item += lane.blocks()) {
      const Piece p = pieces.at(item);
      const int tokens = pieces.tokens_of(p.sequence), rows = tokens * heads, first_row = p.tile * kTileRows;
      const int before = lengths.context_lens[p.sequence] - tokens;
      const int64_t start = lengths.cu_seqlens[p.sequence];
      int sees[2];
      UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = lane.thread() / 32 / kColumnWarps * 16 + lane.thread() % 32 / 4 + half * 8;
        sees[half] = before + smaller(rows - 1, first_row + row) / heads;
      }
      // Keys that any row of the block sees.
      const int last = before + smaller(rows - 1, first_row + kTileRows - 1) / heads + 1;
      // The first wait for keys waits for the queries too.
      load(lane, b.queries, b.pitch, kTileRows, q, q_rope, start * heads + first_row,
           smaller(kTileRows, rows - first_row));
      State state;
      if constexpr (kFew) {
        state.clear();
        attend(lane, b, p.sequence, state, sees, p.group * kGroupKeys, smaller((p.group + 1) * kGroupKeys, last));
        keep(lane, state, item);
      } else {
        State all;
        all.clear();
        KEEP_LOOP
        for (int first = 0; first < last; first += kGroupKeys) {
          state.clear();
          attend(lane, b, p.sequence, state, sees, first, smaller(first + kGroupKeys, last));
          fold(all, state);
        }
        finish(lane, all, start, first_row, rows);
      }
      lane.template wait_copies<0>();
      lane.sync();
    }
  }
};

// The second half of "few": folds the groups of every row. A warp takes a row.
template <class E>
struct LatentMerge {
  static constexpr int kThreads = 128, kBlocks = 1;
  static constexpr int kEach = static_cast<int>(kLargestLatent) / 32;

  Lengths lengths;
  uint16_t* out;
  const float* states;
  LatentSizes sizes;

  static size_t shared_bytes(int64_t sequences) { return static_cast<size_t>(sequences + 1) * sizeof(int32_t); }

  template <class L>
  DEV void operator()(L& lane) const {
    const AttentionSizes& z = sizes.z;
    FewLatents pieces{lengths, z, 1, true, reinterpret_cast<int32_t*>(lane.shared())};
    pieces.count(lane);
    lane.sync();
    if (pieces.total() > kLatentSlots) return;
    const int warps = kThreads / 32, me = lane.thread() % 32, size = static_cast<int>(z.size);
    const int64_t columns = sizes.state_columns, floats = sizes.state_floats();
    // One unit is 16 rows of the first group of a tile; four warps take its rows in turn.
    for (int item = lane.block(); item < pieces.total(); item += lane.blocks()) {
      const Piece p = pieces.at(item);
      if (p.group != 0) continue;
      const int rows = pieces.tokens_of(p.sequence) * static_cast<int>(z.heads), groups = pieces.groups_of(p.sequence);
      for (int i = lane.thread() / 32; i < 16; i += warps) {
        const int at = p.tile * 16 + i;
        if (at >= rows) break;
        float top = -__builtin_huge_valf(), sum = 0, o[kEach];
        UNROLL
        for (int j = 0; j < kEach; ++j) o[j] = 0;
        for (int g = 0; g < groups; ++g) {
          const float* from = states + static_cast<int64_t>(item + g) * floats;
          const Fold f(top, from[i], sizes.z.factor());
          top = f.top;
          sum = f.of(sum, from[16 + i]);
          UNROLL
          for (int j = 0; j < kEach; ++j)
            if (me + j * 32 < size) o[j] = f.of(o[j], from[32 + i * columns + me + j * 32]);
        }
        uint16_t* to = out + (lengths.cu_seqlens[p.sequence] * z.heads + at) * z.size;
        UNROLL
        for (int j = 0; j < kEach; ++j)
          if (me + j * 32 < size) to[me + j * 32] = E::store(divide(o[j], sum));
      }
    }
  }
};

// f32: a warp a row; four warps a block.
struct LatentAttentionF32 {
  static constexpr int kThreads = 128, kBlocks = 1;
  static constexpr int kEach = static_cast<int>(kLargestLatent) / 32;
  const float* q;
  const float* q_rope;
  const float* c_kv;
  const float* k_pe;
  Lengths lengths;
  float* out;
  LatentSizes sizes;

  template <class L>
  DEV void operator()(L& lane) const {
    const AttentionSizes& z = sizes.z;
    const int64_t u = static_cast<int64_t>(lane.block()) * (kThreads / 32) + lane.thread() / 32, t = u / z.heads;
    const int me = lane.thread() % 32;
    if (t >= z.tokens || t >= lengths.cu_seqlens[z.sequences]) return;
    int low = 0, high = static_cast<int>(z.sequences);
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (lengths.cu_seqlens[middle] <= t)
        low = middle;
      else
        high = middle;
    }
    const int64_t sees = lengths.context_lens[low] - (lengths.cu_seqlens[low + 1] - t);
    float top = -__builtin_huge_valf(), sum = 0, o[kEach];
    UNROLL
    for (int j = 0; j < kEach; ++j) o[j] = 0;
    for (int64_t first = 0; first <= sees; first += 32) {
      const int64_t row =
          int64_t{lengths.page_table[low * z.columns + first / kPageRows]} * kPageRows + first % kPageRows;
      float s = -__builtin_huge_valf();
      if (first + me <= sees) {
        s = 0;
        for (int64_t d = 0; d < z.size; ++d) s = fma(q[u * z.size + d], c_kv[(row + me) * z.size + d], s);
        for (int64_t d = 0; d < sizes.rope; ++d)
          s = fma(q_rope[u * sizes.rope + d], k_pe[(row + me) * sizes.rope + d], s);
        s = s * z.scale;
      }
      const float tile_top = warp_max(lane, s), now = tile_top > top ? tile_top : top;
      const float base = base_of(now), shrink = exp_bounded(top - base), w = exp_bounded(s - base);
      top = now;
      sum = fma(sum, shrink, warp_sum(lane, w));
      const int count = static_cast<int>(smaller<int64_t>(32, sees + 1 - first));
      UNROLL
      for (int j = 0; j < kEach; ++j) o[j] = o[j] * shrink;
      for (int i = 0; i < count; ++i) {
        const float weight = lane.shuffle(w, i);
        UNROLL
        for (int j = 0; j < kEach; ++j)
          if (me + j * 32 < z.size) o[j] = fma(weight, c_kv[(row + i) * z.size + me + j * 32], o[j]);
      }
    }
    UNROLL
    for (int j = 0; j < kEach; ++j)
      if (me + j * 32 < z.size) out[u * z.size + me + j * 32] = divide(o[j], sum);
  }
};

template <class E, int kTokens, int kWarps, int kStages, class L>
void launch_heads(const ProductSizes& z, const HeadRows& rows, const void* x, const void* weight, void* out,
                  L& launch) {
  using K = HeadProduct<E, kTokens, kWarps, kStages>;
  const int64_t tiles = blocks_for(z.columns, K::Tile::kColumns);
  K k{{static_cast<const uint8_t*>(x), static_cast<const uint8_t*>(weight), z.tokens, z.depth, z.columns, rows},
      static_cast<typename E::Type*>(out),
      tiles};
  launch.run(tiles * rows.heads, K::kThreads, K::Tile::kSharedBytes, k, blocks_for(z.tokens, kTokens));
}

template <class E, class L>
void product_of_heads(const ProductSizes& z, const HeadRows& rows, const void* x, const void* weight, void* out,
                      L& launch) {
  if (rows.list) {
    const int64_t bytes = z.tokens * rows.heads * z.columns * static_cast<int64_t>(sizeof(typename E::Type));
    launch.run(blocks_for(bytes, kElementThreads * 16), kElementThreads, 0, ZeroBytes{static_cast<char*>(out), bytes});
  }
  if constexpr (sizeof(typename E::Type) == 4) {
    using Tile = HeadProductF32::Tile;
    const int64_t tiles = blocks_for(z.columns, Tile::kColumns);
    launch.run(tiles * rows.heads, HeadProductF32::kThreads, Tile::kSharedBytes,
               HeadProductF32{{{static_cast<const float*>(x), z.depth, rows},
                               {static_cast<const float*>(weight), z.depth},
                               z.tokens,
                               z.depth,
                               z.columns},
                              static_cast<float*>(out),
                              tiles},
               blocks_for(z.tokens, Tile::kTokens));
  } else if (z.tokens <= 16) {
    launch_heads<E, 16, 4, 8>(z, rows, x, weight, out, launch);
  } else {
    launch_heads<E, 64, 8, 5>(z, rows, x, weight, out, launch);
  }
}

template <class E, class L>
void run_per_head_matmul(const PerHeadMatmulArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  product_of_heads<E>(z, {nullptr, z.tokens, a.heads, 0}, a.x, a.weight, a.out, launch);
}
template <class E, class L>
void run_per_head_matmul_rows(const PerHeadMatmulRowsArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  product_of_heads<E>(z, {a.list, z.tokens, a.heads, 0}, a.x, a.weight, a.out, launch);
}

// Workspace (not of f32): kLatentSlots states.
template <class E, class L>
void run_latent_attention(const LatentAttentionArgs& a, L& launch) {
  using T = typename E::Type;
  const AttentionSizes z{.heads = a.heads,
                         .kv_heads = 1,
                         .size = a.latent,
                         .sequences = launch.size(a.sequences),
                         .columns = launch.size(a.columns),
                         .window = 0,
                         .chunk = 0,
                         .tokens = launch.size(a.tokens),
                         .scale = static_cast<float>(a.scale)};
  const LatentSizes s{z, a.rope, latent_state_columns(a.latent)};
  const Lengths lengths{a.page_table, a.context_lens, a.cu_seqlens};
  const T *q = a.q, *q_rope = a.q_rope, *c_kv = a.c_kv, *k_pe = a.k_pe;
  T* out = a.out;
  if (s.z.tokens == 0) return;
  if constexpr (sizeof(T) == 4) {
    launch.run(blocks_for(s.z.tokens * s.z.heads, 4), LatentAttentionF32::kThreads, 0,
               LatentAttentionF32{q, q_rope, c_kv, k_pe, lengths, out, s});
  } else {
    auto* states = static_cast<float*>(launch.workspace);
    using Few = LatentAttention<E, 1, true>;
    using Many = LatentAttention<E, 2, false>;
    using HalfAsMany = LatentAttention<E, 1, false>;
    launch.run(launch.limits.multiprocessors * 2, Few::kThreads, Few::shared_bytes(s),
               Few{q, q_rope, c_kv, k_pe, lengths, out, states, s});
    launch.run(launch.limits.multiprocessors * 4, LatentMerge<E>::kThreads, LatentMerge<E>::shared_bytes(s.z.sequences),
               LatentMerge<E>{lengths, out, states, s});
    // Where every sequence has one token at most, none has many rows.
    const int64_t most_groups = blocks_for(s.z.columns * kPageRows, kGroupKeys);
    if (s.z.tokens == s.z.sequences && s.z.heads <= kFewLatentRows &&
        s.z.sequences * blocks_for(s.z.heads, 16) * most_groups <= kLatentSlots)
      return;
    if (Many::shared_bytes(s) <= launch.limits.shared)
      launch.run(launch.limits.multiprocessors, Many::kThreads, Many::shared_bytes(s),
                 Many{q, q_rope, c_kv, k_pe, lengths, out, states, s});
    else
      launch.run(launch.limits.multiprocessors, HalfAsMany::kThreads, HalfAsMany::shared_bytes(s),
                 HalfAsMany{q, q_rope, c_kv, k_pe, lengths, out, states, s});
  }
}

template <class L>
void fill_latent_of(KernelTable& table) {
  table.per_head_matmul = REPRISE_CUDA_PER_TYPE(run_per_head_matmul, L);
  table.per_head_matmul_rows = REPRISE_CUDA_PER_TYPE(run_per_head_matmul_rows, L);
  table.latent_attention = REPRISE_CUDA_PER_TYPE(run_latent_attention, L);
}

}  // namespace reprise::cuda
