// Products of groups of rows with weights in blocks of MXFP4: the experts of gpt-oss, read as they lie in files.
//
// A row of bf16 has the bits of `linear` on the unpacked weights, which are numbers of bf16: the same chain of
// tensor-core blocks. Of f32 and f16 a sum is a chain of fma over ascending depth, as in packed.h.
//
// A block of 32 numbers has 17 bytes: nothing is aligned, so the sixteens of bytes that hold a stage's blocks come into
// shared memory as they are, and a lane makes its operands of them: bytes 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of a block
// are all that lane q of a row's four needs, their low halves for the first sixteen numbers, the high ones for the
// rest.
#pragma once

#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/packed.h"

namespace reprise::cuda {

using PowerBlocks = Blocks<BlockFormat::Mxfp4>;

// kWarps * 8 columns by kTokens rows of one group.
template <int kTokens, int kWarps, int kStages>
struct GroupedBlocks {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  static constexpr int kStageBlocks = 8;  // of a row
  static constexpr int kStageDepth = kStageBlocks * kPackedNumbers;
  static constexpr int kStageBytes = kStageBlocks * PowerBlocks::kBytes;
  static constexpr int kPieces = (kStageBytes + 15 + 15) / 16;  // of 16 bytes, wherever the first block begins
  static constexpr int kWeightPitch = kPieces * 16 + 16;        // eight rows lie in different banks
  static constexpr int kTokenPitch = kStageDepth * 2 + 16;
  static constexpr int kColumns = kWarps * 8;
  static constexpr int kStage = kColumns * kWeightPitch + kTokens * kTokenPitch;
  static constexpr size_t kSharedBytes = size_t{kStages} * kStage;
  static constexpr int kOf = kTokens / 16;

  const uint16_t* x;
  const uint8_t* weight;
  Groups groups;
  uint16_t* out;
  int64_t depth, columns;

  DEV int64_t row_bytes() const { return depth / kPackedNumbers * PowerBlocks::kBytes; }

  // Bytes [first, first + kPieces * 16) of a row's sixteens, zeros behind the last matrix.
  template <class L>
  DEV void load(L& lane, uint8_t* to, int64_t row0, int64_t first_column, const TileOfGroup& of, int stage) const {
    const int64_t all = groups.count * columns * row_bytes();
    for (int i = lane.thread(); i < kColumns * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      const int64_t column = smaller<int64_t>(first_column + row, columns - 1);  // the last one again: not kept
      const int64_t at = ((row0 + column) * row_bytes() + int64_t{stage} * kStageBytes) / 16 * 16 + piece * 16;
      const int bytes = static_cast<int>(greater<int64_t>(0, smaller<int64_t>(16, all - at)));
      lane.copy_async(to + row * kWeightPitch + piece * 16, bytes > 0 ? weight + at : weight, bytes);
    }
    uint8_t* tokens = to + kColumns * kWeightPitch;
    constexpr int kChunks = kStageDepth / 8;
    for (int i = lane.thread(); i < kTokens * kChunks; i += kThreads) {
      const int64_t t = of.first + i / kChunks, k = int64_t{stage} * kStageDepth + i % kChunks * 8;
      const bool exists = t < of.last && k < depth;
      lane.copy_async(tokens + i / kChunks * kTokenPitch + i % kChunks * 16, exists ? x + t * depth + k : x,
                      exists ? 16 : 0);
    }
    lane.commit_copies();
  }

  // Two numbers of 4 bits as bf16, the first in the low half: the bits are those of a float whose exponent is too small
  // by 126.
  static DEV uint32_t two_of(uint32_t first, uint32_t second, float power) {
    const float a = float_of((first & 7) << 22 | (first & 8) << 28) * 0x1p126f;
    const float b = float_of((second & 7) << 22 | (second & 8) << 28) * 0x1p126f;
    return pack_two<BF16>(a * power, b * power);
  }

  template <class L>
  DEV void multiply(L& lane, const uint8_t* stage, int64_t row_at, int blocks, float (&d)[kOf][4]) const {
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const uint8_t* row = stage + (warp * 8 + me / 4) * kWeightPitch + row_at % 16;
    const uint8_t* tokens = stage + kColumns * kWeightPitch + (me / 8 % 2 * 8 + me % 8) * kTokenPitch + me / 16 * 16;
    for (int b = 0; b < blocks; ++b) {
      const uint8_t* block = row + b * PowerBlocks::kBytes;
      const uint8_t* pairs = block + 1 + me % 4 * 2;
      const float power = power_of_byte(block[0]);
      const uint32_t byte[4] = {pairs[0], pairs[1], pairs[8], pairs[9]};
      UNROLL
      for (int half = 0; half < 2; ++half) {
        const int by = half * 4;
        const uint32_t w[2] = {two_of(byte[0] >> by, byte[1] >> by, power),
                               two_of(byte[2] >> by, byte[3] >> by, power)};
        UNROLL
        for (int m = 0; m < kOf; ++m) {
          uint32_t a[4];
          lane.template load_matrices<false>(a, tokens + m * 16 * kTokenPitch + b * 64 + half * 32);
          lane.mma(BF16{}, d[m], a, w);
        }
      }
    }
  }

  template <class L>
  DEV void sums(L& lane, const TileOfGroup& of, int64_t first_column, float (&d)[kOf][4]) const {
    auto* ring = reinterpret_cast<uint8_t*>(lane.shared());
    const int64_t row0 = of.group * columns, blocks = depth / kPackedNumbers;
    const int64_t mine = smaller<int64_t>(first_column + lane.thread() / 32 * 8 + lane.thread() % 32 / 4, columns - 1);
    const int stages = static_cast<int>((blocks + kStageBlocks - 1) / kStageBlocks);
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < stages)
        load(lane, ring + s * kStage, row0, first_column, of, s);
      else
        lane.commit_copies();
    }
    for (int s = 0; s < stages; ++s) {
      lane.template wait_copies<kStages - 2>();
      lane.sync();  // also: the stage that is filled next is read no more
      if (s + kStages - 1 < stages)
        load(lane, ring + (s + kStages - 1) % kStages * kStage, row0, first_column, of, s + kStages - 1);
      else
        lane.commit_copies();
      multiply(lane, ring + s % kStages * kStage, (row0 + mine) * row_bytes() + int64_t{s} * kStageBytes,
               static_cast<int>(smaller<int64_t>(kStageBlocks, blocks - int64_t{s} * kStageBlocks)), d);
    }
    lane.template wait_copies<0>();
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const TileOfGroup of = groups.tile(lane, kTokens, lane.block_y());
    if (of.first >= of.last) return;
    const int64_t first_column = static_cast<int64_t>(lane.block()) * kColumns;
    float d[kOf][4];
    UNROLL
    for (int m = 0; m < kOf; ++m) UNROLL
    for (int i = 0; i < 4; ++i) d[m][i] = 0;
    if (of.group < groups.count) sums(lane, of, first_column, d);
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    UNROLL
    for (int m = 0; m < kOf; ++m) UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t t = of.first + m * 16 + me / 4 + i / 2 * 8, c = first_column + warp * 8 + me % 4 * 2 + i % 2;
      if (t < of.last && c < columns) out[t * columns + c] = BF16::store(d[m][i]);
    }
  }
};

template <class E>
struct GroupedChains {
  using Tile = ChainTile<NumbersOf<E>, PowerBlocks>;
  static constexpr int kThreads = Tile::kThreads, kBlocks = 1;
  Tile tile;
  Groups groups;
  typename E::Type* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const TileOfGroup of = groups.tile(lane, Tile::kTokens, lane.block_y());
    if (of.first >= of.last) return;
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    Tile mine = tile;
    mine.tokens = of.last;
    float sum[2] = {0, 0};
    if (of.group < groups.count) {
      mine.weight.p += of.group * tile.columns * tile.weight.blocks * PowerBlocks::kBytes;
      mine.sums(lane, first_column, of.first, sum);
    }
    mine.each(lane.thread(), first_column, of.first, sum,
              [&](int64_t t, int64_t c, float v) { out[t * tile.columns + c] = E::store(v); });
  }
};

template <int kTokens, int kWarps, int kStages, class L>
void launch_grouped_blocks(const GroupedLinearBlocksArgs& a, const ProductSizes& z, L& launch) {
  using K = GroupedBlocks<kTokens, kWarps, kStages>;
  const Groups groups{a.starts, a.groups, z.tokens};
  launch.run(blocks_for(z.columns, K::kColumns), K::kThreads, K::kSharedBytes,
             K{a.x, a.weight, groups, a.out, z.depth, z.columns}, groups.most_tiles(kTokens));
}

template <class E, class L>
void run_grouped_linear_blocks(const GroupedLinearBlocksArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  if (z.tokens == 0) return;
  if constexpr (std::is_same_v<E, BF16>) {
    if (z.tokens <= kManyRows * a.groups)
      launch_grouped_blocks<16, 4, 4>(a, z, launch);
    else
      launch_grouped_blocks<64, 8, 2>(a, z, launch);
  } else {
    using K = GroupedChains<E>;
    const Groups groups{a.starts, a.groups, z.tokens};
    launch.run(blocks_for(z.columns, K::Tile::kColumns), K::kThreads, K::Tile::kSharedBytes,
               K{{{a.x, z.depth}, {a.weight, z.depth / kPackedNumbers}, z.tokens, z.depth, z.columns}, groups, a.out},
               groups.most_tiles(K::Tile::kTokens));
  }
}

template <class L>
void fill_grouped_blocks_of(KernelTable& table) {
  table.grouped_linear_blocks = REPRISE_CUDA_PER_TYPE(run_grouped_linear_blocks, L);
}

}  // namespace reprise::cuda
