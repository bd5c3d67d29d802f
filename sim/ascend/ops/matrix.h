// Matrix: one matrix in device memory, plain, transposed or fractal, and the products of two.
//
// A value that points into the host's copy of device memory: made and used inside one compute().
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ascend/ops/executor.h"

namespace ascend_sim {

struct Matrix {
  const char* data = nullptr;
  aclDataType dtype = kFloat;
  int64_t rows = 0, columns = 0;
  int64_t row_step = 0, column_step = 0;  // in elements; unused when fractal
  bool fractal = false;
  bool swapped = false;  // the fractal storage is that of the transposed matrix

  int64_t fractal_place(int64_t row, int64_t column) const;
};

// How many elements of one type share a fractal row.
inline int64_t fractal_width(aclDataType dtype) {
  return dtype == kInt4 ? 64 : 32 / std::max<int64_t>(1, size_of(dtype));
}
// The storage of a fractal [rows, columns].
Dims fractal_shape(int64_t rows, int64_t columns, aclDataType dtype);
inline int64_t fractal_place(int64_t rows, int64_t row, int64_t column, int64_t width) {
  return ((column / width * ((rows + 15) / 16) + row / 16) * 16 + row % 16) * width + column % width;
}

// The last two dimensions of a view, `batch` elements (for a fractal: matrices) further on.
Matrix matrix_of(const View& view, int64_t batch = 0);
// A product reads plain, transposed and fractal operands as they are; everything else is packed first.
Walk matrix_walk(Tensor tensor);
// Whether the storage of a fractal operand is what its view says, and large enough to be one.
void check_fractal(Operator& op, Slot slot, const char* name);

// out[m][n] = sum over ascending k of a[m][k] * b[k][n], in Number (float, or int32_t for int8 operands).
template <typename Number>
void multiply(const Matrix& a, const Matrix& b, Number* out) {
  constexpr int64_t kBlock = 64;
  const int64_t depth = a.columns;
  std::vector<Number> left(static_cast<size_t>(a.rows * depth));
  for (int64_t m = 0; m < a.rows; ++m) {
    read_run(a.dtype, a.data + m * a.row_step * size_of(a.dtype), a.column_step, depth, left.data() + m * depth);
  }
  std::vector<Number> tile(static_cast<size_t>(depth * kBlock)), column(static_cast<size_t>(depth));
  for (int64_t n = 0; n < b.columns; n += kBlock) {
    const int64_t width = std::min(kBlock, b.columns - n);
    if (b.fractal && !b.swapped) {  // a row of a fractal is consecutive
      const int64_t lane = fractal_width(b.dtype);
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t i = 0; i < width; i += lane) {
          const char* from = b.data + b.fractal_place(k, n + i) * size_of(b.dtype);
          read_run(b.dtype, from, 1, std::min(lane, width - i), &tile[k * kBlock + i]);
        }
      }
    } else if (b.fractal) {
      const int64_t lane = fractal_width(b.dtype);
      for (int64_t i = 0; i < width; ++i) {
        for (int64_t k = 0; k < depth; k += lane) {
          const char* from = b.data + b.fractal_place(k, n + i) * size_of(b.dtype);
          read_run(b.dtype, from, 1, std::min(lane, depth - k), &column[k]);
        }
        for (int64_t k = 0; k < depth; ++k) tile[k * kBlock + i] = column[k];
      }
    } else if (b.column_step == 1) {
      for (int64_t k = 0; k < depth; ++k) {
        read_run(b.dtype, b.data + (k * b.row_step + n) * size_of(b.dtype), 1, width, &tile[k * kBlock]);
      }
    } else {
      for (int64_t i = 0; i < width; ++i) {
        read_run(b.dtype, b.data + (n + i) * b.column_step * size_of(b.dtype), b.row_step, depth, column.data());
        for (int64_t k = 0; k < depth; ++k) tile[k * kBlock + i] = column[k];
      }
    }
    for (int64_t m = 0; m < a.rows; ++m) {
      Number sums[kBlock] = {};
      const Number* line = left.data() + m * depth;
      for (int64_t k = 0; k < depth; ++k) {
        const Number factor = line[k];
        const Number* row = tile.data() + k * kBlock;
        for (int64_t i = 0; i < kBlock; ++i) sums[i] += factor * row[i];
      }
      std::copy(sums, sums + width, out + m * b.columns + n);
    }
  }
}

}  // namespace ascend_sim
