// The sums of packed_sums.h for many rows: a strip of columns becomes items in scratch memory once per block of rows,
// and the tiles of all rows read it there. The order of sums is the same.
//
// Tiles know nothing of formats but how long a block is and whether it has minima. For few rows the writing of a strip
// costs more than it saves: on AMD Zen 4 one store of a register in two cycles is the limit.
#pragma once

#include "backends/cpu/kernels/packed_sums.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows up to which every tile unpacks for itself. Measured in turn on AMD Zen 4, floats of AVX-512 on Emerald Rapids,
// which has no fast dot product of bf16, and those of AVX2 on AMD Zen 3; other processors, ARM among them, have the
// same numbers unmeasured.
template <class W, class P>
constexpr int64_t few_sum_rows() {
  if (W::kItems < kUnitK) return P::kBlockK < kUnitK ? 12 : 36;
  if (kRegisters == 32) return kLanes == 16 ? 8 : 12;
  if (kLanes == 8) {
    if (std::is_same_v<P, PackedQ8_0>) return 24;
    if (std::is_same_v<P, PackedQ2K> || std::is_same_v<P, PackedQ3K>) return 8;
    return std::is_base_of_v<PackedNibbles<0>, P> || std::is_base_of_v<PackedNibbles<8>, P> ? 16 : 4;
  }
  return P::kTwoParts || kHasPlanes<P> ? 6 : 36;
}

// Blocks of a strip at once: 16 KiB of items on AVX-512, which leaves room for x in the first-level cache.
template <class W, class P>
constexpr int64_t kStripBlocks = (kBlockDepth * kUnitK) / (W::kItems * P::kBlockK);

// A strip of blocks as tiles read it; items lie in Scratch.
struct StripFactors {
  static constexpr int64_t kMost = kBlockDepth / 8;
  alignas(64) float d[kMost * kStripColumns], m[kMost * kStripColumns];
};

template <class W, class P>
inline __attribute__((always_inline)) void write_strip(BlockWalk<P> at, int64_t blocks, int column, int width,
                                                       typename W::Item* items, StripFactors& factors) {
  constexpr int64_t kGroupItems = W::kItems * kGroupK / kUnitK;
  static_assert(kStripBlocks<W, P> <= StripFactors::kMost);
  for (int64_t i = 0; i < blocks; ++i, at.step())
    for (int j = 0; j < width; j += kLanes) {
      const Factors<P, 1> f(at, column + j);
      reg_store(factors.d + i * kStripColumns + j, f.d[0]);
      if constexpr (P::kMinimum) reg_store(factors.m + i * kStripColumns + j, f.m[0]);
      PackedAhead nothing;
      auto* to = items + i * (P::kBlockK / kGroupK) * kGroupItems * kStripColumns + j;
      each_group<P>(
          at.block, nothing, [&](int64_t, const uint8_t* group) __attribute__((always_inline)) {
            W::template write_pairs<P>(group, column + j, to);
            to += kGroupItems * kStripColumns;
          });
    }
}

// Rows of a strip's tile: with 32 registers the sums over blocks stay in registers beside those of a block.
// With 16, a minimum for each 16 k leaves no room for a sixth row.
template <int kItems, bool kMinimum>
constexpr int kStripSumRows = kRegisters == 16 && kItems == 16 && kMinimum ? 5 : 6;
constexpr bool kSumsStay = kRegisters == 32;

// c[m][0, NV * kLanes) += x[m] . strip over `blocks` blocks of kItems items; `resume` says that c holds sums already.
template <class W, int kItems, bool kMinimum, int MR, int NV>
void strip_sums_tile(const PairRows<W>& rows, const typename W::Item* strip, const StripFactors& factors,
                     int64_t blocks, float* c, bool resume, Ahead ahead) {
  constexpr int kStep = 4;
  RowsOfThree<typename W::Item, MR> x(rows.items, rows.stride);
  [[maybe_unused]] Reg sums[MR][NV];
  if constexpr (kSumsStay)
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) sums[m][j] = resume ? reg_load(c + m * kPanelColumns + j * kLanes) : reg_zero();
  for (int64_t i = 0; i < blocks; ++i) {
    Reg s[MR][NV];
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) s[m][j] = reg_zero();
#pragma GCC unroll 1
    for (int k = 0; k < kItems; k += kStep, strip += kStep * kStripColumns) {
      fetch_second_level(ahead.next);
      ahead.next += ahead.stride;
#pragma GCC unroll 4
      for (int u = 0; u < kStep; ++u) {
        typename W::Items b[NV];
#pragma GCC unroll 8
        for (int j = 0; j < NV; ++j) b[j] = W::read(strip + u * kStripColumns + j * kLanes);
#pragma GCC unroll 12
        for (int m = 0; m < MR; ++m) {
          const typename W::Items a = W::splat(x.of(m, u));
#pragma GCC unroll 8
          for (int j = 0; j < NV; ++j) s[m][j] = W::add(s[m][j], a, b[j]);
        }
      }
      x.step(kStep);
    }
    Reg d[NV], least[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      d[j] = reg_load(factors.d + i * kStripColumns + j * kLanes);
      least[j] = kMinimum ? reg_load(factors.m + i * kStripColumns + j * kLanes) : d[j];
    }
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m) {
      const Reg whole = kMinimum ? reg_splat(rows.sums[m * rows.stride + i]) : reg_zero();
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        float* to = c + m * kPanelColumns + j * kLanes;
        Reg sum = kSumsStay ? sums[m][j] : i > 0 || resume ? reg_load(to) : reg_zero();
        sum = reg_fma(d[j], s[m][j], sum);
        if constexpr (kMinimum) sum = reg_fma(least[j], whole, sum);
        if constexpr (kSumsStay)
          sums[m][j] = sum;
        else
          reg_store(to, sum);
      }
    }
  }
  if constexpr (kSumsStay)
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) reg_store(c + m * kPanelColumns + j * kLanes, sums[m][j]);
}

template <class W, int kItems, bool kMinimum, int MR = kStripSumRows<kItems, kMinimum>>
inline void strip_sums_rows(int rows, const PairRows<W>& x, const typename W::Item* strip, const StripFactors& factors,
                            int64_t blocks, float* c, int width, bool resume, Ahead ahead) {
  if (rows != MR) {
    if constexpr (MR > 1)
      strip_sums_rows<W, kItems, kMinimum, MR - 1>(rows, x, strip, factors, blocks, c, width, resume, ahead);
  } else if (width == kStripColumns) {
    strip_sums_tile<W, kItems, kMinimum, MR, 2>(x, strip, factors, blocks, c, resume, ahead);
  } else if constexpr (kLanes == 16) {
    strip_sums_tile<W, kItems, kMinimum, MR, 1>(x, strip, factors, blocks, c, resume, ahead);
  }
}

// All tiles of one strip; `bytes` from ahead on are fetched meanwhile, evenly.
template <class W, int kItems, bool kMinimum>
__attribute__((noinline)) void strip_sums(const PairRows<W>& x, int64_t rows, const typename W::Item* strip,
                                          const StripFactors& factors, int64_t blocks, float* c, int width, bool resume,
                                          const char* ahead, int64_t bytes) {
  constexpr int kRows = kStripSumRows<kItems, kMinimum>;
  const int tiles = static_cast<int>((rows + kRows - 1) / kRows);
  const int64_t steps = blocks * kItems / 4, tile_bytes = bytes / tiles;
  const int stride = static_cast<int>((tile_bytes + steps - 1) / steps);
  for (int t = 0; t < tiles; ++t) {
    const Range r = share(rows, t, tiles);
    strip_sums_rows<W, kItems, kMinimum>(static_cast<int>(r.end - r.begin), x.from(r.begin), strip, factors, blocks,
                                         c + r.begin * kPanelColumns, width, resume,
                                         {ahead + t * tile_bytes, 1, stride});
  }
}

// As sums_product().
template <class W, class P>
__attribute__((noinline)) void strips_product(const PackedPanel& a) {
  constexpr int kItems = static_cast<int>(W::kItems * P::kBlockK / kUnitK);
  const PairRows<W> x = rows_of<W>(a);
  const int64_t blocks = a.k / P::kBlockK;
  auto* strip = reinterpret_cast<typename W::Item*>(a.strip);
  StripFactors factors;
  for (int64_t b = 0; b < blocks; b += kStripBlocks<W, P>) {
    const int64_t n = std::min(kStripBlocks<W, P>, blocks - b), bytes = n * P::kBlockBytes;
    const BlockWalk<P> at(a.panel, b);
    const char* next = reinterpret_cast<const char*>(at.block) + bytes;
    for (int j = 0; j < a.columns; j += kStripColumns) {
      const int width = std::min(kStripColumns, a.columns - j);
      write_strip<W, P>(at, n, a.first + j, width, strip, factors);
      strip_sums<W, kItems, P::kMinimum>({x.items + b * kItems, x.sums + b, x.stride}, a.rows, strip, factors, n,
                                         a.c + j, width, b > 0, next + bytes * j / a.columns,
                                         bytes * width / a.columns);
    }
  }
}

template <class W>
PanelProduct sums_product_of(BlockFormat format) {
  PanelProduct product = nullptr;
  with_format(format, [&](auto p) {
    using P = decltype(p);
    product = [](const PackedPanel& a) {
      if (a.rows > few_sum_rows<W, P>()) return strips_product<W, P>(a);
      sums_product<W, P>(a);
    };
  });
  return product;
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
