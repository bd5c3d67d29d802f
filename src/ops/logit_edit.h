// LogitEdit: how one row of logits is changed before a token is drawn from it: which tokens may come (the bits of a
// grammar), biases, penalties. Ten i32 a row of the staged input "edits"; what it points at lies in "edit_words".
//
// The rule is here in one place, number by number: the host's sampler and the kernels of op `mask_logits` compile it,
// and give the same bits. It is in the order of vLLM and SGLang: mask, biases, penalties. Everything is constexpr, so
// that device compilers read it, and internal to the file that includes it (as ops/draw_rule.h is). Plain values.
#pragma once

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

// Biases, then penalties, one after the other.
inline void apply_lists(float* row, int64_t n, const LogitEdit& e, const int32_t* words) {
  const auto is_token = [&](int32_t id) { return id >= 0 && id < n; };
  for (int64_t k = 0; k < e.bias_count; ++k) {
    TokenBias b;
    __builtin_memcpy(static_cast<void*>(&b), words + e.biases + 2 * k, sizeof b);
    if (is_token(b.token)) row[b.token] += b.value;
  }
  for (int64_t k = 0; k < e.count_count; ++k) {
    TokenCount c;
    __builtin_memcpy(static_cast<void*>(&c), words + e.counts + 2 * k, sizeof c);
    if (is_token(c.token)) row[c.token] = penalised(row[c.token], c, e);
  }
}

}  // namespace edit
}  // namespace

}  // namespace reprise
