// spin_pause: what a loop that waits for another thread executes in each round, so that it takes less of a shared core.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise {

// Some 15 to 60 ns.
inline void spin_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  // YIELD does nothing on cores with one thread; a barrier of the instruction stream takes about as long as PAUSE.
  asm volatile("isb" ::: "memory");
#else
#error "no instruction for a waiting loop is known for this processor"
#endif
}

}  // namespace reprise
