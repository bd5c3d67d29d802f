// CpuKernel: the type behind Thunk::phase on the CPU.
//
// A kernel is called by every rank of the team with the same arguments; it computes its own share and returns. It never
// forks, allocates, locks or calls the system. Phases of one thunk are separated by a team barrier. Which rank computes
// what may depend on the team size; what is computed may not (the bits rule: docs/tour.md).
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/thunk.h"

namespace reprise::cpu {

using CpuKernel = void (*)(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks);

inline OpaqueKernel opaque(CpuKernel kernel) { return reinterpret_cast<OpaqueKernel>(kernel); }

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// The contiguous share of `count` units that belongs to one rank.
inline Range share(int64_t count, int rank, int ranks) { return {count * rank / ranks, count * (rank + 1) / ranks}; }

// The same with borders at multiples of `unit`.
inline Range share(int64_t count, int64_t unit, int rank, int ranks) {
  const Range r = share((count + unit - 1) / unit, rank, ranks);
  return {std::min(count, r.begin * unit), std::min(count, r.end * unit)};
}

}  // namespace reprise::cpu
