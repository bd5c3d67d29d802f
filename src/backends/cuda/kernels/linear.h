// Matrix products y[T, N] = x[T, K] weight[N, K]^T and what is fused with them.
//
// For bf16 and f16 one chain of tensor-core blocks of 16 over ascending K makes each sum, in one fp32 accumulator, from
// zero: the device's order of sums. Tokens are the rows of a block's operand, weights its columns. Neither the number
// of tokens, nor the tile, nor a row's place in it changes a bit (tools/cuda/probes.cu measured that, and that the
// vendor's library does the same without a split of K; it takes the products of many tokens). Of f32 each sum is a
// chain of fma over ascending K.
//
// The kernel of few tokens is made for reading the weights once, at the speed of the memory: a block takes 8 rows of
// weights a warp and all tokens, and keeps a ring of stages of 64 columns in flight.
#pragma once

#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/product.h"
#include "backends/cuda/kernels/product_sizes.h"
#include "ops/args/products.h"

namespace reprise::cuda {

template <class E>
constexpr Number number_of() {
  return sizeof(typename E::Type) == 4 ? Number::F32 : std::is_same_v<E, BF16> ? Number::BF16 : Number::F16;
}

// The largest of some columns. NaN counts as -inf, and among nothing else no column is largest: the index is past
// every column.
struct Largest {
  float value;
  int32_t index;
};
constexpr int32_t kNoColumn = 0x7fffffff;
DEV Largest none_yet() { return {-__builtin_huge_valf(), kNoColumn}; }
DEV void take_larger(Largest& a, float value, int32_t index) {
  if (value > a.value || (value == a.value && index < a.index && value > -__builtin_huge_valf())) a = {value, index};
}

// What the blocks of a product are summed in.
template <class E>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<I8> {
  using Type = int32_t;
};

// Which rows of the weight are a tile's columns, as if these lay one after another. A column that does not exist is one
// of the last again, as its sums are not kept.
struct ColumnsInOrder {
  static DEV int64_t at(int64_t column, int64_t columns) { return smaller(column, columns - 1); }
};

// Where the tokens of a product lie: at(i) is the row of x that is token i, or negative where there is none.
struct RowsInOrder {
  DEV int64_t at(int64_t i) const { return i; }
};

// Sums of a block: kWarps * 8 rows of weights by kTokens tokens. Operands are taken as bytes: a tensor-core block is 32
// of them, 16 numbers of bf16 or f16, 32 of int8.
template <class E, int kTokens, int kWarps, int kStages, int kStageBytes = 128, class Rows = RowsInOrder,
          class Columns = ColumnsInOrder>
struct ProductTile {
  static constexpr int kPitch = kStageBytes + 16;  // of a row in shared memory: eight rows then lie in different banks
  using Sum = typename SumOf<E>::Type;
  static constexpr int kColumns = kWarps * 8;
  static constexpr int kRows = kColumns + kTokens;
  static constexpr size_t kSharedBytes = size_t{kStages} * kRows * kPitch;
  static constexpr int kOf = kTokens / 16;
  // Sums of int8 are exact in any order: several chains side by side wait for one another less.
  static constexpr int kChains = std::is_same_v<E, I8> ? (kTokens <= 16 ? 4 : 2) : 1;

  const uint8_t* x;
  const uint8_t* weight;
  int64_t tokens, depth, columns;  // of the whole product
  Rows rows{};

  DEV int64_t row_bytes() const { return depth * static_cast<int64_t>(sizeof(typename E::Type)); }

  // One thread's part of every stage: 16 bytes at one place of some rows, first of weights, then of tokens. A token
  // that does not exist is zeros.
  static constexpr int kChunks = kStageBytes / 16;
  static constexpr int kRowsAtOnce = kWarps * 32 / kChunks;
  static constexpr int kWeightParts = kColumns / kRowsAtOnce;
  static constexpr int kTokenParts = (kTokens + kRowsAtOnce - 1) / kRowsAtOnce;
  static_assert(kWarps * 32 % kChunks == 0 && kColumns % kRowsAtOnce == 0);
  struct Feed {
    const uint8_t* weights;         // of the next stage, of the first part
    const uint8_t* tokens;          // x, as far along the rows
    int weight_step[kWeightParts];  // from there to the other parts
    int64_t token_at[kTokenParts];  // from x; negative: there is no such token
    int64_t left;                   // bytes from there to the rows' end
    int at;                         // of the first part in a stage
  };

  template <class L>
  DEV Feed begin(L& lane, int64_t first_column, int64_t first_token) const {
    const int64_t bytes = row_bytes();
    const int row = lane.thread() / kChunks, chunk = lane.thread() % kChunks * 16;
    Feed f;
    auto column = [&](int p) { return Columns::at(first_column + row + p * kRowsAtOnce, columns); };
    f.weights = weight + column(0) * bytes + chunk;
    UNROLL
    for (int p = 0; p < kWeightParts; ++p) f.weight_step[p] = static_cast<int>((column(p) - column(0)) * bytes);
    f.tokens = x + chunk;
    UNROLL
    for (int p = 0; p < kTokenParts; ++p) {
      const int64_t t = first_token + row + p * kRowsAtOnce;
      const int64_t source = row + p * kRowsAtOnce < kTokens && t < tokens ? rows.at(t) : -1;
      f.token_at[p] = source < 0 ? -1 : source * bytes;
    }
    f.left = bytes - chunk;
    f.at = row * kPitch + chunk;
    return f;
  }

  template <bool kAligned, class L>
  DEV void copy(L& lane, uint8_t* to, const uint8_t* from, int bytes) const {
    if constexpr (kAligned) {
      lane.copy_async(to, bytes > 0 ? from : weight, bytes);
    } else {
      for (int j = 0; j < 16; ++j) to[j] = j < bytes ? from[j] : uint8_t{0};
    }
  }

  template <bool kAligned, class L>
  DEV void load(L& lane, Feed& f, uint8_t* stage) const {
    const int left = static_cast<int>(greater<int64_t>(0, smaller<int64_t>(16, f.left)));
    uint8_t* to = stage + f.at;
    UNROLL
    for (int p = 0; p < kWeightParts; ++p)
      copy<kAligned>(lane, to + p * kRowsAtOnce * kPitch, f.weights + f.weight_step[p], left);
    UNROLL
    for (int p = 0; p < kTokenParts; ++p)
      if ((p + 1) * kRowsAtOnce <= kTokens || lane.thread() / kChunks + p * kRowsAtOnce < kTokens)
        copy<kAligned>(lane, to + (kColumns + p * kRowsAtOnce) * kPitch, f.tokens + f.token_at[p],
                       f.token_at[p] < 0 ? 0 : left);
    f.weights += kStageBytes;
    f.tokens += kStageBytes;
    f.left -= kStageBytes;
    lane.commit_copies();
  }

  // A stage's operands of one warp.
  static constexpr int kSteps = kStageBytes / 32;
  struct Operands {
    uint32_t weights[kSteps / 2][4];
    uint32_t tokens[kSteps][kOf][4];
  };
  template <class L>
  DEV void take(L& lane, Operands& o, const uint8_t* w, const uint8_t* t) const {
    UNROLL
    for (int k = 0; k < kSteps / 2; ++k) lane.template load_matrices<false>(o.weights[k], w + k * 64);
    UNROLL
    for (int k = 0; k < kSteps; ++k) UNROLL
    for (int m = 0; m < kOf; ++m) lane.template load_matrices<false>(o.tokens[k][m], t + m * 16 * kPitch + k * 32);
  }
  template <class L>
  DEV void multiply(L& lane, const Operands& o, Sum (&d)[kChains][kOf][4]) const {
    UNROLL
    for (int k = 0; k < kSteps; ++k) {
      const uint32_t pair[2] = {o.weights[k / 2][k % 2 * 2], o.weights[k / 2][k % 2 * 2 + 1]};
      UNROLL
      for (int m = 0; m < kOf; ++m) lane.mma(E{}, d[k % kChains][m], o.tokens[k][m], pair);
    }
  }

  template <bool kAligned, class L>
  DEV void sums_of(L& lane, int64_t first_column, int64_t first_token, Sum (&d)[kChains][kOf][4]) const {
    auto* ring = reinterpret_cast<uint8_t*>(lane.shared());
    constexpr int kStage = kRows * kPitch;
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int stages = static_cast<int>((row_bytes() + kStageBytes - 1) / kStageBytes);
    Feed feed = begin(lane, first_column, first_token);
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < stages)
        load<kAligned>(lane, feed, ring + s * kStage);
      else
        lane.commit_copies();
    }
    // The operands of a stage are taken into registers while the products of the one before run: a chain of products
    // waits for itself only. Two stages at a time, so that registers need not be moved.
    const uint8_t* weights_at = ring + (warp * 8 + me % 8) * kPitch + me / 8 * 16;
    const uint8_t* tokens_at = ring + (kColumns + me / 8 % 2 * 8 + me % 8) * kPitch + me / 16 * 16;
    Operands even, odd;
    lane.template wait_copies<kStages - 2>();
    lane.sync();
    take(lane, even, weights_at, tokens_at);
    int ahead = kStage, free = (kStages - 1) * kStage, s = 0;
    auto stage = [&](const Operands& now, Operands& next) {
      lane.template wait_copies<kStages - 3>();
      lane.sync();
      take(lane, next, weights_at + ahead, tokens_at + ahead);
      if (s + kStages - 1 < stages)
        load<kAligned>(lane, feed, ring + free);
      else
        lane.commit_copies();
      multiply(lane, now, d);
      ahead = ahead + kStage == kStages * kStage ? 0 : ahead + kStage;
      free = free + kStage == kStages * kStage ? 0 : free + kStage;
      ++s;
    };
    while (s < stages) {
      stage(even, odd);
      if (s < stages) stage(odd, even);
    }
    lane.template wait_copies<0>();
    lane.sync();  // the ring is read no more
  }

  template <class L>
  DEV void sums(L& lane, int64_t first_column, int64_t first_token, Sum (&d)[kOf][4]) const {
    Sum chains[kChains][kOf][4];
    UNROLL
    for (int c = 0; c < kChains; ++c) UNROLL
    for (int m = 0; m < kOf; ++m) UNROLL
    for (int i = 0; i < 4; ++i) chains[c][m][i] = 0;
    if (row_bytes() % 16 == 0)
      sums_of<true>(lane, first_column, first_token, chains);
    else
      sums_of<false>(lane, first_column, first_token, chains);
    UNROLL
    for (int m = 0; m < kOf; ++m) UNROLL
    for (int i = 0; i < 4; ++i) {
      d[m][i] = chains[0][m][i];
      UNROLL
      for (int c = 1; c < kChains; ++c) d[m][i] += chains[c][m][i];
    }
  }
};

// Bias, one rounding; then, where there is one, the residual, which is rounded again when it is stored.
template <class E>
struct BiasAndResidual {
  const typename E::Type* bias;
  const typename E::Type* residual;
  int64_t columns;
  DEV float of(float sum, int64_t token, int64_t column) const {
    if (bias) sum = sum + E::load(bias[column]);
    if (residual) sum = rounded<E>(sum) + E::load(residual[token * columns + column]);
    return sum;
  }
};

// Finish: from a sum to the number that is stored.
template <class E, class Out, class Finish, int kTokens, int kWarps, int kStages, int kStageBytes = 128>
struct Linear {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  using Tile = ProductTile<E, kTokens, kWarps, kStages, kStageBytes>;
  Tile tile;
  Finish finish;
  typename Out::Type* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * kTokens;
    typename Tile::Sum d[kTokens / 16][4];
    tile.sums(lane, first_column, first_token, d);
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int64_t column = first_column + warp * 8 + me % 4 * 2;
    UNROLL
    for (int m = 0; m < kTokens / 16; ++m) UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t t = first_token + m * 16 + me / 4 + i / 2 * 8, c = column + i % 2;
      if (t < tile.tokens && c < tile.columns) out[t * tile.columns + c] = Out::store(finish.of(d[m][i], t, c));
    }
  }
};

// A logit is the sum itself.
struct AsItIs {
  DEV float of(float sum, int64_t, int64_t) const { return sum; }
};

// The largest column of every token among the block's own, to best[token][block].
template <class E, class Logit, int kTokens, int kWarps, int kStages, int kStageBytes = 128>
struct LinearLargest {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  using Tile = ProductTile<E, kTokens, kWarps, kStages, kStageBytes>;
  Tile tile;
  Logit logit;
  Largest* best;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * kTokens;
    typename Tile::Sum d[kTokens / 16][4];
    tile.sums(lane, first_column, first_token, d);
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    auto* found = reinterpret_cast<Largest*>(lane.shared());  // [token][warp]
    UNROLL
    for (int m = 0; m < kTokens / 16; ++m) UNROLL
    for (int half = 0; half < 2; ++half) {
      Largest top = none_yet();
      const int64_t token = first_token + m * 16 + half * 8 + me / 4;
      UNROLL
      for (int i = 0; i < 2; ++i) {
        const int64_t c = first_column + warp * 8 + me % 4 * 2 + i;
        if (c < tile.columns && token < tile.tokens)
          take_larger(top, logit.of(d[m][half * 2 + i], token, c), static_cast<int32_t>(c));
      }
      UNROLL
      for (int mask = 1; mask < 4; mask <<= 1) {
        const float value = lane.shuffle_xor(top.value, mask);
        const int32_t index = lane.shuffle_xor(top.index, mask);
        take_larger(top, value, index);
      }
      if (me % 4 == 0) found[(m * 16 + half * 8 + me / 4) * kWarps + warp] = top;
    }
    lane.sync();
    for (int t = lane.thread(); t < kTokens; t += kThreads) {
      if (first_token + t >= tile.tokens) continue;
      Largest top = found[t * kWarps];
      for (int w = 1; w < kWarps; ++w) take_larger(top, found[t * kWarps + w].value, found[t * kWarps + w].index);
      best[(first_token + t) * lane.blocks() + lane.block()] = top;
    }
  }
};

// The largest of `count` candidates a row; one block a row.
struct MergeLargest {
  static constexpr int kThreads = 256, kBlocks = 1;
  const Largest* best;
  int32_t* out;
  int64_t count;

  template <class L>
  DEV void operator()(L& lane) const {
    Largest top = none_yet();
    const Largest* row = best + lane.block() * count;
    for (int64_t i = lane.thread(); i < count; i += kThreads) take_larger(top, row[i].value, row[i].index);
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      const float value = lane.shuffle_xor(top.value, mask);
      const int32_t index = lane.shuffle_xor(top.index, mask);
      take_larger(top, value, index);
    }
    auto* found = reinterpret_cast<Largest*>(lane.shared());
    if (lane.thread() % 32 == 0) found[lane.thread() / 32] = top;
    lane.sync();
    if (lane.thread() != 0) return;
    for (int w = 1; w < kThreads / 32; ++w) take_larger(top, found[w].value, found[w].index);
    out[lane.block()] = top.index == kNoColumn ? 0 : top.index;
  }
};

// One part of a row; parts are the grid's columns, rows its rows.
template <class E>
struct RowLargest {
  static constexpr int kThreads = 256, kBlocks = 1;
  const typename E::Type* x;
  Largest* best;
  int64_t columns;

  template <class L>
  DEV void operator()(L& lane) const {
    Largest top = none_yet();
    const typename E::Type* row = x + lane.block_y() * columns;
    const int64_t first = lane.block() * kRowPart, last = smaller<int64_t>(columns, first + kRowPart);
    for (int64_t c = first + lane.thread(); c < last; c += kThreads)
      take_larger(top, E::load(row[c]), static_cast<int32_t>(c));
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      const float value = lane.shuffle_xor(top.value, mask);
      const int32_t index = lane.shuffle_xor(top.index, mask);
      take_larger(top, value, index);
    }
    auto* found = reinterpret_cast<Largest*>(lane.shared());
    if (lane.thread() % 32 == 0) found[lane.thread() / 32] = top;
    lane.sync();
    if (lane.thread() != 0) return;
    for (int w = 1; w < kThreads / 32; ++w) take_larger(top, found[w].value, found[w].index);
    best[lane.block_y() * lane.blocks() + lane.block()] = top;
  }
};

// Rows of `depth` numbers as fp32.
template <class E, class Rows = RowsInOrder>
struct NumbersOf {
  const typename E::Type* p;
  int64_t depth;
  Rows rows{};
  DEV float at(int64_t row, int64_t k) const {
    const int64_t source = rows.at(row);
    return source < 0 ? 0.0f : E::load(p[source * depth + k]);
  }
};

// Sums of a block in fp32, each a chain of fma over ascending depth: a thread has kEach tokens by 1 column of a tile of
// 8 kEach by 32. X and Weight give single numbers: at(row, k).
template <class X, class Weight, int kEach = 2>
struct ChainTile {
  static constexpr int kThreads = 256;
  static constexpr int kTokens = 8 * kEach, kColumns = 32, kDepth = 32, kSums = kEach;
  static constexpr size_t kSharedBytes = (kColumns * (kDepth + 1) + kTokens * kDepth) * sizeof(float);
  X x;
  Weight weight;
  int64_t tokens, depth, columns;

  template <class L>
  DEV void sums(L& lane, int64_t first_column, int64_t first_token, float (&sum)[kEach]) const {
    auto* w = reinterpret_cast<float*>(lane.shared());  // [columns][depth + 1]
    float* t = w + kColumns * (kDepth + 1);             // [tokens][depth]
    const int column = lane.thread() % 32, token = lane.thread() / 32;
    UNROLL
    for (int j = 0; j < kEach; ++j) sum[j] = 0;
    for (int64_t k = 0; k < depth; k += kDepth) {
      for (int i = lane.thread(); i < (kColumns + kTokens) * kDepth; i += kThreads) {
        const int row = i / kDepth, at = i % kDepth;
        const bool of_weight = row < kColumns;
        const int64_t index = of_weight ? first_column + row : first_token + row - kColumns;
        const bool exists = k + at < depth && index < (of_weight ? columns : tokens);
        const float v = !exists ? 0.0f : of_weight ? weight.at(index, k + at) : x.at(index, k + at);
        (of_weight ? w + row * (kDepth + 1) : t + (row - kColumns) * kDepth)[at] = v;
      }
      lane.sync();
      const int last = static_cast<int>(smaller<int64_t>(kDepth, depth - k));
      const float* column_of = w + column * (kDepth + 1);
      int i = 0;
      for (; i + 4 <= last; i += 4) {
        UNROLL
        for (int j = 0; j < kEach; ++j) {
          const Sixteen four = *reinterpret_cast<const Sixteen*>(t + (token + j * 8) * kDepth + i);
          UNROLL
          for (int e = 0; e < 4; ++e) sum[j] = fma(float_of(four.word[e]), column_of[i + e], sum[j]);
        }
      }
      for (; i < last; ++i) UNROLL
      for (int j = 0; j < kEach; ++j) sum[j] = fma(t[(token + j * 8) * kDepth + i], column_of[i], sum[j]);
      lane.sync();
    }
  }

  // Calls body(token, column, sum) for what the thread has.
  template <class Body>
  DEV void each(int thread, int64_t first_column, int64_t first_token, const float (&sum)[kEach],
                const Body& body) const {
    const int64_t c = first_column + thread % 32;
    UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int64_t t = first_token + thread / 32 + j * 8;
      if (t < tokens && c < columns) body(t, c, sum[j]);
    }
  }
};

template <int kEach>
struct LinearF32 {
  using Tile = ChainTile<NumbersOf<F32>, NumbersOf<F32>, kEach>;
  static constexpr int kThreads = Tile::kThreads, kBlocks = 1;
  Tile tile;
  const float* bias;
  const float* residual;
  float* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * Tile::kTokens;
    float sum[kEach];
    tile.sums(lane, first_column, first_token, sum);
    tile.each(lane.thread(), first_column, first_token, sum, [&](int64_t t, int64_t c, float v) {
      if (bias) v = v + bias[c];
      if (residual) v = v + residual[t * tile.columns + c];
      out[t * tile.columns + c] = v;
    });
  }
};

struct ProductSizes {
  int64_t tokens, depth, columns;
};

template <class E, class Out, int kTokens, int kWarps, int kStages, int kStageBytes = 128, class Finish, class L>
void launch_linear(const ProductSizes& z, const void* x, const void* weight, const Finish& finish, void* out,
                   L& launch) {
  using K = Linear<E, Out, Finish, kTokens, kWarps, kStages, kStageBytes>;
  K k{{static_cast<const uint8_t*>(x), static_cast<const uint8_t*>(weight), z.tokens, z.depth, z.columns},
      finish,
      static_cast<typename Out::Type*>(out)};
  launch.run(blocks_for(z.columns, K::Tile::kColumns), K::kThreads, K::Tile::kSharedBytes, k,
             blocks_for(z.tokens, kTokens));
}
// On the tensor cores, by the tile for so many tokens.
template <class E, class Out, class Finish, class L>
void tiled_product(const ProductSizes& z, const void* x, const void* weight, const Finish& finish, void* out,
                   L& launch) {
  if (z.tokens <= 16)
    launch_linear<E, Out, 16, 4, 6, 256>(z, x, weight, finish, out, launch);
  else if (z.tokens <= 32)
    launch_linear<E, Out, 32, 4, 6>(z, x, weight, finish, out, launch);
  else
    launch_linear<E, Out, 64, 8, 5>(z, x, weight, finish, out, launch);
}

// Up to this many tokens a thread has the sums of two, else of eight.
constexpr int64_t kFewChains = 16;

template <int kEach, class L>
void launch_chains(const ProductSizes& z, const void* x, const void* weight, const float* bias, const float* residual,
                   void* out, L& launch) {
  using K = LinearF32<kEach>;
  launch.run(blocks_for(z.columns, K::Tile::kColumns), K::kThreads, K::Tile::kSharedBytes,
             K{{{static_cast<const float*>(x), z.depth},
                {static_cast<const float*>(weight), z.depth},
                z.tokens,
                z.depth,
                z.columns},
               bias,
               residual,
               static_cast<float*>(out)},
             blocks_for(z.tokens, K::Tile::kTokens));
}

template <class E, class Out, class L>
void product(const ProductSizes& z, const void* x, const void* weight, const typename E::Type* bias,
             const typename E::Type* residual, void* out, L& launch) {
  if (z.tokens == 0) return;
  if constexpr (sizeof(typename E::Type) == 4) {
    if (z.tokens <= kFewChains)
      launch_chains<2>(z, x, weight, bias, residual, out, launch);
    else
      launch_chains<8>(z, x, weight, bias, residual, out, launch);
  } else {
    if (z.tokens >= kManyTokens && !bias &&
        launch.product({number_of<E>(), number_of<Out>(), z.tokens, z.depth, z.columns, x, weight, out})) {
      if constexpr (std::is_same_v<E, Out>) {
        const int64_t n = z.tokens * z.columns;
        auto* y = static_cast<typename E::Type*>(out);
        if (residual)
          launch.run(blocks_for(n, kElementThreads * 8), kElementThreads, 0, Binary<E, AddOf>{y, residual, y, n});
      }
      return;
    }
    tiled_product<E, Out>(z, x, weight, BiasAndResidual<E>{bias, residual, z.columns}, out, launch);
  }
}

template <class L>
ProductSizes product_sizes(const ProductShape& shape, const L& launch) {
  return {launch.size(shape.rows), shape.depth, shape.columns};
}

template <class E, class L>
void run_linear(const LinearArgs& a, L& launch) {
  product<E, E>(product_sizes(a.shape, launch), a.x, a.weight, a.bias, nullptr, a.out, launch);
}
template <class E, class L>
void run_linear_wide(const LinearArgs& a, L& launch) {
  product<E, F32>(product_sizes(a.shape, launch), a.x, a.weight, a.bias, nullptr, a.out, launch);
}

template <class E, class L>
void run_linear_add(const LinearAddArgs& a, L& launch) {
  product<E, E>(product_sizes(a.shape, launch), a.x, a.weight, a.bias, a.residual, a.out, launch);
}

inline int64_t row_parts(int64_t columns) { return blocks_for(columns, kRowPart); }
static_assert(sizeof(Largest) == kCandidateBytes);

inline void merge_largest(int64_t rows, int64_t parts, const Largest* best, int32_t* out, auto& launch) {
  launch.run(rows, MergeLargest::kThreads, MergeLargest::kThreads / 32 * sizeof(Largest),
             MergeLargest{best, out, parts});
}

template <class E, int kTokens, int kWarps, int kStages, int kStageBytes = 128, class Logit, class L>
void launch_largest(const ProductSizes& z, const void* x, const void* weight, const Logit& logit, Largest* best,
                    int32_t* out, L& launch) {
  using K = LinearLargest<E, Logit, kTokens, kWarps, kStages, kStageBytes>;
  static_assert(K::Tile::kColumns >= kHeadColumns);
  K k{{static_cast<const uint8_t*>(x), static_cast<const uint8_t*>(weight), z.tokens, z.depth, z.columns}, logit, best};
  const int64_t parts = blocks_for(z.columns, K::Tile::kColumns);
  launch.run(parts, K::kThreads, K::Tile::kSharedBytes, k, blocks_for(z.tokens, kTokens));
  merge_largest(z.tokens, parts, best, out, launch);
}
template <class E, class Logit, class L>
void largest_of_product(const ProductSizes& z, const void* x, const void* weight, const Logit& logit, Largest* best,
                        int32_t* out, L& launch) {
  if (z.tokens <= 16)
    launch_largest<E, 16, 4, 6, 256>(z, x, weight, logit, best, out, launch);
  else if (z.tokens <= 32)
    launch_largest<E, 32, 4, 6>(z, x, weight, logit, best, out, launch);
  else
    launch_largest<E, 64, 8, 5>(z, x, weight, logit, best, out, launch);
}

// Workspace: of f32 the logits and row_candidates_bytes() a row; else head_candidates_bytes() a row.
template <class E, class L>
void run_lm_head_argmax(const LmHeadArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  if (z.tokens == 0) return;
  if constexpr (sizeof(typename E::Type) == 4) {
    auto* logits = static_cast<float*>(launch.workspace);
    auto* best = reinterpret_cast<Largest*>(logits + (z.tokens * z.columns + 1) / 2 * 2);
    product<F32, F32>(z, a.x, a.weight, nullptr, nullptr, logits, launch);
    launch.run(row_parts(z.columns), RowLargest<F32>::kThreads, RowLargest<F32>::kThreads / 32 * sizeof(Largest),
               RowLargest<F32>{logits, best, z.columns}, z.tokens);
    merge_largest(z.tokens, row_parts(z.columns), best, a.out, launch);
  } else {
    largest_of_product<E>(z, a.x, a.weight, AsItIs{}, static_cast<Largest*>(launch.workspace), a.out, launch);
  }
}

// Workspace: row_candidates_bytes() a row.
template <class E, class L>
void run_argmax(const UnaryArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows), columns = a.width;
  auto* best = static_cast<Largest*>(launch.workspace);
  launch.run(row_parts(columns), RowLargest<E>::kThreads, RowLargest<E>::kThreads / 32 * sizeof(Largest),
             RowLargest<E>{a.x, best, columns}, rows);
  merge_largest(rows, row_parts(columns), best, a.out, launch);
}

template <class L>
void fill_linear_of(KernelTable& table) {
  table.linear = REPRISE_CUDA_PER_TYPE(run_linear, L);
  table.linear_wide = REPRISE_CUDA_PER_TYPE(run_linear_wide, L);
  table.linear_add = REPRISE_CUDA_PER_TYPE(run_linear_add, L);
  table.lm_head_argmax = REPRISE_CUDA_PER_TYPE(run_lm_head_argmax, L);
  table.argmax = REPRISE_CUDA_PER_TYPE(run_argmax, L);
}

}  // namespace reprise::cuda
