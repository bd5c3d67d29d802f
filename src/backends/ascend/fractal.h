// FRACTAL_NZ: the blocks in which the cube unit reads matrices, 16 rows of 32 bytes each, and the packing of a linear's
// rows into them.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace reprise::ascend {

constexpr int64_t kBlockRows = 16, kBlockColumns = 32;  // columns: of one byte each

constexpr int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Elements of a matrix [rows, columns] in blocks.
template <typename T>
constexpr int64_t fractal_size(int64_t rows, int64_t columns) {
  constexpr int64_t kLanes = kBlockColumns / static_cast<int64_t>(sizeof(T));
  return blocks(columns, kLanes) * kLanes * blocks(rows, kBlockRows) * kBlockRows;
}

// Rows [first, first + count) of a stack of weights [N, K] become columns of matrices [K, N]: K elements, each a
// block's row apart. Columns of one block are written side by side.
template <typename T>
void pack_columns(int64_t n, int64_t k, T* stack, const T* rows, int64_t first, int64_t count) {
  constexpr int64_t kLanes = kBlockColumns / static_cast<int64_t>(sizeof(T));
  const int64_t deep = blocks(k, kBlockRows) * kBlockRows;
  for (int64_t row = first; row < first + count;) {
    const int64_t column = row % n, lane = column % kLanes;
    const int64_t together = std::min({kLanes - lane, n - column, first + count - row});
    T* to = stack + row / n * fractal_size<T>(k, n) + column / kLanes * kLanes * deep + lane;
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < together; ++j) to[i * kLanes + j] = rows[j * k + i];
    rows += together * k;
    row += together;
  }
}

}  // namespace reprise::ascend
