// Products of rows and panels on the tile registers of AMX (tile_unit.h): bf16 in the order of that unit, and int8.
//
// A block of rows is packed once, as tiles of 16 rows and 64 bytes of k one behind the other, zeros where rows or k
// end, and stays in the second-level cache while the weights stream past. A panel is gone through in long blocks of k:
// two tiles of rows by two of columns, their sums in four registers, which are kept in memory between blocks of k.
// Where there is one tile of rows, it takes four of columns, and weights are read in the order in which they lie, a
// step ahead of the tiles: memory is the limit then, and a tile's rows are far apart, which the processor does not see
// as a stream. Beside another program on the same core that gave 26 GB/s in place of 21.
//
// Blocks of k are long because leaving sums in memory and fetching them again costs as much as two or three steps,
// which nothing hides: 32 steps gave 1.1 to 1.3 times the speed of 8 or 16 on Emerald Rapids, although short ones
// would read more from the first-level cache.
//
// A result is one chain over the steps of 64 bytes of k, from 0, so blocks, rows and columns never change a bit.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/tile.h"
#include "backends/cpu/kernels/tile_unit.h"
#include "backends/cpu/kernels/unit_shape.h"
#include "backends/cpu/kernels/vector_register.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kUnitGroups = 16;                                  // words of k of a step
constexpr int64_t kUnitPanelStep = kUnitGroups * 4 * kPanelColumns;  // bytes of a panel's step
constexpr int64_t kUnitDepth = 32;                                   // steps of a block of k
constexpr int64_t kUnitAhead = 8192;  // how far ahead a single pass over the weights fetches

struct UnitBf16 {
  using Sum = float;
  static constexpr int64_t kHeader = 0;
  static constexpr int64_t kPerWord = 2;  // numbers of k in four bytes
  template <int kSum, int kA, int kB>
  static void dot(TileUnit& unit) {
    unit.dot_bf16<kSum, kA, kB>();
  }
};
struct UnitI8 {
  using Sum = int32_t;
  static constexpr int64_t kHeader = 4 * kPanelColumns;
  static constexpr int64_t kPerWord = 4;
  template <int kSum, int kA, int kB>
  static void dot(TileUnit& unit) {
    unit.dot_i8<kSum, kA, kB>();
  }
};

// `rows` rows of `row_bytes` bytes from row_at(i) on, zeros where that is null.
template <class RowAt>
void pack_unit_rows(int64_t rows, int64_t row_bytes, uint8_t* out, const RowAt& row_at) {
  const int64_t steps = unit_steps(row_bytes);
  for (int64_t i = 0; i < (rows + 15) / 16 * 16; ++i) {
    uint8_t* to = out + i / 16 * steps * kUnitBytes + i % 16 * kUnitRowBytes;
    const void* row = i < rows ? row_at(i) : nullptr;
    const auto* from = static_cast<const uint8_t*>(row);
    for (int64_t s = 0; s < steps; ++s, to += kUnitBytes) {
      const int64_t rest = from ? row_bytes - s * kUnitRowBytes : 0;
      if (rest >= kUnitRowBytes) {
        std::memcpy(to, from + s * kUnitRowBytes, kUnitRowBytes);
        continue;
      }
      std::memset(to, 0, kUnitRowBytes);
      if (rest > 0) std::memcpy(to, from + s * kUnitRowBytes, static_cast<size_t>(rest));
    }
  }
}

// One block of k of kR tiles of rows by kC of columns.
struct UnitBlock {
  const uint8_t* x;  // the first tile
  int64_t x_stride;  // to the next tile of rows
  const uint8_t* w;  // the first step of the panel, at the first column
  int64_t steps;
  const uint8_t* tail;  // what stands for the last step of these where that is cut off, else null
  uint8_t* c;
  bool resume;
  const char* next;  // what is fetched meanwhile: so many lines each step
  int lines;
  const uint8_t* touch_end;  // whole steps up to here are read ahead
};

template <class T, int kR, int kC>
void unit_block(TileUnit& unit, const UnitBlock& b) {
  static_assert(kR * kC <= 4);
  constexpr int64_t kSumStride = 4 * kPanelColumns;
  constexpr int kA = 4, kB = kR == 2 ? 6 : 5;
  const auto each_sum = [&](const auto& f) __attribute__((always_inline)) {
    [&]<int... kI>(std::integer_sequence<int, kI...>) __attribute__((always_inline)) {
      (f(std::integral_constant<int, kI>{}, b.c + kI / kC * kUnitRows * kSumStride + kI % kC * kUnitRowBytes), ...);
    }
    (std::make_integer_sequence<int, kR * kC>{});
  };
  each_sum([&](auto i, uint8_t* at) __attribute__((always_inline)) {
    if (b.resume)
      unit.load<i.value>(at, kSumStride);
    else
      unit.clear<i.value>();
  });
  const uint8_t* x = b.x;
  const uint8_t* w = b.w;
  const char* next = b.next;
  for (int64_t s = 0; s < b.steps; ++s) {
    const bool touch = kR * kC == 4 && kR == 1 && w + 2 * kUnitPanelStep <= b.touch_end;
    if (!touch) {
      for (int i = 0; i < b.lines; ++i) fetch_second_level(next + 64 * i);
      next += 64 * b.lines;
    }
    const uint8_t* from = s + 1 == b.steps && b.tail ? b.tail : w;
    unit.load<kA>(x, kUnitRowBytes);
    if constexpr (kR == 2) unit.load<kA + 1>(x + b.x_stride, kUnitRowBytes);
    [&]<int... kJ>(std::integer_sequence<int, kJ...>) __attribute__((always_inline)) {
      (([&]() __attribute__((always_inline)) {
         constexpr int kRight = kR == 2 ? kB + kJ : kB + kJ % 3;
         if (touch)
           for (int i = 0; i < kUnitRows; ++i, next += 64) {
             fetch_second_level(next);
             TileUnit::touch(w + kUnitPanelStep + kJ * kUnitBytes + i * kUnitRowBytes);
           }
         unit.load<kRight>(from + kJ * kUnitRowBytes, kSumStride);
         T::template dot<kJ, kA, kRight>(unit);
         if constexpr (kR == 2) T::template dot<kC + kJ, kA + 1, kRight>(unit);
       }()),
       ...);
    }
    (std::make_integer_sequence<int, kC>{});
    x += kUnitBytes;
    w += kUnitPanelStep;
  }
  each_sum([&](auto i, uint8_t* at) __attribute__((always_inline)) { unit.store<i.value>(at, kSumStride); });
}

// The same for `columns` columns, a multiple of 16.
template <class T, int kR>
void unit_columns(TileUnit& unit, UnitBlock& b, int columns) {
  const UnitBlock first = b;
  for (int j = 0; j < columns;) {
    const int now = kR == 1 && columns - j >= 64 ? 64 : columns - j >= 32 ? 32 : 16;
    b.w = first.w + 4 * j;
    b.c = first.c + 4 * j;
    if (first.tail) b.tail = first.tail + 4 * j;
    if (now == 16) unit_block<T, kR, 1>(unit, b);
    if (now == 32) unit_block<T, kR, 2>(unit, b);
    if constexpr (kR == 1)
      if (now == 64) unit_block<T, kR, 4>(unit, b);
    b.next += 64 * b.lines * b.steps;
    j += now;
  }
  b.w = first.w;
  b.c = first.c;
  b.tail = first.tail;
}

// One or two rows of bf16 by multiply-adds in the order of the unit: memory is the limit then, and vectors read weights
// as one stream, which keeps its speed where another program on the same core takes a share of what fetches. kVecs
// registers of columns from `w` on; x is packed, and sums are kPanelColumns apart.
template <int kRows, int kVecs>
void few_rows_block(const uint8_t* x, const uint8_t* w, int64_t words, float* sums) {
  Reg sum[kRows][kVecs];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[r][v] = reg_zero();
  for (int64_t g = 0; g < words; g += kUnitGroups, x += kUnitBytes) {
    Reg even[kRows][kVecs], odd[kRows][kVecs];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) even[r][v] = odd[r][v] = reg_zero();
    const int64_t count = std::min(kUnitGroups, words - g);
    for (int64_t i = 0; i < count; ++i, w += 4 * kPanelColumns) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs * kLanes / 16; ++v) fetch_second_level(w + kUnitAhead + 64 * v);
      Reg x_even[kRows], x_odd[kRows];
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) {
        uint32_t pair;
        std::memcpy(&pair, x + r * kUnitRowBytes + 4 * i, 4);
        const uint32_t halves[2] = {pair << 16, pair & 0xffff0000u};
        float numbers[2];
        std::memcpy(numbers, halves, 8);
        x_even[r] = reg_splat(numbers[0]);
        x_odd[r] = reg_splat(numbers[1]);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const Reg w_even = reg_even_bf16(w + 4 * v * kLanes), w_odd = reg_odd_bf16(w + 4 * v * kLanes);
#pragma GCC unroll 2
        for (int r = 0; r < kRows; ++r) {
          even[r][v] = reg_fma(x_even[r], w_even, even[r][v]);
          odd[r][v] = reg_fma(x_odd[r], w_odd, odd[r][v]);
        }
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[r][v] = sum[r][v] + (even[r][v] + odd[r][v]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) reg_store(sums + r * kPanelColumns + v * kLanes, sum[r][v]);
}

template <int kRows>
void few_rows(const uint8_t* x, const uint8_t* w, int64_t words, int columns, float* sums) {
  constexpr int kWide = 4 * kLanes;
  for (int j = 0; j < columns;) {
    const bool wide = columns - j >= kWide;
    if (wide)
      few_rows_block<kRows, 4>(x, w + 4 * j, words, sums + j);
    else
      few_rows_block<kRows, 16 / kLanes>(x, w + 4 * j, words, sums + j);
    j += wide ? kWide : 16;
  }
}

// Packed rows and one panel of `words` words of k (its header left out): `columns` columns, a multiple of 16, from
// `first` on. Sums lie kPanelColumns apart.
template <class T>
void unit_panel(TileUnit& unit, const uint8_t* x, int64_t rows, const uint8_t* panel, int64_t words, int first,
                int columns, typename T::Sum* sums) {
  if constexpr (std::is_same_v<T, UnitBf16>) {
    if (rows == 1) return few_rows<1>(x, panel + 4 * first, words, columns, sums);
    if (rows == 2) return few_rows<2>(x, panel + 4 * first, words, columns, sums);
  }
  const int64_t steps = (words + kUnitGroups - 1) / kUnitGroups, tiles = (rows + 15) / 16;
  alignas(64) uint8_t tail[kUnitPanelStep];
  const int64_t whole = words / kUnitGroups * kUnitPanelStep, cut = words % kUnitGroups * 4 * kPanelColumns;
  if (cut > 0) {
    std::memcpy(tail, panel + whole, static_cast<size_t>(cut));
    std::memset(tail + cut, 0, static_cast<size_t>(kUnitPanelStep - cut));
  }
  const bool single = tiles == 1;
  // A whole panel's lines over the blocks that there are, which are as many as tiles of rows: a pair of these takes
  // two, one alone takes one. A single tile fetches what it reads next. Of a part of a panel the processor fetches
  // ahead by itself.
  const auto lines = columns == kPanelColumns ? static_cast<int>((columns + tiles - 1) / tiles) : 0;
  const int64_t depth = single ? steps : kUnitDepth;
  UnitBlock b{.x = x,
              .x_stride = steps * kUnitBytes,
              .w = panel + 4 * first,
              .steps = 0,
              .tail = nullptr,
              .c = reinterpret_cast<uint8_t*>(sums),
              .resume = false,
              .next = reinterpret_cast<const char*>(panel) + (single ? kUnitAhead : steps * kUnitPanelStep),
              .lines = lines,
              .touch_end = single && columns == kPanelColumns ? panel + whole : nullptr};
  for (int64_t s = 0; s < steps; s += depth) {
    b.steps = std::min(depth, steps - s);
    b.tail = cut > 0 && s + b.steps == steps ? tail + 4 * first : nullptr;
    b.resume = s > 0;
    for (int64_t t = 0; t < tiles; t += 2) {
      b.x = x + s * kUnitBytes + t * b.x_stride;
      b.c = reinterpret_cast<uint8_t*>(sums) + t * kUnitRows * 4 * kPanelColumns;
      if (t + 1 < tiles)
        unit_columns<T, 2>(unit, b, columns);
      else
        unit_columns<T, 1>(unit, b, columns);
    }
    b.w += b.steps * kUnitPanelStep;
  }
}

// A thread's packed rows and sums in its part of the workspace.
template <class T>
struct UnitScratch {
  uint8_t* x;
  typename T::Sum* sums;
  UnitScratch(uint8_t* bytes, int64_t block, int64_t row_bytes)
      : x(bytes), sums(reinterpret_cast<typename T::Sum*>(bytes + unit_x_bytes(block, row_bytes))) {}
};

// The sums of a thread's rows and columns, panel by panel: finish(sums, first row, rows, first column, columns) gets
// them kPanelColumns apart and may change them. Of the arguments x, weight and shape are read.
template <class T, class Finish>
void unit_products(const auto& a, const Launch& l, uint8_t* scratch, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const LinearShare mine = linear_share(all_rows, n, l.thread, l.threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const int64_t words = (k + T::kPerWord - 1) / T::kPerWord, row_bytes = k * 4 / T::kPerWord;
  const int64_t panel_bytes = T::kHeader + words * 4 * kPanelColumns;
  const auto* x = static_cast<const uint8_t*>(static_cast<const void*>(a.x));
  const auto* weight = static_cast<const uint8_t*>(static_cast<const void*>(a.weight));
  const int64_t block = unit_row_block(mine.rows.end - mine.rows.begin, row_bytes);
  const UnitScratch<T> own(scratch, block, row_bytes);
  TileUnit unit;
  for (int64_t m = mine.rows.begin; m < mine.rows.end; m += block) {
    const int64_t rows = std::min(block, mine.rows.end - m);
    pack_unit_rows(rows, row_bytes, own.x, [&](int64_t i) { return x + (m + i) * row_bytes; });
    for (int64_t p = mine.columns.begin / kPanelColumns; p * kPanelColumns < mine.columns.end; ++p) {
      const int64_t base = p * kPanelColumns;
      const int first = static_cast<int>(std::max(mine.columns.begin, base) - base);
      const int last = static_cast<int>(std::min<int64_t>(mine.columns.end - base, kPanelColumns));
      unit_panel<T>(unit, own.x, rows, weight + p * panel_bytes + T::kHeader, words, first,
                    (last - first + 15) / 16 * 16, own.sums);
      finish(own.sums, m, rows, base + first, last - first);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
