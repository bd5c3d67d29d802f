// LogitEdit: how one row of logits is changed before a token is drawn from it: which tokens may come (the bits of a
// grammar), biases, penalties. Ten i32 a row of the staged input "edits"; what it points at lies in "edit_words".
//
// The rule is here in one place, number by number: the host's sampler and the kernels of op `mask_logits` compile it,
// and give the same bits. It is in the order of vLLM and SGLang: mask, biases, penalties. Everything is constexpr, so
// that device compilers read it, and internal to the file that includes it (as ops/draw_rule.h is). Plain values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace reprise {

struct LogitEdit {
  int32_t row = 0;     // of the logits
  int32_t mask = -1;   // the word where the row's bits begin, a bit for each token, 1: it may come; -1: all may
  int32_t biases = 0;  // the word where its TokenBias begin
  int32_t bias_count = 0;
  int32_t counts = 0;  // the word where its TokenCount begin
  int32_t count_count = 0;
  float repetition = 1, frequency = 0, presence = 0;
  int32_t unused = 0;
};
constexpr int64_t kEditWords = 10;
static_assert(sizeof(LogitEdit) == kEditWords * sizeof(int32_t));

// In a row's lists a token stands once.
struct TokenBias {
  int32_t token = 0;
  float value = 0;  // -infinity: it may not come
};
struct TokenCount {
  int32_t token = 0;
  int32_t count = 0;  // in the answer; 0: in the prompt alone
};
static_assert(sizeof(TokenBias) == 8 && sizeof(TokenCount) == 8);

// Words of the bits of so many tokens.
constexpr int64_t mask_words(int64_t tokens) { return (tokens + 31) / 32; }

namespace {
namespace edit {

constexpr bool allows(const uint32_t* mask, int64_t token) { return (mask[token / 32] >> (token % 32) & 1) != 0; }

// The logit of a token that may not come. What is no number stays none, so that it is found.
constexpr float forbidden(float v) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return v < kInfinity ? -kInfinity : v;
}

constexpr float penalised(float v, TokenCount c, const LogitEdit& e) {
  if (e.repetition != 1) v = v > 0 ? v / e.repetition : v * e.repetition;
  if (c.count == 0) return v;
  v -= e.frequency * static_cast<float>(c.count);
  return v - e.presence;
}

// Row `row` of the staged input.
constexpr LogitEdit of_row(const int32_t* edits, int64_t row) {
  const int32_t* w = edits + row * kEditWords;
  const auto number = [&](int i) { return std::bit_cast<float>(w[i]); };
  return {w[0], w[1], w[2], w[3], w[4], w[5], number(6), number(7), number(8), w[9]};
}

// Below, a row is its columns [first, first + n) alone, and pointers to its floats begin with the first of these: a
// rank has no others. Whole rows begin at column 0.

// `to` gets the columns with the bits of the mask; `first` is a multiple of 32.
inline void mask_part(const LogitEdit& e, const int32_t* words, const float* from, float* to, int64_t first,
                      int64_t n) {
  if (e.mask < 0) {
    __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const uint32_t* mask = reinterpret_cast<const uint32_t*>(words) + e.mask + first / 32;
  for (int64_t i = 0; i < n; ++i) to[i] = allows(mask, i) ? from[i] : forbidden(from[i]);
}

// Entry k of the row's biases, and of its counts: all biases come first. Tokens of other columns are passed over.
constexpr void add_bias(float* row, int64_t first, int64_t n, const LogitEdit& e, const int32_t* words, int64_t k) {
  const int32_t* w = words + e.biases + 2 * k;
  const int64_t i = w[0] - first;
  if (i >= 0 && i < n) row[i] = row[i] + std::bit_cast<float>(w[1]);
}
constexpr void penalise(float* row, int64_t first, int64_t n, const LogitEdit& e, const int32_t* words, int64_t k) {
  const int32_t* w = words + e.counts + 2 * k;
  const int64_t i = w[0] - first;
  if (i >= 0 && i < n) row[i] = penalised(row[i], {w[0], w[1]}, e);
}

// Both lists of a row.
constexpr void apply_lists(float* row, int64_t first, int64_t n, const LogitEdit& e, const int32_t* words) {
  for (int64_t k = 0; k < e.bias_count; ++k) add_bias(row, first, n, e, words, k);
  for (int64_t k = 0; k < e.count_count; ++k) penalise(row, first, n, e, words, k);
}

}  // namespace edit
}  // namespace

}  // namespace reprise
