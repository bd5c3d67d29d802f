// TileUnit: the eight tile registers of AMX while one kernel uses them, each of 16 rows of 64 bytes.
//
// Two units with the same bits: the processor's, and one in plain C++ for the set `amx-emulated`. Registers are numbers
// known at compile time. `dot_i8` adds, for each of 16 x 16 results, 64 products of signed bytes, exactly.
// `dot_bf16` adds 32 products: two chains of 16 multiply-adds in fp32 from 0, over the even and over the odd k; then
// one sum is added to the other and that to the result. Subnormals are zeros: of the emulation where FlushSubnormals
// lives. The right operand has four neighbouring bytes of k side by side, 16 columns a row, as panel64 has them.
//
// The unit is configured and released within a kernel: the state is the thread's, and other code knows nothing of it.
// A thread has one at a time.
//
// Registers are whole unless shape() says less of them: registers 0, 1 and 4 have `first` rows, 2, 3 and 5 `second`,
// and 0 to 3, 6 and 7 are `columns` words wide. Nothing beyond that is read or written.
// Include this where REPRISE_TILES is set: 1 for the instructions, 2 for the emulation. Internal linkage.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int kUnitRows = 16, kUnitRowBytes = 64, kUnitBytes = kUnitRows * kUnitRowBytes;

constexpr bool unit_is_left(int tile) { return tile == 4 || tile == 5; }
constexpr int unit_rows(int tile, int first, int second) {
  return tile >= 6 ? kUnitRows : tile == 0 || tile == 1 || tile == 4 ? first : second;
}

#if REPRISE_TILES == 1

// Assembly, because the intrinsics of GCC 12 do not say which memory they read.
class TileUnit {
 public:
  TileUnit() { shape(kUnitRows, kUnitRows, kUnitRows); }
  ~TileUnit() { asm volatile("tilerelease"); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  void shape(int first, int second, int columns) {
    const int key = first | second << 8 | columns << 16;
    if (key == shape_) return;
    shape_ = key;
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = static_cast<uint16_t>(unit_is_left(t) ? kUnitRowBytes : 4 * columns);
      config.rows[t] = static_cast<uint8_t>(unit_rows(t, first, second));
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }

  // Reads a line and drops it.
  static void touch(const void* p) {
    asm volatile("vmovdqu64 %0, %%zmm31" ::"m"(*static_cast<const uint8_t(*)[64]>(p)) : "xmm31");
  }

  template <int kTile>
  void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // The same of what is not read again soon: it need not stay in the first-level cache.
  template <int kTile>
  void load_once(const void* p, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
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

 private:
  int shape_ = 0;
};

#else

class TileUnit {
 public:
  TileUnit() = default;
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  static void touch(const void*) {}

  void shape(int first, int second, int columns) {
    first_ = first;
    second_ = second;
    columns_ = columns;
  }

  template <int kTile>
  void clear() {
    std::memset(row(kTile, 0), 0, kUnitBytes);
  }
  template <int kTile>
  void load(const void* p, int64_t stride) {
    clear<kTile>();
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(row(kTile, r), static_cast<const uint8_t*>(p) + r * stride, row_bytes(kTile));
  }
  template <int kTile>
  void load_once(const void* p, int64_t stride) {
    load<kTile>(p, stride);
  }
  template <int kTile>
  void store(void* p, int64_t stride) const {
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(static_cast<uint8_t*>(p) + r * stride, row(kTile, r), row_bytes(kTile));
  }
  // Sums wrap.
  template <int kSum, int kA, int kB>
  void dot_i8() {
    for (int m = 0; m < kUnitRows; ++m) {
      uint32_t sum[kUnitRows];
      std::memcpy(sum, row(kSum, m), sizeof sum);
      for (int g = 0; g < kUnitRows; ++g) {
        int8_t a[4], b[kUnitRowBytes];
        std::memcpy(a, row(kA, m) + 4 * g, sizeof a);
        std::memcpy(b, row(kB, g), sizeof b);
        for (int n = 0; n < kUnitRows; ++n)
          for (int i = 0; i < 4; ++i) sum[n] += static_cast<uint32_t>(a[i] * b[4 * n + i]);
      }
      std::memcpy(row(kSum, m), sum, sizeof sum);
    }
  }
  template <int kSum, int kA, int kB>
  void dot_bf16() {
    for (int m = 0; m < kUnitRows; ++m) {
      float even[kUnitRows] = {}, odd[kUnitRows] = {}, sum[kUnitRows];
      for (int g = 0; g < kUnitRows; ++g) {
        uint32_t a, b[kUnitRows];
        std::memcpy(&a, row(kA, m) + 4 * g, sizeof a);
        std::memcpy(b, row(kB, g), sizeof b);
        for (int n = 0; n < kUnitRows; ++n) {
          even[n] = __builtin_fmaf(even_half(a), even_half(b[n]), even[n]);
          odd[n] = __builtin_fmaf(odd_half(a), odd_half(b[n]), odd[n]);
        }
      }
      std::memcpy(sum, row(kSum, m), sizeof sum);
      for (int n = 0; n < kUnitRows; ++n) sum[n] = sum[n] + (even[n] + odd[n]);
      std::memcpy(row(kSum, m), sum, sizeof sum);
    }
  }

 private:
  static float as_float(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }
  static float even_half(uint32_t pair) { return as_float(pair << 16); }
  static float odd_half(uint32_t pair) { return as_float(pair & 0xffff0000u); }
  int rows(int tile) const { return unit_rows(tile, first_, second_); }
  size_t row_bytes(int tile) const { return unit_is_left(tile) ? kUnitRowBytes : 4 * static_cast<size_t>(columns_); }
  uint8_t* row(int tile, int r) { return bytes_ + tile * kUnitBytes + r * kUnitRowBytes; }
  const uint8_t* row(int tile, int r) const { return bytes_ + tile * kUnitBytes + r * kUnitRowBytes; }

  int first_ = kUnitRows, second_ = kUnitRows, columns_ = kUnitRows;
  alignas(64) uint8_t bytes_[8 * kUnitBytes];
};

#endif

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
