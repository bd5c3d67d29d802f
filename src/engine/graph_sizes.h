// Which batch and token sizes are captured: the default rules, user lists, and the choice of a size for a batch.
//
// The rules are those of the system this engine follows (2025-12), so that a deployment's list carries over. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::engine {

enum class SizeRule : uint8_t {
  Padded,       // 1, 2, 4, 8, 12; 16 to 256 step 8; 272 to 511 step 16; 512 on step 32
  Exact,        // every size: no padding
  Speculative,  // 1 to 8; 10 to 32 step 2; 40 to 64 step 4; 72 to 256 step 8; 272 on step 16
};

// Ascending, all <= largest. With Padded and Speculative the largest itself is appended when the rule leaves it out, so
// that a full batch is never without a size.
std::vector<int64_t> decode_sizes(int64_t largest, SizeRule rule = SizeRule::Padded);
// The bare rule, without the appended largest.
std::vector<int64_t> decode_sizes_by_rule(int64_t largest, SizeRule rule);
// 4 to 32 step 4; 48 to 256 step 16; 288 to 512 step 32; 640 to 4096 step 128; 4352 on step 256.
std::vector<int64_t> prefill_sizes_by_rule(int64_t largest);
std::vector<int64_t> prefill_sizes(int64_t largest);

// "1,2,8": positive, each at most `limit`; sorted, without repeats. The error names the flag.
Result<std::vector<int64_t>> parse_sizes(std::string_view flag, std::string_view list, int64_t limit);

// `count` of the sizes (ascending), spread evenly over them; the largest and, from two on, the smallest among them.
std::vector<int64_t> spread_sizes(const std::vector<int64_t>& sizes, size_t count);

// The smallest size that holds n; nullopt when all are smaller.
std::optional<int64_t> choose_size(const std::vector<int64_t>& sizes, int64_t n);

}  // namespace reprise::engine
