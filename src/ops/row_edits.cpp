#include "ops/row_edits.h"

#include <algorithm>
#include <cstring>

namespace reprise {

LogitEdit RowEdits::describe(int32_t row, int64_t vocabulary, int64_t at) const {
  LogitEdit e;
  e.row = row;
  e.repetition = repetition;
  e.frequency = frequency;
  e.presence = presence;
  if (!allowed.empty()) {
    e.mask = static_cast<int32_t>(at);
    at += mask_words(vocabulary);
  }
  e.bias_count = static_cast<int32_t>(biases.size());
  if (!biases.empty()) e.biases = static_cast<int32_t>(at);
  at += 2 * e.bias_count;
  e.count_count = static_cast<int32_t>(counts.size());
  if (!counts.empty()) e.counts = static_cast<int32_t>(at);
  return e;
}

void RowEdits::write(std::span<int32_t> words, int64_t vocabulary) const {
  const auto put = [&](const void* from, size_t bytes, int64_t count) {
    const size_t room = static_cast<size_t>(count) * sizeof(int32_t);
    if (count == 0) return;
    std::memcpy(words.data(), from, bytes);
    std::memset(reinterpret_cast<char*>(words.data()) + bytes, 0, room - bytes);
    words = words.subspan(static_cast<size_t>(count));
  };
  if (!allowed.empty()) {
    const int64_t count = mask_words(vocabulary);
    put(allowed.data(), std::min(allowed.size_bytes(), static_cast<size_t>(count) * sizeof(int32_t)), count);
  }
  put(biases.data(), biases.size_bytes(), static_cast<int64_t>(2 * biases.size()));
  put(counts.data(), counts.size_bytes(), static_cast<int64_t>(2 * counts.size()));
}

void RowEdits::apply(std::span<float> logits) const {
  const auto at = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < logits.size() ? &logits[id] : nullptr;
  };
  if (!allowed.empty())
    for (size_t i = 0; i < logits.size(); ++i)
      if (i / 64 >= allowed.size() || (allowed[i / 64] >> (i % 64) & 1) == 0) logits[i] = edit::forbidden(logits[i]);
  for (const TokenBias& b : biases)
    if (float* v = at(b.token)) *v += b.value;
  LogitEdit e;
  e.repetition = repetition;
  e.frequency = frequency;
  e.presence = presence;
  for (const TokenCount& c : counts)
    if (float* v = at(c.token)) *v = edit::penalised(*v, c, e);
}

}  // namespace reprise
