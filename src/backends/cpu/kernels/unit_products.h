// Products of rows and panels on the tile registers of AMX (tile_unit.h): bf16 in the order of that unit, and int8.
//
// A block of rows is packed once, as tiles of 16 rows and 64 bytes of k, two neighbours side by side, zeros where rows
// or k end, and stays in the second-level cache while the weights stream past. The second-level cache gives 41 bytes a
// cycle and a pair of tiles by a pair takes 64, so one of the two operands must come from the first-level cache: half
// of the columns of a panel in a short block of k, which the pairs of a group of rows go through one after the other.
// Rows are loaded with the hint that they are not read again soon, else they drive those columns out. Between blocks of
// k the sums of a group lie close together in memory, because stores that miss the first-level cache wait for as long
// as six steps take. Granite Rapids, 512 rows by 1024 k, hot weights, GFLOP/s: 1491 with all of it from the
// second-level cache and sums in rows, 1640 with short blocks, 1750 with the hint, 2300 with groups whose sums are
// close. Registers alone give 3100.
//
// Where there is one tile of rows, it takes four of columns, and weights are read in the order in which they lie, a
// step ahead of the tiles: memory is the limit then, and a tile's rows are far apart, which the processor does not see
// as a stream. Beside another program on the same core that gave 26 GB/s in place of 21.
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
constexpr int64_t kUnitDepth = 8;                                    // steps of a block of k
constexpr int64_t kFetchAhead = 2 * kUnitDepth;                      // steps that one group of rows fetches ahead
constexpr int64_t kUnitGroupTiles = 8;                               // of rows, whose sums are close
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

// Where a packed tile begins, and how far its steps are apart: the two of a pair lie side by side in every step.
struct UnitTile {
  int64_t at, step;
  UnitTile(int64_t tile, int64_t tiles, int64_t steps) {
    const bool pair = tile / 2 * 2 + 1 < tiles;
    at = tile / 2 * 2 * steps * kUnitBytes + (pair ? tile % 2 * kUnitBytes : 0);
    step = pair ? 2 * kUnitBytes : kUnitBytes;
  }
};

// `rows` rows of `row_bytes` bytes from row_at(i) on, zeros where that is null.
template <class RowAt>
void pack_unit_rows(int64_t rows, int64_t row_bytes, uint8_t* out, const RowAt& row_at) {
  const int64_t steps = unit_steps(row_bytes), tiles = (rows + 15) / 16;
  for (int64_t i = 0; i < 16 * tiles; ++i) {
    const UnitTile tile(i / 16, tiles, steps);
    uint8_t* to = out + tile.at + i % 16 * kUnitRowBytes;
    const void* row = i < rows ? row_at(i) : nullptr;
    const auto* from = static_cast<const uint8_t*>(row);
    for (int64_t s = 0; s < steps; ++s, to += tile.step) {
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

// What is fetched into the second-level cache meanwhile: in each step `lines` lines of each of `rows` rows of a panel.
struct UnitAhead {
  const char* at;
  int rows, lines;
  int64_t step;  // bytes from step to step
};

// One block of k of kR tiles of rows by kC of columns.
struct UnitBlock {
  const uint8_t* x;  // the first tile
  const uint8_t* w;  // the first step of the panel, at the first column
  int64_t steps;
  const uint8_t* tail;  // what stands for the last step of these where that is cut off, else null
  uint8_t* c;           // the sums
  int64_t c_row;        // bytes from row to row of these
  bool resume;
  UnitAhead ahead;
  const uint8_t* touch_end;  // whole steps up to here are read ahead
};

template <int kR, int kC>
inline __attribute__((always_inline)) void each_unit_sum(const UnitBlock& b, const auto& f) {
  [&]<int... kI>(std::integer_sequence<int, kI...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, kI>{}, b.c + kI / kC * kUnitRows * b.c_row + kI % kC * kUnitRowBytes), ...);
  }
  (std::make_integer_sequence<int, kR * kC>{});
}

template <class T, int kR, int kC>
void unit_block(TileUnit& unit, const UnitBlock& b) {
  static_assert(kR * kC <= 4);
  constexpr int64_t kPanelRow = 4 * kPanelColumns;
  constexpr int kA = 4, kB = kR == 2 ? 6 : 5;
  each_unit_sum<kR, kC>(
      b, [&](auto i, uint8_t* at) __attribute__((always_inline)) {
        if (b.resume)
          unit.load<i.value>(at, b.c_row);
        else
          unit.clear<i.value>();
      });
  const uint8_t* x = b.x;
  const uint8_t* w = b.w;
  const char* next = b.ahead.at;
  for (int64_t s = 0; s < b.steps; ++s) {
    const bool touch = kR * kC == 4 && kR == 1 && w + 2 * kUnitPanelStep <= b.touch_end;
    if (!touch)
      for (int i = 0; i < b.ahead.rows; ++i)
        for (int line = 0; line < b.ahead.lines; ++line) fetch_second_level(next + kPanelRow * i + 64 * line);
    const uint8_t* from = s + 1 == b.steps && b.tail ? b.tail : w;
    if constexpr (kR == 2) {
      unit.load_once<kA>(x, kUnitRowBytes);
      unit.load<kB>(from, kPanelRow);
      T::template dot<0, kA, kB>(unit);
      unit.load_once<kA + 1>(x + kUnitBytes, kUnitRowBytes);
      T::template dot<kC, kA + 1, kB>(unit);
      if constexpr (kC == 2) {
        unit.load<kB + 1>(from + kUnitRowBytes, kPanelRow);
        T::template dot<1, kA, kB + 1>(unit);
        T::template dot<3, kA + 1, kB + 1>(unit);
      }
    } else {
      unit.load<kA>(x, kUnitRowBytes);
      [&]<int... kJ>(std::integer_sequence<int, kJ...>) __attribute__((always_inline)) {
        (([&]() __attribute__((always_inline)) {
           constexpr int kRight = kB + kJ % 3;
           if (touch)
             for (int i = 0; i < kUnitRows; ++i) {
               fetch_second_level(next + kJ * kUnitBytes + i * kUnitRowBytes);
               TileUnit::touch(w + kUnitPanelStep + kJ * kUnitBytes + i * kUnitRowBytes);
             }
           unit.load<kRight>(from + kJ * kUnitRowBytes, kPanelRow);
           T::template dot<kJ, kA, kRight>(unit);
         }()),
         ...);
      }
      (std::make_integer_sequence<int, kC>{});
    }
    x += kR * kUnitBytes;
    w += kUnitPanelStep;
    next += b.ahead.step;
  }
  each_unit_sum<kR, kC>(
      b, [&](auto i, uint8_t* at) __attribute__((always_inline)) { unit.store<i.value>(at, b.c_row); });
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

// The last step of a panel where k ends within it: zeros beyond.
struct UnitTail {
  alignas(64) uint8_t bytes[kUnitPanelStep];
  UnitTail(const uint8_t* panel, int64_t words) {
    const int64_t whole = words / kUnitGroups * kUnitPanelStep, cut = words % kUnitGroups * 4 * kPanelColumns;
    if (cut == 0) return;
    std::memcpy(bytes, panel + whole, static_cast<size_t>(cut));
    std::memset(bytes + cut, 0, static_cast<size_t>(kUnitPanelStep - cut));
  }
};

// One tile of rows: all of k at once, in the order in which weights lie.
template <class T>
void single_unit_tile(TileUnit& unit, UnitBlock b, int columns) {
  const UnitBlock first = b;
  for (int j = 0; j < columns;) {
    const int now = columns - j >= 64 ? 64 : columns - j >= 32 ? 32 : 16;
    b.w = first.w + 4 * j;
    b.c = first.c + 4 * j;
    if (first.tail) b.tail = first.tail + 4 * j;
    if (now == 16) unit_block<T, 1, 1>(unit, b);
    if (now == 32) unit_block<T, 1, 2>(unit, b);
    if (now == 64) unit_block<T, 1, 4>(unit, b);
    j += now;
  }
}

// Packed rows of so many words of k.
struct UnitRows {
  const uint8_t* x;
  int64_t rows, words;
  int64_t steps() const { return (words + kUnitGroups - 1) / kUnitGroups; }
  int64_t tiles() const { return (rows + kUnitRows - 1) / kUnitRows; }
};

// The tiles [begin, end) of rows times 32 columns of a panel, or 16: b says where the weights of these columns begin,
// what stands for their last step and where the sums go. `fetch(s, t, n)` is what n steps from s on of the pair of
// rows t fetch.
template <class T, class Fetch>
void unit_part(TileUnit& unit, const UnitRows& rows, int64_t begin, int64_t end, UnitBlock b, int columns,
               const Fetch& fetch) {
  const int64_t steps = rows.steps(), tiles = rows.tiles(), depth = end - begin <= 2 ? steps : kUnitDepth;
  const UnitBlock first = b;
  for (int64_t s = 0; s < steps; s += depth) {
    b.steps = std::min(depth, steps - s);
    b.w = first.w + s * kUnitPanelStep;
    b.tail = s + b.steps == steps ? first.tail : nullptr;
    b.resume = s > 0;
    for (int64_t t = begin; t < end; t += 2) {
      const UnitTile tile(t, tiles, steps);
      b.x = rows.x + tile.at + s * tile.step;
      b.c = first.c + (t - begin) * kUnitRows * b.c_row;
      b.ahead = fetch(s, t, b.steps);
      if (t + 1 < tiles)
        columns > 16 ? unit_block<T, 2, 2>(unit, b) : unit_block<T, 2, 1>(unit, b);
      else
        columns > 16 ? unit_block<T, 1, 2>(unit, b) : unit_block<T, 1, 1>(unit, b);
    }
  }
}

// Packed rows times `columns` columns of one panel (its header left out) from `first` on, a multiple of 16.
// finish(sums, first row, column) is called for one part after the other, the columns of a row in ascending order and
// counted from `first`; `scratch` has room for the sums of 64 columns and a group of rows.
template <class T, class Finish>
void unit_panel(TileUnit& unit, const UnitRows& rows, const uint8_t* panel, int first, int columns,
                typename T::Sum* scratch, const Finish& finish) {
  using Part = Sums<typename T::Sum>;
  if constexpr (std::is_same_v<T, UnitBf16>) {
    if (rows.rows <= 2) {
      const int padded = (columns + 15) / 16 * 16;
      rows.rows == 1 ? few_rows<1>(rows.x, panel + 4 * first, rows.words, padded, scratch)
                     : few_rows<2>(rows.x, panel + 4 * first, rows.words, padded, scratch);
      return finish(Part{scratch, rows.rows, kPanelColumns, columns}, int64_t{0}, int64_t{0});
    }
  }
  const int64_t steps = rows.steps(), tiles = rows.tiles(), whole = rows.words / kUnitGroups * kUnitPanelStep;
  const UnitTail tail(panel, rows.words);
  const uint8_t* last = rows.words % kUnitGroups ? tail.bytes + 4 * first : nullptr;
  const bool single = tiles == 1, all = columns == kPanelColumns;
  UnitBlock b{.x = rows.x,
              .w = panel + 4 * first,
              .steps = steps,
              .tail = last,
              .c = reinterpret_cast<uint8_t*>(scratch),
              .c_row = 4 * kPanelColumns,
              .resume = false,
              .ahead = {reinterpret_cast<const char*>(panel) + kUnitAhead, all ? 1 : 0, kUnitRows * 4, kUnitPanelStep},
              .touch_end = all ? panel + whole : nullptr};
  if (single) {
    single_unit_tile<T>(unit, b, (columns + 15) / 16 * 16);
    return finish(Part{scratch, rows.rows, kPanelColumns, columns}, int64_t{0}, int64_t{0});
  }
  constexpr int kWidth = 32;
  b.c_row = 4 * kWidth;
  b.touch_end = nullptr;
  const auto* next = reinterpret_cast<const char*>(panel) + rows.words * 4 * kPanelColumns + T::kHeader;
  const bool near = tiles > 2 && tiles <= kUnitGroupTiles;
  const int pairs = static_cast<int>((tiles + 1) / 2), lines = (kPanelColumns / 2 + pairs - 1) / pairs;
  for (int64_t t = 0; t < tiles; t += kUnitGroupTiles) {
    const int64_t end = std::min(tiles, t + kUnitGroupTiles), row = t * kUnitRows;
    for (int j = 0; j < columns; j += kWidth) {
      b.w = panel + 4 * (first + j);
      b.tail = last ? last + 4 * j : nullptr;
      // One group of rows fetches what it reads soon, several fetch the next panel, line by line. Of a part of a panel
      // the processor fetches ahead by itself.
      const auto fetch = [&](int64_t s, int64_t tile, int64_t count) -> UnitAhead {
        if (!all) return {nullptr, 0, 0, 0};
        if (!near) {
          const UnitAhead ahead{next, 1, lines, 64 * lines};
          next += ahead.step * count;
          return ahead;
        }
        const int pair = static_cast<int>(tile / 2), begin = kUnitRows * pair / pairs;
        const char* from = reinterpret_cast<const char*>(panel) + 4 * j;
        s += kFetchAhead;
        if (s >= steps) {
          s -= steps;
          from = j == 0 ? from + 4 * kWidth : next;
        }
        return {from + s * kUnitPanelStep + begin * 4 * kPanelColumns, kUnitRows * (pair + 1) / pairs - begin, 2,
                kUnitPanelStep};
      };
      unit_part<T>(unit, rows, t, end, b, columns - j, fetch);
      finish(Part{scratch, std::min(rows.rows, end * kUnitRows) - row, kWidth, std::min(kWidth, columns - j)}, row,
             static_cast<int64_t>(j));
    }
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

// The sums of a thread's rows and columns, part by part: finish(sums, first row, first column) may change them. Of the
// arguments x, weight and shape are read.
template <class T, class Finish>
void unit_products(const auto& a, const Launch& l, uint8_t* scratch, const Finish& finish) {
  using Part = Sums<typename T::Sum>;
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const LinearShare mine = unit_share(all_rows, n, l.thread, l.threads);
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
      const int64_t base = p * kPanelColumns, first = std::max(mine.columns.begin, base) - base;
      const int64_t last = std::min<int64_t>(mine.columns.end - base, kPanelColumns);
      unit_panel<T>(unit, {own.x, rows, words}, weight + p * panel_bytes + T::kHeader, static_cast<int>(first),
                    static_cast<int>(last - first), own.sums,
                    [&](Part sums, int64_t row, int64_t column) { finish(sums, m + row, base + first + column); });
    }
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
