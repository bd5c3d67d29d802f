// RowEdits: what changes a row of logits before its token is drawn, by the rule of ops/logit_edit.h. Views of what a
// Sampler and its constraint own, good until either moves on. A plain value.
#pragma once

#include <cstdint>
#include <span>

#include "ops/logit_edit.h"

namespace reprise {

struct RowEdits {
  // A bit per token, 1: it may come; those beyond the last word may not. Empty: all may.
  std::span<const uint64_t> allowed = {};
  std::span<const TokenBias> biases = {};
  std::span<const TokenCount> counts = {};
  float repetition = 1, frequency = 0, presence = 0;

  bool any() const { return !allowed.empty() || !biases.empty() || !counts.empty(); }
  // i32 that a step stages of them.
  int64_t words(int64_t vocabulary) const {
    return (allowed.empty() ? 0 : mask_words(vocabulary)) + static_cast<int64_t>(2 * (biases.size() + counts.size()));
  }
  // For the kernels of a step: row `row` of the logits, with words from `at` on ...
  LogitEdit describe(int32_t row, int64_t vocabulary, int64_t at) const;
  // ... and these words, as many as words() says.
  void write(std::span<int32_t> words, int64_t vocabulary) const;
  // On the host.
  void apply(std::span<float> logits) const;
};

}  // namespace reprise
