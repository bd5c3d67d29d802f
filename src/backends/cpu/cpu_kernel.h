// CpuKernel: the type behind Thunk::part on the CPU.
//
// A kernel is called by every thread of the pool with the same arguments; it computes its own share, products also what
// is left of the shares of others (kernels/parts.h), and returns. It never forks, allocates, locks or calls the system.
// Parts of one thunk are separated by a pool barrier. Which thread computes what may depend on the pool size; what is
// computed may not (the bits rule: docs/tour.md).
//
// Its body takes the struct of its op's launch arguments (ops/args) and a Launch, what it knows of its launch besides
// them; REPRISE_KERNEL (kernels/define.h) makes the CpuKernel of it. Nothing can fail, so there is no Status.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/thunk.h"

namespace reprise::cpu {

using CpuKernel = void (*)(const LaunchArgs& args, const LiveSizes& live, int thread, int threads);

inline OpaqueKernel opaque(CpuKernel kernel) { return reinterpret_cast<OpaqueKernel>(kernel); }

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// The contiguous share of `count` units that belongs to one thread.
inline Range share(int64_t count, int thread, int threads) {
  return {count * thread / threads, count * (thread + 1) / threads};
}

// The same with borders at multiples of `unit`.
inline Range share(int64_t count, int64_t unit, int thread, int threads) {
  const Range r = share((count + unit - 1) / unit, thread, threads);
  return {std::min(count, r.begin * unit), std::min(count, r.end * unit)};
}

struct Launch {
  const LiveSizes& live;
  int thread, threads;
  void* workspace;
  int64_t way;                            // LaunchArgs::way
  std::atomic<int32_t>* taken = nullptr;  // LaunchArgs::taken, by thread

  [[gnu::always_inline]] int64_t size(Dim d) const { return d.value(live); }
  [[gnu::always_inline]] Range share(int64_t count) const { return cpu::share(count, thread, threads); }
  [[gnu::always_inline]] Range share(int64_t count, int64_t unit) const {
    return cpu::share(count, unit, thread, threads);
  }
  // This thread's part of the workspace, of which every thread has so many bytes.
  template <class T>
  [[gnu::always_inline]] T* scratch(int64_t bytes) const {
    return reinterpret_cast<T*>(static_cast<char*>(workspace) + thread * bytes);
  }
};

// A kernel's body in its frame.
template <class A>
[[gnu::always_inline]] inline void enter(const LaunchArgs& args, const LiveSizes& live, int thread, int threads,
                                         void (*body)(const A&, const Launch&)) {
  body(args.as<A>(), Launch{live, thread, threads, args.workspace, args.way, args.taken});
}

}  // namespace reprise::cpu
