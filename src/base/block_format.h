// BlockFormat: the GGUF block types whose weights may stay packed in memory. A block of 32 numbers shares one or two
// f16 factors, or a power of two; one of 256 (K types and IQ4_XS) has parts of 32 or 16 numbers, whose factors are
// small integers times those of the block. Here, below checkpoint and ops, because files, op schemas and kernels must
// agree on the names and sizes. Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reprise {

enum class BlockFormat : uint8_t { Q8_0, Q4_0, Q4_1, Mxfp4, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS };

struct BlockFormatInfo {
  BlockFormat format;
  std::string_view name;  // as ops and layouts spell it
  int64_t elements;       // of a block
  int64_t bytes;          // of a block
  int64_t factors_at;     // where in it the factors are
  int64_t factor_bytes;   // of one of them: an f16, or the exponent of a power of two with 127 added
  int64_t factors;
};

constexpr std::array<BlockFormatInfo, 13> kBlockFormats{{{BlockFormat::Q8_0, "q8_0", 32, 34, 0, 2, 1},
                                                         {BlockFormat::Q4_0, "q4_0", 32, 18, 0, 2, 1},
                                                         {BlockFormat::Q4_1, "q4_1", 32, 20, 0, 2, 2},
                                                         {BlockFormat::Mxfp4, "mxfp4", 32, 17, 0, 1, 1},
                                                         {BlockFormat::Q5_0, "q5_0", 32, 22, 0, 2, 1},
                                                         {BlockFormat::Q5_1, "q5_1", 32, 24, 0, 2, 2},
                                                         {BlockFormat::Q2_K, "q2_k", 256, 84, 80, 2, 2},
                                                         {BlockFormat::Q3_K, "q3_k", 256, 110, 108, 2, 1},
                                                         {BlockFormat::Q4_K, "q4_k", 256, 144, 0, 2, 2},
                                                         {BlockFormat::Q5_K, "q5_k", 256, 176, 0, 2, 2},
                                                         {BlockFormat::Q6_K, "q6_k", 256, 210, 208, 2, 1},
                                                         {BlockFormat::IQ4_NL, "iq4_nl", 32, 18, 0, 2, 1},
                                                         {BlockFormat::IQ4_XS, "iq4_xs", 256, 136, 0, 2, 1}}};

// The numbers that the four bits of IQ4_NL and IQ4_XS stand for: GGUF's table, in steps that grow from the middle.
constexpr std::array<int8_t, 16> kIq4Numbers{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

constexpr const BlockFormatInfo& block_format_info(BlockFormat f) { return kBlockFormats[static_cast<size_t>(f)]; }

constexpr std::optional<BlockFormat> find_block_format(std::string_view name) {
  for (const BlockFormatInfo& f : kBlockFormats)
    if (f.name == name) return f.format;
  return std::nullopt;
}

}  // namespace reprise
