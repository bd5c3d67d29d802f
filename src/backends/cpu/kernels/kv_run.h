// Writing neighbouring tokens of one head into the KV cache as they are or as int8, and finding them: shared by the
// plain and the fused kernels.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/kv_layout.h"
#include "backends/cpu/kernels/quantize.h"

namespace reprise::cpu::REPRISE_ISA {

constexpr int64_t kRunTokens = 16;  // tokens at once: sixteen rows of k stay in the first-level cache

constexpr int64_t kMaxHeadSize = 256;  // of the cache: register_attention.cpp, register_fused.cpp

// A head's keys and values of one page, and the rows that go there.
template <typename Cell, typename T>
struct KvRun {
  Cell* keys;
  Cell* values;
  const T* k;
  const T* v;
  int64_t k_stride, v_stride;  // from token to token
  int64_t place, count;        // tokens of the page
  int64_t size;
};

// Numbers that are stored as they are; T has their width. Keys change their order: the inner loop runs over tokens, so
// that stores are contiguous.
template <typename T, bool kPairs>
struct KvAsIs {
  using Cell = T;
  static constexpr bool kScaled = false;

  static void write(const KvRun<T, T>& r) {
    if constexpr (kPairs) {
      for (int64_t d = 0; d < r.size; d += 2)
        for (int64_t j = 0; j < r.count; ++j)
          std::memcpy(r.keys + key_offset(r.place + j, d, r.size, true), r.k + j * r.k_stride + d, 2 * sizeof(T));
      for (int64_t j = 0; j < r.count; ++j) {
        T* row = r.values + value_offset(r.place + j, 0, r.size, true);
        for (int64_t d = 0; d < r.size; ++d) row[2 * d] = r.v[j * r.v_stride + d];
      }
    } else {
      for (int64_t d = 0; d < r.size; ++d)
        for (int64_t j = 0; j < r.count; ++j)
          r.keys[key_offset(r.place + j, d, r.size, false)] = r.k[j * r.k_stride + d];
      for (int64_t j = 0; j < r.count; ++j)
        std::memcpy(r.values + value_offset(r.place + j, 0, r.size, false), r.v + j * r.v_stride,
                    static_cast<size_t>(r.size) * sizeof(T));
    }
  }
};

// Every row of E as int8 with its own scale, as quantize_dynamic makes them.
template <typename E>
struct KvAsInt8 {
  using Cell = int8_t;
  static constexpr bool kScaled = true;

  static void write(const KvRun<int8_t, typename E::Type>& r) {
    alignas(64) int8_t rows[kRunTokens * kMaxHeadSize];
    float scales[kRunTokens];
    for (int64_t j = 0; j < r.count; ++j) scales[j] = quantize_row<E>(r.k + j * r.k_stride, rows + j * r.size, r.size);
    std::memcpy(r.keys + kv_scales_offset(r.size) + r.place * 4, scales, static_cast<size_t>(r.count) * 4);
    for (int64_t d = 0; d < r.size; ++d)
      for (int64_t j = 0; j < r.count; ++j) r.keys[key_offset(r.place + j, d, r.size, false)] = rows[j * r.size + d];
    for (int64_t j = 0; j < r.count; ++j)
      scales[j] = quantize_row<E>(r.v + j * r.v_stride, r.values + value_offset(r.place + j, 0, r.size, false), r.size);
    std::memcpy(r.values + kv_scales_offset(r.size) + r.place * 4, scales, static_cast<size_t>(r.count) * 4);
  }
};

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
