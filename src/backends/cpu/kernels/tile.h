// Register tiles of a matrix product: MR rows of x times NV registers of weight columns, every accumulator in a
// register.
//
// An output element is one chain of fused multiply-adds over k, starting at 0. Accumulators are kept in fp32 in `c`
// between blocks of k, so blocking never changes a bit, and neither do the tile's shape and the number of rows.
//
// Weights lie as the panel64 layout has them (backends/cpu/layout.h): 64 columns wide, k-major, bf16 in pairs of k. In
// a bf16 pair the odd k is added before the even one and subnormals are zeros: that is what vdpbf16ps does, so the
// instruction and its emulation give the same bits, and the faster one may be taken on each processor.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/cpu/kernels/float_mode.h"
#include "backends/cpu/kernels/simd.h"
#include "backends/cpu/kernels/vector_register.h"

namespace reprise::cpu::REPRISE_ISA {

constexpr int kPanelColumns = 64;

// Sums of some rows and columns of a product, rows `apart` numbers apart. There is room up to a multiple of 16 columns.
template <class Sum>
struct Sums {
  Sum* at;
  int64_t rows, apart;
  int columns;
};
constexpr int kTileRows = 6;  // 6 x 4 accumulators leave 8 of 32 registers; 6 x 2 leave 4 of 16

constexpr int kStripRows = kRegisters == 32 ? 12 : 6;

// Weight storages. A step takes kDepth values of k in kParts multiply-adds; `Elem` is what a panel holds, `X` what one
// row of x holds per part.
struct WeightF32 {
  using Elem = float;
  using X = float;
  static constexpr int kDepth = 1, kParts = 1;
  static constexpr bool kDot = false;
  template <int kPart>
  static Reg load(const float* w, int column) {
    return reg_load(w + column);
  }
};
struct WeightF16 {
  using Elem = uint16_t;
  using X = float;
  static constexpr int kDepth = 1, kParts = 1;
  static constexpr bool kDot = false;
  template <int kPart>
  static Reg load(const uint16_t* w, int column) {
    return reg_f16(w + column);
  }
};
// x is in fp32 with the two values of a pair swapped: odd first, in the order of use.
struct WeightBf16 {
  using Elem = uint16_t;
  using X = float;
  static constexpr int kDepth = 2, kParts = 2;
  static constexpr bool kDot = false;
  template <int kPart>
  static Reg load(const uint16_t* w, int column) {
    return kPart == 0 ? reg_odd_bf16(w + 2 * column) : reg_even_bf16(w + 2 * column);
  }
};
// x stays in bf16, a pair is one word. Only sets with vdpbf16ps have it.
struct WeightBf16Dot {
  using Elem = uint16_t;
  using X = uint32_t;
  static constexpr int kDepth = 2, kParts = 1;
  static constexpr bool kDot = true;
  template <int kPart>
  static Reg load(const uint16_t* w, int column) {
    return reg_load(reinterpret_cast<const float*>(w + 2 * column));
  }
};

// A strip is two registers wide: the tiles of many rows are tall and narrow, because what a step loads of x costs no
// arithmetic unit and what it widens of the weights does. The first tile of a strip leaves the widened weights behind
// in the order of use, the others read those.
constexpr int kStripColumns = 2 * kLanes;
struct WeightStrip {
  using Elem = float;
  using X = float;
  static constexpr int kDepth = 1, kParts = 1;
  static constexpr bool kDot = false;
  template <int kPart>
  static Reg load(const float* w, int column) {
    return reg_load(w + column);
  }
};

// Elements of a panel per step.
template <class W>
constexpr int64_t kStepElems = static_cast<int64_t>(kPanelColumns) * W::kDepth;
template <>
inline constexpr int64_t kStepElems<WeightStrip> = kStripColumns;

// What a tile fetches into the second-level cache on the way: `lines` cache lines per step, `stride` bytes further each
// step.
struct Ahead {
  const char* next = nullptr;
  int lines = 0;
  int stride = 0;
};

// Rows of x by threes: a load reaches three of them from one pointer, and few pointers stay in registers. The compiler
// must not know how they lie to each other, or it makes a stride for every row and keeps those in memory.
template <class X, int MR>
struct RowsOfThree {
  static constexpr int kPointers = (MR + 2) / 3;
  const X* at[kPointers];
  int64_t ldx;
  RowsOfThree(const X* x, int64_t stride) : ldx(stride) {
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) {
      at[i] = x + 3 * i * stride;
      asm("" : "+r"(at[i]));
    }
  }
  const X& of(int m, int part) const { return at[m / 3][m % 3 * ldx + part]; }
  void step(int parts) {
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) at[i] += parts;
  }
};

template <class W, int MR, int NV, int kPart, bool kKeep>
inline void tile_part(Reg (&acc)[MR][NV], const RowsOfThree<typename W::X, MR>& x, const typename W::Elem* w,
                      float* keep) {
  Reg b[NV];
#pragma GCC unroll 8
  for (int j = 0; j < NV; ++j) {
    b[j] = W::template load<kPart>(w, j * kLanes);
    if constexpr (kKeep) reg_store(keep + j * kLanes, b[j]);
  }
#pragma GCC unroll 12
  for (int m = 0; m < MR; ++m) {
    if constexpr (W::kDot) {
#if defined(__AVX512BF16__)
      int word;
      std::memcpy(&word, &x.of(m, kPart), 4);
      const __m512i a = _mm512_set1_epi32(word);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j)
        acc[m][j] = _mm512_dpbf16_ps(acc[m][j], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b[j]));
#endif
    } else {
      const Reg a = reg_splat(x.of(m, kPart));
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[m][j] = reg_fma(a, b[j], acc[m][j]);
    }
  }
}

// c[m][0, NV * kLanes) += x[m] . w over `steps` steps; `resume` says that c holds the sums of earlier blocks. Rows of c
// are kPanelColumns apart. With kStrip it is a tile of a strip, which fetches one line a step, and with kKeep it leaves
// the weights in `keep`. Every loop over the accumulators is unrolled early, or GCC 12 keeps them in memory.
template <class W, int MR, int NV, bool kStrip = false, bool kKeep = false>
void tile(const typename W::X* x, int64_t ldx, const typename W::Elem* w, int64_t steps, float* c, bool resume,
          Ahead ahead, float* keep = nullptr) {
  Reg acc[MR][NV];
#pragma GCC unroll 12
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[m][j] = resume ? reg_load(c + m * kPanelColumns + j * kLanes) : reg_zero();
  RowsOfThree<typename W::X, MR> rows(x, ldx);
  for (int64_t s = 0; s < steps; ++s) {
    if constexpr (kStrip)
      fetch_second_level(ahead.next);
    else
      for (int i = 0; i < ahead.lines; ++i) fetch_second_level(ahead.next + 64 * i);
    ahead.next += ahead.stride;
    tile_part<W, MR, NV, 0, kKeep>(acc, rows, w, keep);
    if constexpr (W::kParts == 2) tile_part<W, MR, NV, 1, kKeep>(acc, rows, w, keep + kStripColumns);
    if constexpr (kKeep) keep += W::kParts * kStripColumns;
    rows.step(W::kParts);
    w += kStepElems<W>;
  }
#pragma GCC unroll 12
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) reg_store(c + m * kPanelColumns + j * kLanes, acc[m][j]);
}

// Registers across for MR rows: enough independent chains to hide the latency of an FMA, few enough to stay in
// registers.
constexpr int tile_registers(int rows) {
  if (rows == 1 && kLanes < 16) return 8;
  return kRegisters == 32 || rows == 2 ? 4 : 2;
}
// Rows whose tiles are as wide as a panel, so that they read it once.
constexpr int kPanelWideRows = tile_registers(kTileRows) * kLanes == kPanelColumns ? kTileRows
                               : tile_registers(1) * kLanes == kPanelColumns       ? 1
                                                                                   : 0;

// The same for `columns` columns, a multiple of 16.
template <class W, int MR, int NV = tile_registers(MR)>
inline void tile_columns(const typename W::X* x, int64_t ldx, const typename W::Elem* w, int64_t steps, float* c,
                         int columns, bool resume, Ahead ahead) {
  constexpr int kWidth = NV * kLanes;
  constexpr int kElems = W::kDepth;
  while (columns >= kWidth) {
    // Each pass fetches a part, one after the other: else memory would rest in all but the first.
    const int passes = (columns + kWidth - 1) / kWidth, lines = (ahead.lines + passes - 1) / passes;
    const bool runs = ahead.lines * 64 == ahead.stride;
    tile<W, MR, NV>(x, ldx, w, steps, c, resume, {ahead.next, lines, runs ? 64 * lines : ahead.stride});
    ahead.next += 64 * lines * (runs ? steps : 1);
    ahead.lines -= lines;
    if (runs) ahead.stride -= 64 * lines;
    w += kWidth * kElems;
    c += kWidth;
    columns -= kWidth;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) tile_columns<W, MR, NV / 2>(x, ldx, w, steps, c, columns, resume, ahead);
}

template <class W>
inline void tile_rows(int rows, const typename W::X* x, int64_t ldx, const typename W::Elem* w, int64_t steps, float* c,
                      int columns, bool resume, Ahead ahead) {
  switch (rows) {
    case 1: return tile_columns<W, 1>(x, ldx, w, steps, c, columns, resume, ahead);
    case 2: return tile_columns<W, 2>(x, ldx, w, steps, c, columns, resume, ahead);
    case 3: return tile_columns<W, 3>(x, ldx, w, steps, c, columns, resume, ahead);
    case 4: return tile_columns<W, 4>(x, ldx, w, steps, c, columns, resume, ahead);
    case 5: return tile_columns<W, 5>(x, ldx, w, steps, c, columns, resume, ahead);
    case 6: return tile_columns<W, 6>(x, ldx, w, steps, c, columns, resume, ahead);
    default: return;
  }
}

// A tile of a strip: `columns` is kStripColumns or half of it where that still is 16 or more.
template <class W, bool kKeep, int MR = kStripRows>
inline void strip_rows(int rows, const typename W::X* x, int64_t ldx, const typename W::Elem* w, int64_t steps,
                       float* c, int columns, bool resume, Ahead ahead, float* keep) {
  if (rows != MR) {
    if constexpr (MR > 1) strip_rows<W, kKeep, MR - 1>(rows, x, ldx, w, steps, c, columns, resume, ahead, keep);
  } else if (columns == kStripColumns) {
    tile<W, MR, 2, true, kKeep>(x, ldx, w, steps, c, resume, ahead, keep);
  } else if constexpr (kLanes == 16) {
    tile<W, MR, 1, true, kKeep>(x, ldx, w, steps, c, resume, ahead, keep);
  }
}

// Subnormals count as zeros while it lives, as vdpbf16ps has it.
class FlushSubnormals {
 public:
  FlushSubnormals() : saved_(float_mode()) { set_float_mode(saved_ | kFlushAll); }
  ~FlushSubnormals() { set_float_mode(saved_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  FloatMode saved_;
};

}  // namespace reprise::cpu::REPRISE_ISA
