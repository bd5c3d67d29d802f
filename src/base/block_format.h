// BlockFormat: the GGUF block types whose weights may stay packed in memory. A run of 32 numbers shares one or two f16
// factors inside kBytes bytes. Here, below checkpoint and ops, because files, op schemas and kernels must agree on the
// names and sizes. Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reprise {

enum class BlockFormat : uint8_t { Q8_0, Q4_0, Q4_1 };

constexpr int64_t kBlockElements = 32;

struct BlockFormatInfo {
  BlockFormat format;
  std::string_view name;  // as ops and layouts spell it
  int64_t bytes;          // of a block: the factors as f16, then the numbers
};

constexpr std::array<BlockFormatInfo, 3> kBlockFormats{
    {{BlockFormat::Q8_0, "q8_0", 34}, {BlockFormat::Q4_0, "q4_0", 18}, {BlockFormat::Q4_1, "q4_1", 20}}};

constexpr const BlockFormatInfo& block_format_info(BlockFormat f) { return kBlockFormats[static_cast<size_t>(f)]; }

constexpr std::optional<BlockFormat> find_block_format(std::string_view name) {
  for (const BlockFormatInfo& f : kBlockFormats)
    if (f.name == name) return f.format;
  return std::nullopt;
}

}  // namespace reprise
