// Products of bf16 rows with weights in GGUF blocks on the tile registers of AMX: the bits of the product with the same
// weights unpacked (unit_products.h), because a weight becomes the same bf16 number (unit_unpack.h) and sums have the
// order of that unit.
//
// For many rows a strip of kUnitStripDepth steps of k is unpacked once, into scratch memory, and all tiles of rows use
// it, two by two, while those of x stay close. The first two multiply while it is unpacked, a step behind. Where there
// is one pass over the weights, because there are at most two tiles of rows, two steps of scratch memory are all it
// takes. How many rows and columns there are never changes a bit.
//
// Unpacking takes as long as the products with about six tiles of rows: it is what one row waits for, as long as the
// weights come from a cache.
#pragma once

#include "backends/cpu/kernels/unit_blocks_shape.h"
#include "backends/cpu/kernels/unit_products.h"
#include "backends/cpu/kernels/unit_unpack.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kBlocksAhead = 4096;  // how far ahead a single pass over the weights fetches

// Steps of one panel at some of its columns, times kR tiles of rows.
struct UnitBlocksPass {
  const uint8_t* x;
  UnpackStep unpack;
  const uint8_t* panel;
  int64_t first, steps;  // of the panel
  int column;            // of the panel
  uint8_t* strip;
  int64_t slots;  // steps that the strip holds, a power of two
  float* c;
  bool resume;
  const char* next;  // what is fetched with each step that is unpacked
  int64_t step_bytes;
};

template <int kR, int kC, bool kUnpack>
__attribute__((noinline)) void unit_blocks_pass(TileUnit& unit, const UnitBlocksPass& b) {
  static_assert(kR * kC <= 4);
  constexpr int64_t kSumStride = 4 * kPanelColumns;
  constexpr int kA = 4, kB = kR == 2 ? 6 : 5;
  const auto each_sum = [&](const auto& f) __attribute__((always_inline)) {
    [&]<int... kI>(std::integer_sequence<int, kI...>) __attribute__((always_inline)) {
      (f(std::integral_constant<int, kI>{}, b.c + kI / kC * kUnitRows * kPanelColumns + kI % kC * 16), ...);
    }
    (std::make_integer_sequence<int, kR * kC>{});
  };
  each_sum([&](auto i, float* at) __attribute__((always_inline)) {
    if (b.resume)
      unit.load<i.value>(at, kSumStride);
    else
      unit.clear<i.value>();
  });
  const uint8_t* x = b.x;
  const char* next = b.next;
  const auto slot = [&](int64_t s) { return b.strip + (s & (b.slots - 1)) * kC * kUnitBytes; };
  const auto unpack = [&](int64_t s) __attribute__((always_inline)) {
    for (int64_t line = 0; line < b.step_bytes; line += 64) fetch_second_level(next + line);
    next += b.step_bytes;
    b.unpack(b.panel, b.first + s, b.column, kC, slot(s));
  };
  if (kUnpack) unpack(0);
  for (int64_t s = 0; s < b.steps; ++s) {
    if (kUnpack && s + 1 < b.steps) unpack(s + 1);
    const uint8_t* w = slot(s);
    unit.load<kA>(x, kUnitRowBytes);
    if constexpr (kR == 2) unit.load<kA + 1>(x + kUnitBytes, kUnitRowBytes);
    [&]<int... kJ>(std::integer_sequence<int, kJ...>) __attribute__((always_inline)) {
      (([&]() __attribute__((always_inline)) {
         constexpr int kRight = kR == 2 ? kB + kJ : kB + kJ % 3;
         unit.load<kRight>(w + kJ * kUnitBytes, kUnitRowBytes);
         unit.dot_bf16<kJ, kA, kRight>();
         if constexpr (kR == 2) unit.dot_bf16<kC + kJ, kA + 1, kRight>();
       }()),
       ...);
    }
    (std::make_integer_sequence<int, kC>{});
    x += kR * kUnitBytes;
  }
  each_sum([&](auto i, float* at) __attribute__((always_inline)) { unit.store<i.value>(at, kSumStride); });
}

// Packed rows and one panel: `columns` columns, a multiple of 16, from `first` on. Sums lie kPanelColumns apart.
struct UnitBlocksPanel {
  const uint8_t* x;
  int64_t rows, steps;
  Unpacking weights;
  const uint8_t* panel;
  int first, columns;
  uint8_t* strip;
  float* sums;
};

// One or two tiles of rows: every step of k of some columns at once.
template <int kR, int kWidth = kR == 1 ? 4 : 2>
void unit_blocks_single(TileUnit& unit, const UnitBlocksPanel& a, int column) {
  const int left = (a.columns - column) / 16;
  if (left <= 0) return;
  if (left >= kWidth) {
    const int64_t step_bytes = a.weights.panel_bytes / a.steps * kWidth / 4;
    const char* next = reinterpret_cast<const char*>(a.panel) + a.weights.panel_bytes * column / kPanelColumns;
    unit_blocks_pass<kR, kWidth, true>(unit, {a.x, a.weights.step, a.panel, 0, a.steps, a.first + column, a.strip, 2,
                                              a.sums + column, false, next + kBlocksAhead, step_bytes});
    return unit_blocks_single<kR, kWidth>(unit, a, column + 16 * kWidth);
  }
  if constexpr (kWidth > 1) unit_blocks_single<kR, kWidth / 2>(unit, a, column);
}

// Two tiles of rows, or one: the first ones of a strip unpack it.
template <int kC>
void unit_blocks_rows(TileUnit& unit, const UnitBlocksPass& b, bool first, bool two) {
  if (first) return unit_blocks_pass<2, kC, true>(unit, b);
  two ? unit_blocks_pass<2, kC, false>(unit, b) : unit_blocks_pass<1, kC, false>(unit, b);
}

__attribute__((noinline)) void unit_blocks_panel(TileUnit& unit, const UnitBlocksPanel& a) {
  const int64_t tiles = (a.rows + 15) / 16, step_bytes = a.weights.panel_bytes / a.steps;
  if (tiles == 1) return unit_blocks_single<1>(unit, a, 0);
  if (tiles == 2) return unit_blocks_single<2>(unit, a, 0);
  for (int64_t s = 0; s < a.steps; s += kUnitStripDepth) {
    const int64_t n = std::min(kUnitStripDepth, a.steps - s);
    const char* next = reinterpret_cast<const char*>(a.panel) + (s + n) * step_bytes;
    for (int64_t t = 0; t < tiles; t += 2)
      for (int j = 0; j < a.columns; j += 32) {
        const UnitTile tile(t, tiles, a.steps);
        const UnitBlocksPass b{a.x + tile.at + s * tile.step,
                               a.weights.step,
                               a.panel,
                               s,
                               n,
                               a.first + j,
                               a.strip + j / 16 * kUnitStripDepth * kUnitBytes,
                               kUnitStripDepth,
                               a.sums + t * kUnitRows * kPanelColumns + j,
                               s > 0,
                               next + n * step_bytes * j / kPanelColumns,
                               step_bytes / 2};
        a.columns - j >= 32 ? unit_blocks_rows<2>(unit, b, t == 0, t + 1 < tiles)
                            : unit_blocks_rows<1>(unit, b, t == 0, t + 1 < tiles);
      }
  }
}

// A thread's scratch memory for blocks of so many rows.
struct UnitBlocksScratch : UnitScratch<UnitBf16> {
  uint8_t* strip;
  UnitBlocksScratch(uint8_t* bytes, int64_t block, int64_t k)
      : UnitScratch<UnitBf16>(bytes, block, 2 * k), strip(reinterpret_cast<uint8_t*>(sums) + unit_sum_bytes(block)) {}
};

// As packed_products() of packed_products.h. Threads divide columns, and not rows as those of unit_products.h do: each
// would unpack all weights.
template <class Finish>
void unit_blocks_products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const LinearShare mine = linear_share(all_rows, n, l.thread, l.threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const uint16_t* x = a.x;
  const uint8_t* weight = a.weight;
  const Unpacking weights = unpacking_of(a.format, k);
  auto* scratch = l.scratch<uint8_t>(static_cast<int64_t>(unit_blocks_thread_bytes(all_rows, k)));
  const int64_t block = unit_row_block(mine.rows.end - mine.rows.begin, 2 * k);
  const UnitBlocksScratch own(scratch, block, k);
  const FlushSubnormals flush;
  TileUnit unit;
  for (int64_t m = mine.rows.begin; m < mine.rows.end; m += block) {
    const int64_t rows = std::min(block, mine.rows.end - m);
    pack_unit_rows(rows, 2 * k, own.x, [&](int64_t i) { return x + (m + i) * k; });
    for (int64_t p = mine.columns.begin / kPanelColumns; p * kPanelColumns < mine.columns.end; ++p) {
      const int64_t base = p * kPanelColumns;
      const int first = static_cast<int>(std::max(mine.columns.begin, base) - base);
      const int last = static_cast<int>(std::min<int64_t>(mine.columns.end - base, kPanelColumns));
      unit_blocks_panel(unit, {own.x, rows, k / kUnitK, weights, weight + p * weights.panel_bytes, first,
                               (last - first + 15) / 16 * 16, own.strip, own.sums});
      finish(Sums<float>{own.sums, rows, kPanelColumns, last - first}, m, base + first);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
