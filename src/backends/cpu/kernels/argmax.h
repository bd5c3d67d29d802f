// The largest value of a row and its smallest index, in any order of work. NaN counts as -infinity; a row of nothing
// else has index 0.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/exp.h"

namespace reprise::cpu::REPRISE_ISA {

constexpr float kLowest = -__builtin_inff();

inline void take_better(Best& best, Best other) {
  if (other.value > best.value || (other.value == best.value && other.index < best.index)) best = other;
}

template <typename E>
inline Best best_of(const typename E::Type* x, int64_t first, int64_t last) {
  F32x16 top = splat(kLowest);
  I32x16 at = I32x16{} + kNoIndex;
  I32x16 here = lane_numbers() + static_cast<int32_t>(first);
  int64_t i = first;
  for (; i + 16 <= last; i += 16, here += 16) {
    const F32x16 v = E::load(x + i);
    const I32x16 better = greater(v, top);
    top = select(better, v, top);
    at = select(better, here, at);
  }
  Best best{kLowest, kNoIndex};
  for (int j = 0; j < 16; ++j) take_better(best, {top[j], at[j]});
  const F32x16 rest = load_n<E>(x + i, last - i);
  for (int64_t j = i; j < last; ++j)
    if (rest[j - i] > best.value) best = {rest[j - i], static_cast<int32_t>(j)};
  return best;
}

// The second part.
inline void merge_best(const Best* found, int32_t* out, int64_t rows, int thread, int threads) {
  const Range mine = share(rows, thread, threads);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    Best best{kLowest, kNoIndex};
    for (int k = 0; k < threads; ++k) take_better(best, found[k * best_stride(rows) + r]);
    out[r] = best.index == kNoIndex ? 0 : best.index;
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
