#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/kv_layout.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// `count` tokens of one head, which go to neighbouring places of one page. Keys change their order: the inner loop runs
// over tokens, so that stores are contiguous.
template <typename T, bool kPairs>
void write_run(T* keys, T* values, const T* k, const T* v, int64_t stride, int64_t place, int64_t count, int64_t size) {
  if constexpr (kPairs) {
    for (int64_t d = 0; d < size; d += 2)
      for (int64_t j = 0; j < count; ++j) {
        std::memcpy(keys + key_offset(place + j, d, size, true), k + j * stride + d, 2 * sizeof(T));
      }
    for (int64_t j = 0; j < count; ++j) {
      T* row = values + value_offset(place + j, 0, size, true);
      for (int64_t d = 0; d < size; ++d) row[2 * d] = v[j * stride + d];
    }
  } else {
    for (int64_t d = 0; d < size; ++d)
      for (int64_t j = 0; j < count; ++j) keys[key_offset(place + j, d, size, false)] = k[j * stride + d];
    for (int64_t j = 0; j < count; ++j)
      std::memcpy(values + value_offset(place + j, 0, size, false), v + j * stride,
                  static_cast<size_t>(size) * sizeof(T));
  }
}

// ptr: kv, k, v, slots, (kv again). dim: tokens, heads, head size. Ranks share (head, token) pairs, head by head.
template <typename T, bool kPairs>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  auto* kv = static_cast<T*>(args.ptr[0]);
  const auto* k = static_cast<const T*>(args.ptr[1]);
  const auto* v = static_cast<const T*>(args.ptr[2]);
  const auto* slots = static_cast<const int32_t*>(args.ptr[3]);
  const int64_t tokens = args.dim[0].value(live), heads = args.dim[1].value(live), size = args.dim[2].value(live);
  const Range range = share(heads * tokens, rank, ranks);
  constexpr int64_t kRun = 16;  // tokens at once: sixteen rows of k stay in the first-level cache
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
    while (count < limit && count < kRun && place + count < kKvTokens && slots[t + count] == slot + count) ++count;
    const int64_t at = (t * heads + head) * size;
    write_run<T, kPairs>(kv + kv_block(page, false, head, heads, size), kv + kv_block(page, true, head, heads, size),
                         k + at, v + at, heads * size, place, count, size);
    u += count;
  }
}

}  // namespace

void kv_write_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<uint32_t, false>(args, live, rank, ranks);
}
void kv_write_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<uint16_t, true>(args, live, rank, ranks);
}
void kv_write_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<uint16_t, false>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
