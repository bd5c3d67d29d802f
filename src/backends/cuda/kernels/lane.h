// What a kernel is written in: numbers that round alike on the GPU and on the host, and the lane.
//
// A kernel is a struct that holds its arguments and has `template <class L> DEV void operator()(L& lane) const`. Its
// constants kThreads (an upper bound of the block) and kBlocks (blocks on one multiprocessor, for the register bound)
// are compile-time. A lane is one thread of the grid: DeviceLane below on a GPU; simt::Lane in the executor, which runs
// the same source on the host. Both have
//
//   thread() threads() block() blocks()         one-dimensional; block_y() blocks_y() where a grid has rows
//   shared()                                     dynamic shared memory, 128-byte aligned
//   sync() warp_sync()
//   shuffle_xor(v, mask) shuffle(v, lane)        all 32 lanes take part
//   prefetch(from, bytes)                        a multiple of 128 bytes of global memory into the L2 cache, some time
//   copy_async(to, from, bytes)                  16 bytes into shared memory, the part behind `bytes` zeros
//   commit_copies() wait_copies<N>()             until all but the last N groups have arrived; sync() comes after it
//   load_matrices<transposed>(r, row)            ldmatrix.x4: lane i gives the address of row i % 8 of matrix i / 8
//   mma(E, d, a, b)                              m16n8k16 of bf16 or f16, m16n8k32 of int8
//
// Two lines that look alike in both compilers are not the same sums: contraction is off, and fused products say fma().
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define DEV __device__ __forceinline__
#define HOST_DEV __host__ __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define KEEP_LOOP _Pragma("unroll 1")  // where unrolling would cost registers that sums need
#else
#include <cmath>
#include <stdexcept>

#include "base/half.h"
#define DEV inline
#define HOST_DEV inline
#define UNROLL
#define KEEP_LOOP
#endif

namespace reprise::cuda {

// x, as if it were read here: what follows from it is not computed ahead and kept in registers that sums need.
HOST_DEV int64_t read_here(int64_t x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(x));
#endif
  return x;
}

#if defined(__CUDACC__)
DEV float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEV float divide(float a, float b) { return __fdiv_rn(a, b); }
DEV float root(float a) { return __fsqrt_rn(a); }
DEV float float_of(uint32_t bits) { return __uint_as_float(bits); }
DEV uint32_t bits_of(float f) { return __float_as_uint(f); }
DEV float round_even(float f) { return rintf(f); }
DEV float bf16_to_float(uint16_t b) { return __uint_as_float(static_cast<uint32_t>(b) << 16); }
DEV uint16_t float_to_bf16(float f) {
  uint16_t b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f));
  return b;
}
DEV float half_to_float(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
DEV uint16_t float_to_half(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#else
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float divide(float a, float b) { return a / b; }
inline float root(float a) { return __builtin_sqrtf(a); }
inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }
inline float round_even(float f) { return __builtin_rintf(f); }
using reprise::bf16_to_float;
using reprise::float_to_bf16;
using reprise::float_to_half;
using reprise::half_to_float;
#endif

struct F32 {
  using Type = float;
  static DEV float load(float v) { return v; }
  static DEV float store(float v) { return v; }
};
struct BF16 {
  using Type = uint16_t;
  static DEV float load(uint16_t v) { return bf16_to_float(v); }
  static DEV uint16_t store(float v) { return float_to_bf16(v); }
};
struct F16 {
  using Type = uint16_t;
  static DEV float load(uint16_t v) { return half_to_float(v); }
  static DEV uint16_t store(float v) { return float_to_half(v); }
};

// Operands of integer products, and their sums, which are exact.
struct I8 {
  using Type = int8_t;
};
struct I32 {
  using Type = int32_t;
  static DEV int32_t store(int32_t v) { return v; }
};

// The value that a store and a load leave of it.
template <class E>
DEV float rounded(float v) {
  return E::load(E::store(v));
}

// Two neighbours in one register, the first in the low half.
template <class E>
DEV uint32_t pack_two(float first, float second) {
#if defined(__CUDA_ARCH__)
  uint32_t two;
  if constexpr (std::is_same_v<E, BF16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
  return two;
#else
  return static_cast<uint32_t>(E::store(first)) | static_cast<uint32_t>(E::store(second)) << 16;
#endif
}

struct alignas(16) Sixteen {
  uint32_t word[4];
};

// Where words begin. A GPU reads and writes them at multiples of their size alone; the host tells of other places.
template <class Word>
DEV void check_place([[maybe_unused]] const void* p) {
#if !defined(__CUDACC__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Word)) throw std::logic_error("words at no multiple of their size");
#endif
}
template <class Word>
DEV Word* words_at(char* p) {
  check_place<Word>(p);
  return reinterpret_cast<Word*>(p);
}
template <class Word>
DEV const Word* words_at(const char* p) {
  check_place<Word>(p);
  return reinterpret_cast<const Word*>(p);
}

// Eight numbers, by 16-byte accesses: p is aligned to them.
template <class E>
DEV void load_eight(const typename E::Type* p, float (&v)[8]) {
  if constexpr (sizeof(typename E::Type) == 2) {
    const Sixteen s = *reinterpret_cast<const Sixteen*>(p);
    UNROLL
    for (int i = 0; i < 8; ++i) v[i] = E::load(static_cast<uint16_t>(s.word[i / 2] >> (i % 2 * 16)));
  } else {
    UNROLL
    for (int h = 0; h < 2; ++h) {
      const Sixteen s = *reinterpret_cast<const Sixteen*>(p + h * 4);
      UNROLL
      for (int i = 0; i < 4; ++i) v[h * 4 + i] = float_of(s.word[i]);
    }
  }
}
template <class E>
DEV void store_eight(typename E::Type* p, const float (&v)[8]) {
  if constexpr (sizeof(typename E::Type) == 2) {
    Sixteen s;
    UNROLL
    for (int i = 0; i < 4; ++i) s.word[i] = pack_two<E>(v[2 * i], v[2 * i + 1]);
    *reinterpret_cast<Sixteen*>(p) = s;
  } else {
    UNROLL
    for (int h = 0; h < 2; ++h) {
      Sixteen s;
      UNROLL
      for (int i = 0; i < 4; ++i) s.word[i] = bits_of(v[h * 4 + i]);
      *reinterpret_cast<Sixteen*>(p + h * 4) = s;
    }
  }
}

// exp of what is not above 89: the CPU's exp_bounded (backends/cpu/kernels/exp.h), number by number the same.
DEV float exp_bounded(float x) {
  x = x < -104.0f ? -104.0f : x;
  const float n = round_even(x * 0x1.715476p+0f);
  float r = fma(n, -0x1.62e4p-1f, x);
  r = fma(n, -1.4286068e-6f, r);
  float q = 0x1.6d117cp-10f;
  q = fma(q, r, 0x1.120be2p-7f);
  q = fma(q, r, 0x1.555518p-5f);
  q = fma(q, r, 0x1.5554dcp-3f);
  q = fma(q, r, 0.5f);
  const float p = fma(r * r, q, r) + 1.0f;
  // Two factors, because 2^n alone may not be a normal number. The first product is exact.
  const int32_t k = x != x ? 0 : static_cast<int32_t>(n), first = k >> 1, second = k - first;
  return p * float_of(static_cast<uint32_t>(first + 127) << 23) * float_of(static_cast<uint32_t>(second + 127) << 23);
}
DEV float exp_of(float x) { return exp_bounded(x > 89.0f ? 89.0f : x); }

// 2^x of what is not above 127, within 1e-7 of it; below -127 it is 0, NaN stays. For the weights of attention, whose
// bits are this device's own: half the instructions of exp.
DEV float exp2_of(float x) {
  x = x < -127.0f ? -127.0f : x;
  const float magic = 0x1.8p+23f + 127.0f;  // adding it leaves round(x) + 127 in the lowest bits
  const float t = x + magic, f = x - (t - magic);
  float q = 0x1.44138ap-13f;  // (2^f - 1) / f at Chebyshev nodes of [-1/2, 1/2]
  q = fma(q, f, 0x1.5f0890p-10f);
  q = fma(q, f, 0x1.3b2a54p-7f);
  q = fma(q, f, 0x1.c6af6cp-5f);
  q = fma(q, f, 0x1.ebfbe0p-3f);
  q = fma(q, f, 0x1.62e430p-1f);
  return fma(f, q, 1.0f) * float_of(bits_of(t) << 23);
}

// x / (1 + exp(-x)) as the CPU writes it.
DEV float silu_of(float x) {
  const float e = exp_bounded(float_of(bits_of(x) | 0x80000000u));
  const float bounded = x > -200.0f ? x : -200.0f;
  return divide(x < 0 ? bounded * e : x, e + 1.0f);
}

// Half to even, clamped; NaN gives 0.
DEV int8_t to_i8(float v) {
  if (!(v == v)) return 0;
  v = v > 127.0f ? 127.0f : v;
  v = v < -128.0f ? -128.0f : v;
  return static_cast<int8_t>(static_cast<int32_t>(round_even(v)));
}

template <class T>
HOST_DEV constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
HOST_DEV constexpr T greater(T a, T b) {
  return a > b ? a : b;
}

// The sum over the warp's lanes by xor 16, 8, 4, 2, 1: every lane gets the same bits.
template <class L>
DEV float warp_sum(L& lane, float v) {
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) v = v + lane.shuffle_xor(v, mask);
  return v;
}
template <class L>
DEV float warp_max(L& lane, float v) {
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) {
    const float other = lane.shuffle_xor(v, mask);
    v = other > v ? other : v;
  }
  return v;
}

// The sum over a block: each warp's by warp_sum, then the warps' in ascending order. `scratch` is 32 floats of shared
// memory that nothing else uses; the block is whole warps.
template <class L>
DEV float block_sum(L& lane, float v, float* scratch) {
  v = warp_sum(lane, v);
  const int warps = lane.threads() / 32;
  if (warps == 1) return v;
  if (lane.thread() % 32 == 0) scratch[lane.thread() / 32] = v;
  lane.sync();
  float sum = scratch[0];
  for (int w = 1; w < warps; ++w) sum = sum + scratch[w];
  lane.sync();
  return sum;
}
template <class L>
DEV float block_max(L& lane, float v, float* scratch) {
  v = warp_max(lane, v);
  const int warps = lane.threads() / 32;
  if (warps == 1) return v;
  if (lane.thread() % 32 == 0) scratch[lane.thread() / 32] = v;
  lane.sync();
  float top = scratch[0];
  for (int w = 1; w < warps; ++w) top = scratch[w] > top ? scratch[w] : top;
  lane.sync();
  return top;
}

#if defined(__CUDACC__)

class DeviceLane {
 public:
  DEV int thread() const { return static_cast<int>(threadIdx.x); }
  DEV int threads() const { return static_cast<int>(blockDim.x); }
  DEV int block() const { return static_cast<int>(blockIdx.x); }
  DEV int blocks() const { return static_cast<int>(gridDim.x); }
  DEV int block_y() const { return static_cast<int>(blockIdx.y); }
  DEV int blocks_y() const { return static_cast<int>(gridDim.y); }
  DEV char* shared() const {
    extern __shared__ __align__(128) char dynamic_shared[];
    return dynamic_shared;
  }
  DEV void sync() { __syncthreads(); }
  DEV void warp_sync() { __syncwarp(); }
  template <class T>
  DEV T shuffle_xor(T v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
  }
  template <class T>
  DEV T shuffle(T v, int from) {
    return __shfl_sync(0xffffffffu, v, from);
  }
  DEV void prefetch(const char* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from), "r"(bytes) : "memory");
#else
    for (int i = 0; i < bytes; i += 128) asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from + i));
#endif
  }
  DEV void copy_async(void* to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(address(to)), "l"(from), "r"(bytes)
                 : "memory");
  }
  DEV void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
  template <int kLeft>
  DEV void wait_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
  }
  template <bool kTransposed>
  DEV void load_matrices(uint32_t (&r)[4], const void* row) {
    if constexpr (kTransposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address(row))
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address(row))
                   : "memory");
  }
  DEV void mma(BF16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  DEV void mma(F16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  DEV void mma(I8, int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

 private:
  static DEV uint32_t address(const void* shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }
};

#endif

}  // namespace reprise::cuda
