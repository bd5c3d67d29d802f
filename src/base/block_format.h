// BlockFormat: the GGUF block types whose weights may stay packed in memory. A run of 32 numbers shares one or two f16
// factors, or a power of two, inside kBytes bytes. Here, below checkpoint and ops, because files, op schemas and
// kernels must agree on the names and sizes. Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reprise {

enum class BlockFormat : uint8_t { Q8_0, Q4_0, Q4_1, Mxfp4 };

constexpr int64_t kBlockElements = 32;

struct BlockFormatInfo {
  BlockFormat format;
  std::string_view name;  // as ops and layouts spell it
  int64_t bytes;          // of a block: the factors, then the numbers
  int64_t factor_bytes;   // of one of the factors: an f16, or the exponent of a power of two with 127 added
  int64_t factors;
};

constexpr std::array<BlockFormatInfo, 4> kBlockFormats{{{BlockFormat::Q8_0, "q8_0", 34, 2, 1},
                                                        {BlockFormat::Q4_0, "q4_0", 18, 2, 1},
                                                        {BlockFormat::Q4_1, "q4_1", 20, 2, 2},
                                                        {BlockFormat::Mxfp4, "mxfp4", 17, 1, 1}}};

constexpr const BlockFormatInfo& block_format_info(BlockFormat f) { return kBlockFormats[static_cast<size_t>(f)]; }

constexpr std::optional<BlockFormat> find_block_format(std::string_view name) {
  for (const BlockFormatInfo& f : kBlockFormats)
    if (f.name == name) return f.format;
  return std::nullopt;
}

}  // namespace reprise
