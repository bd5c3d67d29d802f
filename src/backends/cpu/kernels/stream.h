// Stores past the caches, for results that nobody reads soon: the line is not read first, and takes no place in them.
// Include this in kernels/*.cpp only.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {

// `p` is at a multiple of 64 bytes. Other threads see what was stored so once stream_end() was called. Processors
// without such stores do the usual ones.
inline void stream(float* p, F32x16 v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, reinterpret_cast<__m512>(v));
#elif defined(REPRISE_TWO_REGISTERS)
  _mm256_stream_ps(p, reinterpret_cast<__m256>(v.low));
  _mm256_stream_ps(p + 8, reinterpret_cast<__m256>(v.high));
#elif defined(__x86_64__)
  float lanes[16];
  store(lanes, v);
  for (int i = 0; i < 16; i += 4) _mm_stream_ps(p + i, _mm_loadu_ps(lanes + i));
#else
  store(p, v);
#endif
}

inline void stream_end() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace reprise::cpu::REPRISE_ISA
