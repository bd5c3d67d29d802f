// How the calling thread's floating-point unit treats subnormals: kept, or flushed to zero while a kernel runs.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {

#if defined(__x86_64__)
using FloatMode = unsigned;
constexpr FloatMode kFlushResults = 0x8000u;  // subnormal results become zeros
constexpr FloatMode kFlushAll = 0x8040u;      // and subnormal operands count as zeros
inline FloatMode float_mode() { return _mm_getcsr(); }
inline void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
// One bit (FZ) flushes operands and results; ARMv8.2 has none for results alone.
using FloatMode = uint64_t;
constexpr FloatMode kFlushResults = uint64_t{1} << 24;
constexpr FloatMode kFlushAll = kFlushResults;
inline FloatMode float_mode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
  return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
#endif

}  // namespace reprise::cpu::REPRISE_ISA
