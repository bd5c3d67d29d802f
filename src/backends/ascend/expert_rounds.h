// How many tokens of a rank the operators that send rows to experts take at a time, and the rounds in which a share of
// more tokens goes.
//
// MoeDistributeDispatchV2 and its counterpart take up to 256 tokens of a rank on Atlas A2 (OT-2608
// moe_distribute_dispatch_v2_tiling_arch22.cpp:77,482) and 512 on A3 (moe_distribute_dispatch_v2_tiling.cpp:62,981),
// and no more than their windows hold, which HCCL_BUFFSIZE is for (aclnnMoeDistributeDispatchV2.md:693,698). The
// windows have two bytes for each number, of int8 rows as well. Plain values and functions of numbers, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::ascend {

struct RoundLimits {
  int64_t tokens = 256;
  bool third = false;  // Atlas A3: each expert has a window for each rank
  int64_t megabytes = 200;

  // `soc` as the runtime names the chip; `megabytes` as in HCCL_BUFFSIZE, null where that is not set.
  static RoundLimits of(std::string_view soc, const char* megabytes);
};

// What is sent: experts are those of a rank, choices those of a token, width the numbers of a row.
struct SentShape {
  int64_t ranks, experts, choices, width;

  // The most rows that one token of each rank brings to a rank.
  int64_t rows_of_token() const;
  // Bytes of the windows for one token of each rank, with what they need besides.
  int64_t window_bytes(const RoundLimits& limits) const;
  int64_t tokens_at_once(const RoundLimits& limits) const;
  // With fewer tokens at a time the exchange would be of many small rounds.
  static constexpr int64_t kFewest = 16;
  Status fits(const RoundLimits& limits) const;
};

// Tokens [first, first + tokens) of a rank's share; `most` are those of the fullest round, which all ranks tell the
// operators in all of them.
struct Round {
  int64_t first, tokens, most;
};

class Rounds {
 public:
  // Rounds of equal numbers of tokens, but for the last one. All of them together have at most `places` rows of a rank,
  // where that is possible.
  Rounds(int64_t tokens, int64_t at_once, int64_t rows_of_token, int64_t places);

  int64_t count() const { return count_; }
  int64_t most() const { return most_; }  // tokens of a round
  Round at(int64_t i) const { return {i * most_, i + 1 < count_ ? most_ : tokens_ - i * most_, most_}; }

 private:
  int64_t tokens_, count_, most_;
};

}  // namespace reprise::ascend
