#include "engine/row_edits.h"

#include <algorithm>
#include <cstring>

namespace reprise::engine {

LogitEdit RowEdits::stage(int32_t row, int64_t vocabulary, std::span<int32_t> words, int64_t at) const {
  LogitEdit e;
  e.row = row;
  e.repetition = repetition;
  e.frequency = frequency;
  e.presence = presence;
  const auto put = [&](const void* from, size_t bytes, int64_t count) {
    const auto begin = static_cast<int32_t>(at);
    std::memcpy(&words[static_cast<size_t>(at)], from, bytes);
    std::memset(reinterpret_cast<char*>(&words[static_cast<size_t>(at)]) + bytes, 0,
                static_cast<size_t>(count) * sizeof(int32_t) - bytes);
    at += count;
    return begin;
  };
  if (!allowed.empty()) {
    const int64_t count = mask_words(vocabulary);
    e.mask = put(allowed.data(), std::min(allowed.size_bytes(), static_cast<size_t>(count) * sizeof(int32_t)), count);
  }
  e.bias_count = static_cast<int32_t>(biases.size());
  if (!biases.empty()) e.biases = put(biases.data(), biases.size_bytes(), 2 * e.bias_count);
  e.count_count = static_cast<int32_t>(counts.size());
  if (!counts.empty()) e.counts = put(counts.data(), counts.size_bytes(), 2 * e.count_count);
  return e;
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

}  // namespace reprise::engine
