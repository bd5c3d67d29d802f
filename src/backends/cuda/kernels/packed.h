// Products with weights that stay in GGUF blocks, and rows of tables in them.
//
// A weight becomes the fp32 number that the checkpoint's reader would make of it, and a sum is a chain of fma over
// ascending depth, as of f32 (linear.h): the CPU's bits. Blocks lie as in a file, row by row.
#pragma once

#include "backends/cuda/kernels/linear.h"
#include "base/block_format.h"

namespace reprise::cuda {

constexpr int kPackedNumbers = 32;  // of a block

// 2^(byte - 127); the smallest is subnormal.
DEV float power_of_byte(uint8_t byte) {
  const uint32_t bits = byte == 0 ? 0x00400000u : static_cast<uint32_t>(byte) << 23;
  float out;
  memcpy(&out, &bits, sizeof(out));
  return out;
}

// A number of 4 bits (E2M1): a sign, two bits of exponent, one of mantissa.
DEV float fp4_to_float(int bits) {
  const int exponent = bits >> 1 & 3, mantissa = bits & 1;
  const float size = 0.5f * static_cast<float>(exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1));
  return bits & 8 ? -size : size;
}

// Blocks of 32 numbers behind one factor, or of Q4_1 behind a factor and a minimum. Nothing in a block is aligned to
// more than two bytes, of Mxfp4 to one.
template <BlockFormat kFormat>
struct Blocks {
  static constexpr int kFactors = kFormat == BlockFormat::Q4_1 ? 2 : 1;
  static constexpr int kBytes = static_cast<int>(block_format_info(kFormat).bytes);
  static_assert(block_format_info(kFormat).elements == kPackedNumbers);  // of 4 or 8 bits
  const uint8_t* p;
  int64_t blocks;  // of a row

  DEV float at(int64_t row, int64_t k) const {
    const uint8_t* block = p + (row * blocks + k / kPackedNumbers) * kBytes;
    const int i = static_cast<int>(k % kPackedNumbers);
    if constexpr (kFormat == BlockFormat::Mxfp4)
      return power_of_byte(block[0]) * fp4_to_float(block[1 + i % 16] >> (i / 16 * 4) & 15);
    const auto* factors = reinterpret_cast<const uint16_t*>(block);
    const float factor = half_to_float(factors[0]);
    const uint8_t* numbers = block + kFactors * 2;
    if constexpr (kFormat == BlockFormat::Q8_0) return factor * static_cast<float>(static_cast<int8_t>(numbers[i]));
    const int number = numbers[i % 16] >> (i / 16 * 4) & 15;
    if constexpr (kFormat == BlockFormat::Q4_0) return factor * static_cast<float>(number - 8);
    return factor * static_cast<float>(number) + half_to_float(factors[kFactors - 1]);
  }
};

template <class E, class Out, BlockFormat kFormat, int kEach>
struct LinearBlocks {
  using Tile = ChainTile<NumbersOf<E>, Blocks<kFormat>, kEach>;
  static constexpr int kThreads = Tile::kThreads, kBlocks = 1;
  Tile tile;
  const typename E::Type* bias;
  typename Out::Type* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * Tile::kTokens;
    float sum[kEach];
    tile.sums(lane, first_column, first_token, sum);
    tile.each(lane.thread(), first_column, first_token, sum, [&](int64_t t, int64_t c, float v) {
      if (bias) v = v + E::load(bias[c]);
      out[t * tile.columns + c] = Out::store(v);
    });
  }
};

// The largest column of every token among the block's own, to best[token][block].
template <class E, BlockFormat kFormat>
struct PackedLargest {
  using Tile = ChainTile<NumbersOf<E>, Blocks<kFormat>>;
  static constexpr int kThreads = Tile::kThreads, kBlocks = 1;
  static_assert(Tile::kColumns >= kHeadColumns && Tile::kColumns == 32);
  Tile tile;
  Largest* best;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const int64_t first_token = static_cast<int64_t>(lane.block_y()) * Tile::kTokens;
    float sum[2];
    tile.sums(lane, first_column, first_token, sum);
    // A warp has all columns of its tokens.
    Largest top[2] = {none_yet(), none_yet()};
    tile.each(lane.thread(), first_column, first_token, sum, [&](int64_t t, int64_t c, float v) {
      take_larger(top[(t - first_token) / 8], v, static_cast<int32_t>(c));
    });
    UNROLL
    for (int j = 0; j < 2; ++j) {
      UNROLL
      for (int mask = 16; mask > 0; mask >>= 1) {
        const float value = lane.shuffle_xor(top[j].value, mask);
        const int32_t index = lane.shuffle_xor(top[j].index, mask);
        take_larger(top[j], value, index);
      }
      const int64_t t = first_token + lane.thread() / 32 + j * 8;
      if (lane.thread() % 32 == 0 && t < tile.tokens) best[t * lane.blocks() + lane.block()] = top[j];
    }
  }
};

// A block a row; an id outside the table gives zeros.
template <class Out, BlockFormat kFormat>
struct EmbeddingBlocks {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  Blocks<kFormat> table;
  const int32_t* ids;
  typename Out::Type* out;
  int64_t width, rows;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t id = ids[lane.block()];
    const bool exists = id >= 0 && id < rows;
    for (int64_t i = lane.thread(); i < width; i += kThreads)
      out[lane.block() * width + i] = Out::store(exists ? table.at(id, i) : 0.0f);
  }
};

// Calls body with the format as a type's constant.
template <class Body>
void with_format(BlockFormat format, const Body& body) {
  switch (format) {
    case BlockFormat::Q8_0: return body(std::integral_constant<BlockFormat, BlockFormat::Q8_0>{});
    case BlockFormat::Q4_0: return body(std::integral_constant<BlockFormat, BlockFormat::Q4_0>{});
    case BlockFormat::Q4_1: return body(std::integral_constant<BlockFormat, BlockFormat::Q4_1>{});
    case BlockFormat::Mxfp4: return body(std::integral_constant<BlockFormat, BlockFormat::Mxfp4>{});
    case BlockFormat::Q5_0:
    case BlockFormat::Q5_1:
    case BlockFormat::Q2_K:
    case BlockFormat::Q3_K:
    case BlockFormat::Q4_K:
    case BlockFormat::Q5_K:
    case BlockFormat::Q6_K:
    case BlockFormat::IQ4_NL:
    case BlockFormat::IQ4_XS: return;  // the entries do not accept them
  }
}

template <class E, BlockFormat kFormat, int kEach = 2, class A>
ChainTile<NumbersOf<E>, Blocks<kFormat>, kEach> packed_tile(const A& a, const ProductSizes& z) {
  return {{a.x, z.depth}, {a.weight, z.depth / kPackedNumbers}, z.tokens, z.depth, z.columns};
}

template <class E, class Out, BlockFormat kFormat, int kEach, class L>
void launch_packed(const LinearBlocksArgs& a, const ProductSizes& z, L& launch) {
  using K = LinearBlocks<E, Out, kFormat, kEach>;
  launch.run(blocks_for(z.columns, K::Tile::kColumns), K::kThreads, K::Tile::kSharedBytes,
             K{packed_tile<E, kFormat, kEach>(a, z), a.bias, a.out}, blocks_for(z.tokens, K::Tile::kTokens));
}

template <class E, class Out, class L>
void packed_product(const LinearBlocksArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  with_format(a.format, [&](auto format) {
    if (z.tokens <= kFewChains)
      launch_packed<E, Out, format(), 2>(a, z, launch);
    else
      launch_packed<E, Out, format(), 8>(a, z, launch);
  });
}
template <class E, class L>
void run_linear_blocks(const LinearBlocksArgs& a, L& launch) {
  packed_product<E, E>(a, launch);
}
template <class E, class L>
void run_linear_blocks_wide(const LinearBlocksArgs& a, L& launch) {
  packed_product<E, F32>(a, launch);
}

// Workspace: head_candidates_bytes() a row.
template <class E, class L>
void run_lm_head_argmax_blocks(const LmHeadBlocksArgs& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  auto* best = static_cast<Largest*>(launch.workspace);
  with_format(a.format, [&](auto format) {
    using K = PackedLargest<E, format()>;
    const int64_t parts = blocks_for(z.columns, K::Tile::kColumns);
    launch.run(parts, K::kThreads, K::Tile::kSharedBytes, K{packed_tile<E, format()>(a, z), best},
               blocks_for(z.tokens, K::Tile::kTokens));
    merge_largest(z.tokens, parts, best, a.out, launch);
  });
}

// The type is that of the result.
template <class Out, class L>
void run_embedding_blocks(const EmbeddingBlocksArgs& a, L& launch) {
  with_format(a.format, [&](auto format) {
    launch.run(
        launch.size(a.tokens), kElementThreads, 0,
        EmbeddingBlocks<Out, format()>{{a.table, a.width / kPackedNumbers}, a.ids, a.out, a.width, a.vocabulary});
  });
}

template <class L>
void fill_packed_of(KernelTable& table) {
  table.linear_blocks = REPRISE_CUDA_PER_TYPE(run_linear_blocks, L);
  table.linear_blocks_wide = REPRISE_CUDA_PER_TYPE(run_linear_blocks_wide, L);
  table.lm_head_argmax_blocks = REPRISE_CUDA_PER_TYPE(run_lm_head_argmax_blocks, L);
  table.embedding_blocks = REPRISE_CUDA_PER_TYPE(run_embedding_blocks, L);
}

}  // namespace reprise::cuda
