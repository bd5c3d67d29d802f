// Sizes that the kernels of layers with states (state_head.h) and the entries that reserve their workspace share.
// Internal linkage, because kernel sources may not share inline code across instruction sets.
#pragma once

#include <cstdint>

namespace reprise::cpu {

static constexpr int64_t kDeltaRows = 32;     // whose keys, queries and gates a thread makes ready at once
static constexpr int64_t kDeltaColumns = 32;  // of a state that are worked on together

// Floats of one key or query: whole vectors. Floats of a thread: keys, queries, and two gates a row; then a state's
// columns, one key behind the other.
[[maybe_unused]] static constexpr int64_t delta_key(int64_t key) { return (key + 15) / 16 * 16; }
[[maybe_unused]] static constexpr int64_t delta_rows_floats(int64_t key) {
  return kDeltaRows * (2 * delta_key(key) + 2);
}
[[maybe_unused]] static constexpr int64_t delta_thread_floats(int64_t key) {
  return delta_rows_floats(key) + key * kDeltaColumns;
}

}  // namespace reprise::cpu
