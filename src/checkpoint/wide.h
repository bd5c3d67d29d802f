// wide: lets one plain loop be compiled twice, for the baseline instruction set and for AVX2, and picks at run time.
// The loop's source is the same and nothing fuses multiply and add, so the bits are the same; AVX2 is only faster. The
// body is a callable whose operator() is marked REPRISE_INLINE. Pure, any thread.
#pragma once

#define REPRISE_INLINE __attribute__((always_inline)) inline

namespace reprise::checkpoint {

#if defined(__x86_64__)
template <typename Body, typename... Args>
__attribute__((target("avx2"))) void run_avx2(Args... args) {
  Body()(args...);
}
#endif

template <typename Body, typename... Args>
void run_wide(Args... args) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return run_avx2<Body>(args...);
#endif
  Body()(args...);
}

}  // namespace reprise::checkpoint
