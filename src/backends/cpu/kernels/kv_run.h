// Writing neighbouring tokens of one head into the KV cache, and finding them: shared by the plain and the fused
// kernels.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/kv_layout.h"

namespace reprise::cpu::REPRISE_ISA {

constexpr int64_t kRunTokens = 16;  // tokens at once: sixteen rows of k stay in the first-level cache

// `count` tokens of one head, which go to neighbouring places of one page. Keys change their order: the inner loop runs
// over tokens, so that stores are contiguous.
template <typename T, bool kPairs>
inline void write_kv_run(T* keys, T* values, const T* k, const T* v, int64_t k_stride, int64_t v_stride, int64_t place,
                         int64_t count, int64_t size) {
  if constexpr (kPairs) {
    for (int64_t d = 0; d < size; d += 2)
      for (int64_t j = 0; j < count; ++j) {
        std::memcpy(keys + key_offset(place + j, d, size, true), k + j * k_stride + d, 2 * sizeof(T));
      }
    for (int64_t j = 0; j < count; ++j) {
      T* row = values + value_offset(place + j, 0, size, true);
      for (int64_t d = 0; d < size; ++d) row[2 * d] = v[j * v_stride + d];
    }
  } else {
    for (int64_t d = 0; d < size; ++d)
      for (int64_t j = 0; j < count; ++j) keys[key_offset(place + j, d, size, false)] = k[j * k_stride + d];
    for (int64_t j = 0; j < count; ++j)
      std::memcpy(values + value_offset(place + j, 0, size, false), v + j * v_stride,
                  static_cast<size_t>(size) * sizeof(T));
  }
}

// Ranks share (head, token) pairs, head by head. Calls body(head, first token, count, page, place) for runs of up to
// kRunTokens tokens that go to neighbouring places of one page; negative slots are skipped.
template <typename Body>
inline void for_each_kv_run(const int32_t* slots, int64_t tokens, int64_t heads, int rank, int ranks,
                            const Body& body) {
  const Range range = share(heads * tokens, rank, ranks);
  for (int64_t u = range.begin; u < range.end;) {
    const int64_t head = u / tokens, t = u % tokens;
    const int64_t limit = tokens - t < range.end - u ? tokens - t : range.end - u;
    const int64_t slot = slots[t];
    if (slot < 0) {
      ++u;
      continue;
    }
    const int64_t page = slot / kKvTokens, place = slot % kKvTokens;
    int64_t count = 1;
    while (count < limit && count < kRunTokens && place + count < kKvTokens && slots[t + count] == slot + count)
      ++count;
    body(head, t, count, page, place);
    u += count;
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
