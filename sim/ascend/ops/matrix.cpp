#include "ascend/ops/matrix.h"

namespace ascend_sim {

int64_t Matrix::fractal_place(int64_t row, int64_t column) const {
  const int64_t width = fractal_width(dtype);
  return swapped ? ascend_sim::fractal_place(columns, column, row, width)
                 : ascend_sim::fractal_place(rows, row, column, width);
}

Dims fractal_shape(int64_t rows, int64_t columns, aclDataType dtype) {
  const int64_t width = fractal_width(dtype);
  return {(columns + width - 1) / width, (rows + 15) / 16, 16, width};
}

Matrix matrix_of(const View& view, int64_t batch) {
  Matrix matrix;
  matrix.dtype = view.dtype;
  matrix.rows = view.dim(-2);
  matrix.columns = view.dim(-1);
  if (view.rank() > 0) matrix.column_step = view.strides.back();
  if (view.rank() > 1) matrix.row_step = view.strides[view.strides.size() - 2];
  matrix.fractal = view.fractal();
  if (view.fractal()) {
    matrix.swapped = !view.packed();
    batch *= product(view.storage, view.storage.size() - 4);
  }
  matrix.data = at<const char>(view) + batch * view.element();
  return matrix;
}

Walk matrix_walk(Tensor tensor) {
  if (tensor == nullptr || !live(tensor)) return Walk::Packed;
  const View& view = tensor->view;
  return view.packed() || view.transposed() || view.fractal() ? Walk::Strides : Walk::Packed;
}

void check_fractal(Operator& op, Slot slot, const char* name) {
  const View& view = op[slot];
  if (!view.given || !view.fractal()) return;
  const std::string text = std::string(name) + " is FRACTAL_NZ: ";
  if (!op.valid(view.rank() >= 2 && (view.packed() || view.transposed()),
                text + "its view must be plain or transposed")) {
    return;
  }
  if (!op.tiled(view.dim(-1) > 1 && view.dim(-2) > 1, text + "a matrix of one row or one column cannot be")) return;
  const bool swapped = !view.packed();
  Dims expected(view.shape.begin(), view.shape.end() - 2);
  const Dims matrix = fractal_shape(view.dim(swapped ? -1 : -2), view.dim(swapped ? -2 : -1), view.dtype);
  expected.insert(expected.end(), matrix.begin(), matrix.end());
  op.valid(view.storage == expected,
           text + "its storage is " + text_of(view.storage) + "; this view needs " + text_of(expected));
}

}  // namespace ascend_sim
