// The two products of attention on tile registers (tile_unit.h): rows of queries or weights in bf16 times a page of the
// KV cache, which lies as the registers take right operands (kv_layout.h).
//
// A row is a left operand as it lies. Every (row, column) is one chain over blocks of 32 of the summed dimension, in
// the order of the unit, so the number of rows and columns computed together never shows in the bits, and neither do
// blocks whose left numbers are zeros: callers take +0 and -0 for the same. What a block of 32 holds behind the end of
// a head or of the keys is replaced by zeros, because nothing may have written it.
#pragma once

#include <algorithm>

#include "backends/cpu/kernels/attention_panel.h"
#include "backends/cpu/kernels/tile_unit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kUnitNumbers = 32;  // of the summed dimension, a block
constexpr int64_t kUnitPairs = kUnitNumbers / 2;
constexpr int kUnitGroup = 2 * kUnitRows;  // rows of one product

// One product of up to 32 rows. Strides are in bytes.
struct RowsByPage {
  const uint8_t* left;
  int64_t left_stride;
  const uint8_t* right;
  int64_t right_row, right_tile, right_step;  // from pair to pair; to the next 16 columns; to the next block of 32
  int64_t steps;
  // What stands for the last block where that is not whole, with the same right_row; else null.
  const uint8_t* last;
  int64_t last_tile;
  uint8_t* out;
  int64_t out_stride;
  const char* ahead;  // as many bytes as are read are brought into the cache meanwhile, none from ahead_end on
  const char* ahead_end;
};

template <int kR, int kC>
void unit_rows_by_page(TileUnit& unit, const RowsByPage& p) {
  static_assert(kR * kC <= 4);
  const auto each_sum = [&](const auto& f) __attribute__((always_inline)) {
    [&]<int... kI>(std::integer_sequence<int, kI...>) __attribute__((always_inline)) {
      (f(std::integral_constant < int, kR == 2 ? kI / kC * 2 + kI % kC : kI > {},
         p.out + kI / kC * kUnitRows * p.out_stride + kI % kC * kUnitRowBytes),
       ...);
    }
    (std::make_integer_sequence<int, kR * kC>{});
  };
  each_sum([&](auto i, uint8_t*) __attribute__((always_inline)) { unit.clear<i.value>(); });
  const uint8_t* left = p.left;
  const uint8_t* right = p.right;
  const char* ahead = p.ahead;
  int64_t tile = p.right_tile;
  for (int64_t s = 0; s < p.steps; ++s) {
    if (ahead < p.ahead_end) {
      for (int i = 0; i < kC * kUnitRows; ++i) fetch_second_level(ahead + 64 * i);
      ahead += kC * kUnitBytes;
    }
    if (s + 1 == p.steps && p.last) {
      right = p.last;
      tile = p.last_tile;
    }
    unit.load<4>(left, p.left_stride);
    if constexpr (kR == 2) unit.load<5>(left + kUnitRows * p.left_stride, p.left_stride);
    [&]<int... kJ>(std::integer_sequence<int, kJ...>) __attribute__((always_inline)) {
      (([&]() __attribute__((always_inline)) {
         unit.load<6 + kJ % 2>(right + kJ * tile, p.right_row);
         unit.dot_bf16<kJ, 4, 6 + kJ % 2>();
         if constexpr (kR == 2) unit.dot_bf16<2 + kJ, 5, 6 + kJ % 2>();
       }()),
       ...);
    }
    (std::make_integer_sequence<int, kC>{});
    left += kUnitRowBytes;
    right += p.right_step;
  }
  each_sum([&](auto i, uint8_t* at) __attribute__((always_inline)) { unit.store<i.value>(at, p.out_stride); });
}

// `rows` rows, at most 32, times `columns` columns. Nothing beyond either is written.
inline void unit_page_product(TileUnit& unit, RowsByPage p, int rows, int64_t columns) {
  const int first = std::min(rows, kUnitRows), second = rows > kUnitRows ? rows - kUnitRows : first;
  unit.shape(first, second, kUnitRows);
  while (columns > 0) {
    if (columns < kUnitRows) unit.shape(first, second, static_cast<int>(columns));
    int tiles = 1;
    if (rows > kUnitRows) {
      if (columns >= 2 * kUnitRows) tiles = 2;
      tiles == 2 ? unit_rows_by_page<2, 2>(unit, p) : unit_rows_by_page<2, 1>(unit, p);
    } else {
      tiles = columns >= 4 * kUnitRows ? 4 : columns >= 2 * kUnitRows ? 2 : 1;
      if (tiles == 4) unit_rows_by_page<1, 4>(unit, p);
      if (tiles == 2) unit_rows_by_page<1, 2>(unit, p);
      if (tiles == 1) unit_rows_by_page<1, 1>(unit, p);
    }
    p.right += tiles * p.right_tile;
    if (p.last) p.last += tiles * p.last_tile;
    p.out += tiles * kUnitRowBytes;
    if (p.ahead < p.ahead_end) p.ahead += p.steps * tiles * kUnitBytes;
    columns -= tiles * kUnitRows;
  }
}

// A page for these products: `size` numbers of a head, and room for the blocks that are replaced.
struct UnitPage {
  const uint32_t* cells;
  int64_t size;
  uint32_t* spare;  // 64 * size cells, and 1024 at least
  const char* ahead;
  const char* ahead_end;
};

// Scores of `rows` queries, `stride` bytes apart and zeros up to a multiple of 32 numbers, with the keys of the runs
// from `from` to `to`; out[r][key], kKvTokens apart.
inline void unit_scores(TileUnit& unit, const void* queries, int64_t stride, int rows, UnitPage keys, int64_t from,
                        int64_t to, float* out) {
  const int64_t pairs = keys.size / 2, cut = pairs % kUnitPairs, whole = pairs - cut;
  constexpr int64_t kColumns = 4 * kUnitRows;
  for (int64_t c = from; c < to; c += kColumns) {
    const int64_t columns = std::min(to - c, kColumns);
    const uint32_t* run = keys.cells + c * pairs;
    RowsByPage p{.left = static_cast<const uint8_t*>(queries),
                 .left_stride = stride,
                 .right = reinterpret_cast<const uint8_t*>(run),
                 .right_row = kUnitRowBytes,
                 .right_tile = kKeyRun * pairs * 4,
                 .right_step = kUnitBytes,
                 .steps = (pairs + kUnitPairs - 1) / kUnitPairs,
                 .last = nullptr,
                 .last_tile = kUnitBytes,
                 .out = reinterpret_cast<uint8_t*>(out + c),
                 .out_stride = kKvTokens * 4,
                 .ahead = keys.ahead,
                 .ahead_end = keys.ahead_end};
    if (cut > 0) {
      for (int64_t t = 0; t < columns / kKeyRun; ++t) {
        uint32_t* to_tile = keys.spare + t * kUnitBytes / 4;
        std::memset(to_tile, 0, kUnitBytes);
        std::memcpy(to_tile, run + (t * pairs + whole) * kKeyRun, static_cast<size_t>(cut * kUnitRowBytes));
      }
      p.last = reinterpret_cast<const uint8_t*>(keys.spare);
    }
    unit_page_product(unit, p, rows, columns);
    keys.ahead += columns * pairs * 4;
  }
}

// Copies the pairs [first, last) of a page of values: the numbers of keys in [low, high), and zeros elsewhere.
inline void copy_values(const uint32_t* cells, int64_t size, int64_t first, int64_t last, int64_t low, int64_t high,
                        uint32_t* out) {
  for (int64_t pair = first; pair < last; ++pair, out += size) {
    const bool even = 2 * pair >= low && 2 * pair < high, odd = 2 * pair + 1 >= low && 2 * pair + 1 < high;
    if (!even && !odd) {
      std::memset(out, 0, static_cast<size_t>(size) * 4);
      continue;
    }
    const uint32_t mask = (even ? 0x0000ffffu : 0u) | (odd ? 0xffff0000u : 0u);
    for (int64_t d = 0; d < size; ++d) out[d] = cells[pair * size + d] & mask;
  }
}

// Outputs of `rows` rows of weights in bf16, kKvTokens floats apart and zeros for keys outside of [low, high) within
// the blocks of 32 that hold these; out[r][d], `size` apart. `alone`: what the other keys of those blocks have as
// values is zeros, whatever stands there; else that is so for keys behind `high`, which may not have been written.
inline void unit_values(TileUnit& unit, const float* weights, int rows, const UnitPage& values, int64_t low,
                        int64_t high, bool alone, float* out) {
  const int64_t size = values.size, first = low / kUnitNumbers, last = (high + kUnitNumbers - 1) / kUnitNumbers;
  RowsByPage p{.left = reinterpret_cast<const uint8_t*>(weights) + first * kUnitRowBytes,
               .left_stride = kKvTokens * 4,
               .right = reinterpret_cast<const uint8_t*>(values.cells + first * kUnitPairs * size),
               .right_row = size * 4,
               .right_tile = kUnitRowBytes,
               .right_step = kUnitPairs * size * 4,
               .steps = last - first,
               .last = nullptr,
               .last_tile = kUnitRowBytes,
               .out = reinterpret_cast<uint8_t*>(out),
               .out_stride = size * 4,
               .ahead = values.ahead,
               .ahead_end = values.ahead_end};
  if (alone) {
    copy_values(values.cells, size, first * kUnitPairs, last * kUnitPairs, low, high, values.spare);
    p.right = reinterpret_cast<const uint8_t*>(values.spare);
  } else if (high % kUnitNumbers != 0) {
    copy_values(values.cells, size, (last - 1) * kUnitPairs, last * kUnitPairs, 0, high, values.spare);
    p.last = reinterpret_cast<const uint8_t*>(values.spare);
  }
  unit_page_product(unit, p, rows, size);
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
