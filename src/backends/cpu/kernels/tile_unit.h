// TileUnit: the eight tile registers of AMX while one kernel uses them, each of 16 rows of 64 bytes.
//
// Two units with the same bits: the processor's, and one written in AVX-512 for the set `amx-emulated`. Registers are
// numbers known at compile time. `dot_i8` adds, for each of 16 x 16 results, 64 products of signed bytes, exactly.
// `dot_bf16` adds 32 products: two chains of 16 multiply-adds in fp32 from 0, over the even and over the odd k; then
// one sum is added to the other and that to the result. Subnormals are zeros: of the emulation where FlushSubnormals
// lives. The right operand has four neighbouring bytes of k side by side, 16 columns a row, as panel64 has them.
//
// The unit is configured and released within a kernel: the state is the thread's, and other code knows nothing of it.
// Include this where REPRISE_TILES is set: 1 for the instructions, 2 for the emulation. Internal linkage.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int kUnitRows = 16, kUnitRowBytes = 64, kUnitBytes = kUnitRows * kUnitRowBytes;

#if REPRISE_TILES == 1

// Assembly, because the intrinsics of GCC 12 do not say which memory they read.
class TileUnit {
 public:
  TileUnit() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = kUnitRowBytes;
      config.rows[t] = kUnitRows;
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileUnit() { asm volatile("tilerelease"); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  template <int kTile>
  void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* p, int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  void dot_i8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

#else

class TileUnit {
 public:
  TileUnit() = default;
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  template <int kTile>
  void clear() {
    for (int r = 0; r < kUnitRows; ++r) _mm512_store_si512(row(kTile, r), _mm512_setzero_si512());
  }
  template <int kTile>
  void load(const void* p, int64_t stride) {
    for (int r = 0; r < kUnitRows; ++r)
      _mm512_store_si512(row(kTile, r), _mm512_loadu_si512(static_cast<const uint8_t*>(p) + r * stride));
  }
  template <int kTile>
  void store(void* p, int64_t stride) const {
    for (int r = 0; r < kUnitRows; ++r)
      _mm512_storeu_si512(static_cast<uint8_t*>(p) + r * stride, _mm512_load_si512(row(kTile, r)));
  }
  // Bytes widened to 16 bits, even and odd ones apart: vpdpbusd would take one side without a sign.
  template <int kSum, int kA, int kB>
  void dot_i8() {
    for (int m = 0; m < kUnitRows; ++m) {
      __m512i sum = _mm512_load_si512(row(kSum, m));
      for (int g = 0; g < kUnitRows; ++g) {
        const __m512i a = word(kA, m, g), b = _mm512_load_si512(row(kB, g));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(even_bytes(a), even_bytes(b)));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(odd_bytes(a), odd_bytes(b)));
      }
      _mm512_store_si512(row(kSum, m), sum);
    }
  }
  template <int kSum, int kA, int kB>
  void dot_bf16() {
    for (int m = 0; m < kUnitRows; ++m) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      for (int g = 0; g < kUnitRows; ++g) {
        const __m512i a = word(kA, m, g), b = _mm512_load_si512(row(kB, g));
        even = _mm512_fmadd_ps(even_half(a), even_half(b), even);
        odd = _mm512_fmadd_ps(odd_half(a), odd_half(b), odd);
      }
      auto* to = reinterpret_cast<float*>(row(kSum, m));
      _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(even, odd)));
    }
  }

 private:
  static __m512i even_bytes(__m512i v) { return _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8); }
  static __m512i odd_bytes(__m512i v) { return _mm512_srai_epi16(v, 8); }
  static __m512 even_half(__m512i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
  static __m512 odd_half(__m512i v) {
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  uint8_t* row(int tile, int r) { return bytes_ + tile * kUnitBytes + r * kUnitRowBytes; }
  const uint8_t* row(int tile, int r) const { return bytes_ + tile * kUnitBytes + r * kUnitRowBytes; }
  __m512i word(int tile, int r, int g) const {
    int32_t w;
    std::memcpy(&w, row(tile, r) + 4 * g, sizeof w);
    return _mm512_set1_epi32(w);
  }

  alignas(64) uint8_t bytes_[8 * kUnitBytes];
};

#endif

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
