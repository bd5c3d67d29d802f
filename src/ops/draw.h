// Draw: how the token behind one row of logits is to be drawn; as ten i32 a row of the staged input "draws". The rule
// itself is ops/draw_rule.h. A plain value.
#pragma once

#include <cstdint>

namespace reprise {

struct Draw {
  float scale = 0;    // 1 / temperature; 0: the largest logit, the smaller id on a tie
  float top_p = 1;    // (0, 1]
  float min_p = 0;    // [0, 1]
  int32_t top_k = 0;  // 0: all
  uint64_t seed = 0;
  int64_t position = 0;   // of the token in its sequence
  int32_t logprobs = -1;  // -1: none; n: of the drawn token and the n best, at most kMostTopTokens
  int32_t edited = 0;     // n: the token is drawn from row n - 1 of the edited logits; 0: from the row as it is
};
constexpr int64_t kDrawWords = 10;
constexpr int64_t kMostTopTokens = 20;
static_assert(sizeof(Draw) == kDrawWords * sizeof(int32_t));

// What op merge_draws gives for a row whose token is not known before its logits are gathered.
constexpr int32_t kUndecidedToken = -2;

// A token and its logit, then its weight.
struct DrawCandidate {
  float value;
  int32_t token;
};

}  // namespace reprise
