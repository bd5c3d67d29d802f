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

// What steps that verify drafts are captured for, where graphs freeze sizes.
struct VerifyRows {
  int64_t each = 0;      // most rows of a sequence, its last token and its drafts; below 2: there are no such steps
  bool adaptive = true;  // a step may have fewer drafts than that
  // Rows of a step. 0: all drafts of the largest batch; kSequences: as many as sequences, and two at least.
  int64_t most = 0;
  static constexpr int64_t kSequences = -1;
};
// The rows of those captures: batches by SizeRule::Speculative, or those `given`, times the widths 2, 4 and `each`; not
// adaptive: times `each` alone. A graph fixes how many rows there are and not whose they are, so that products that are
// equal are one capture, and a width is only there in batches with which it keeps to `most`.
std::vector<int64_t> verify_sizes(const VerifyRows& rows, int64_t largest_batch, const std::vector<int64_t>& given = {},
                                  bool padding = true);

// "1,2,8": positive, each at most `limit`; sorted, without repeats. The error names the flag.
Result<std::vector<int64_t>> parse_sizes(std::string_view flag, std::string_view list, int64_t limit);

// `count` of the sizes (ascending), spread evenly over them; the largest and, from two on, the smallest among them.
std::vector<int64_t> spread_sizes(const std::vector<int64_t>& sizes, size_t count);

// The smallest size that holds n; nullopt when all are smaller.
std::optional<int64_t> choose_size(const std::vector<int64_t>& sizes, int64_t n);

}  // namespace reprise::engine
