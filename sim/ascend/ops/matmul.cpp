// Float matrix products, and the fractal form of their weights.
#include <cstring>

#include "ascend/ops/check.h"
#include "ascend/ops/matrix.h"

namespace ascend_sim {

namespace {

// A vector becomes a matrix of one row or one column; the product drops that dimension again.
View as_matrix(const View& view, bool row) {
  View matrix = view;
  if (view.rank() != 1) return matrix;
  const size_t place = row ? 0 : 1;
  matrix.shape.insert(matrix.shape.begin() + static_cast<int64_t>(place), 1);
  matrix.strides.insert(matrix.strides.begin() + static_cast<int64_t>(place),
                        row ? view.shape[0] * view.strides[0] : 1);
  return matrix;
}

View leading(const View& view) {
  View batch = view;
  batch.shape.resize(view.shape.size() - 2);
  batch.strides.resize(view.strides.size() - 2);
  if (view.fractal()) batch.strides = packed_strides(batch.shape);  // in matrices
  return batch;
}

std::vector<int64_t> batch_offsets(const View& matrix, const Dims& batches) {
  const View batch = leading(matrix);
  std::vector<int64_t> offsets;
  Dims shape = batches, strides = strides_in(batch, batches);
  shape.push_back(1);
  strides.push_back(0);
  for_rows(shape, strides, [&](int64_t offset, int64_t) { offsets.push_back(offset); });
  return offsets;
}

// The products of all batches, one after another.
std::vector<float> products(const View& self, const View& mat2) {
  const View left = as_matrix(self, true), right = as_matrix(mat2, false);
  const Dims batches = broadcast(leading(left).shape, leading(right).shape).value_or(Dims{});
  const auto count = static_cast<size_t>(product(batches) * left.dim(-2) * right.dim(-1));
  std::vector<float> out(count);
  if (count == 0) return out;
  if (right.rank() == 2 && left.packed()) {
    Matrix rows = matrix_of(left);
    rows.rows = left.count() / std::max<int64_t>(1, left.dim(-1));
    if (left.dim(-1) == 0) rows.rows = static_cast<int64_t>(count) / right.dim(-1);
    rows.row_step = left.dim(-1);
    rows.column_step = 1;
    multiply(rows, matrix_of(right), out.data());
    return out;
  }
  const std::vector<int64_t> lefts = batch_offsets(left, batches), rights = batch_offsets(right, batches);
  for (size_t i = 0; i < lefts.size(); ++i) {
    multiply(matrix_of(left, lefts[i]), matrix_of(right, rights[i]),
             out.data() + static_cast<int64_t>(i) * left.dim(-2) * right.dim(-1));
  }
  return out;
}

void check_product(Operator& op, Slot self, Slot mat2, Slot out, int8_t cube_math_type) {
  if (!op.ok()) return;
  op.dtype(self, {kFloat, kHalf, kBf16});
  op.same_dtype(mat2, self);
  op.valid(cube_math_type >= 0 && cube_math_type <= (machine().cann != Cann::V8_1 ? 4 : 3),
           "cubeMathType is " + std::to_string(cube_math_type) + "; it may be 0 to " +
               (machine().cann != Cann::V8_1 ? "4" : "3"));
  // A wider result than its operands is a promise of newer versions only.
  op.valid(op[out].dtype == op[self].dtype || (op[out].dtype == kFloat && machine().cann != Cann::V8_1),
           "out is " + name_of(op[out].dtype) + " but self is " + name_of(op[self].dtype));
  op.rank(self, 1, 6);
  op.rank(mat2, 1, 6);
  op.valid(!op[self].fractal() && !op[out].fractal(), "self and out must not be FRACTAL_NZ");
  check_fractal(op, mat2, "mat2");
  if (!op.ok()) return;
  const View left = as_matrix(op[self], true), right = as_matrix(op[mat2], false);
  const std::string shapes = text_of(op[self].shape) + " and " + text_of(op[mat2].shape);
  op.valid(left.dim(-1) == right.dim(-2), "the inner dimensions of " + shapes + " differ");
  const auto batches = broadcast(leading(left).shape, leading(right).shape);
  if (!op.valid(batches.has_value(), "the batches of " + shapes + " do not broadcast")) return;
  Dims expected = *batches;
  if (op[self].rank() > 1) expected.push_back(left.dim(-2));
  if (op[mat2].rank() > 1) expected.push_back(right.dim(-1));
  op.shape(out, expected);
}

double operations(const View& self, const View& out) {
  return 2 * static_cast<double>(out.count()) * static_cast<double>(self.dim(-1));
}

int product_phase1(const char* name, Tensor self, Tensor mat2, TensorRef out, int8_t cube_math_type, int64_t rank,
                   bool fractal, uint64_t* size, aclOpExecutor** executor) {
  Operator op(name, size, executor, fractal ? Since::Cann85 : Since::Cann81);
  const Slot a = op.in("self", self, matrix_walk(self)), b = op.in("mat2", mat2, matrix_walk(mat2));
  const Slot y = op.out("out", out);
  op.attributes({cube_math_type});
  if (!op.ok()) return op.status();
  if (rank != 0) {
    op.rank(a, rank, rank);
    op.rank(b, rank, rank);
  }
  if (fractal) op.valid(op[b].fractal(), "mat2 must be FRACTAL_NZ (29), not format " + std::to_string(op[b].format));
  check_product(op, a, b, y, cube_math_type);
  return op.finish(Unit::Cube, operations(op[a], op[y]), [=](const Operands& v) { write(v[y], products(v[a], v[b])); });
}

// Plain rows become fractal in place.
void make_fractal(const View& view) {
  const int64_t rows = view.dim(-2), columns = view.dim(-1), element = view.element();
  const Dims storage = fractal_shape(rows, columns, view.dtype);
  const int64_t plain = rows * columns, batches = plain ? view.count() / plain : 0;
  char* base = at<char>(view);
  const std::vector<char> source(base, base + view.count() * element);
  std::memset(base, 0, static_cast<size_t>(batches * product(storage) * element));
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t place = batch * product(storage) + fractal_place(rows, row, column, fractal_width(view.dtype));
        std::memcpy(base + place * element, source.data() + (batch * plain + row * columns + column) * element,
                    static_cast<size_t>(element));
      }
    }
  }
}

aclnnStatus weight_size(const char* name, Ints shape, aclDataType dtype, size_t most, uint64_t* size) {
  if (shape == nullptr || size == nullptr) return fail(kNullPointer, std::string(name) + ": an argument is null");
  if (!live(shape)) return fail(kInvalid, std::string(name) + ": tensorShape was destroyed or never created");
  const Dims& dims = shape->values;
  if (dims.size() < 2 || dims.size() > most) {
    return fail(kInvalid, std::string(name) + ": tensorShape " + text_of(dims) + " needs 2" +
                              (most > 2 ? " to " + std::to_string(most) : "") + " dimensions");
  }
  if (dtype != kHalf && dtype != kBf16 && dtype != kInt8) {
    return fail(kInvalid,
                std::string(name) + ": the data type is " + name_of(dtype) + "; it may be FLOAT16, BF16, INT8");
  }
  const Dims storage = fractal_shape(dims[dims.size() - 2], dims[dims.size() - 1], dtype);
  *size = static_cast<uint64_t>(product(storage) * product(Dims(dims.begin(), dims.end() - 2)));
  return 0;
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnMmGetWorkspaceSize(Tensor self, Tensor mat2, TensorRef out, int8_t cubeMathType,
                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return product_phase1("aclnnMm", self, mat2, out, cubeMathType, 2, false, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnMm);

aclnnStatus aclnnMatmulGetWorkspaceSize(Tensor self, Tensor mat2, TensorRef out, int8_t cubeMathType,
                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  return product_phase1("aclnnMatmul", self, mat2, out, cubeMathType, 0, false, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnMatmul);

aclnnStatus aclnnBatchMatMulGetWorkspaceSize(Tensor self, Tensor mat2, TensorRef out, int8_t cubeMathType,
                                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return product_phase1("aclnnBatchMatMul", self, mat2, out, cubeMathType, 3, false, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnBatchMatMul);

aclnnStatus aclnnMatmulWeightNzGetWorkspaceSize(Tensor self, Tensor mat2, TensorRef out, int8_t cubeMathType,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return product_phase1("aclnnMatmulWeightNz", self, mat2, out, cubeMathType, 0, true, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnMatmulWeightNz);

aclnnStatus aclnnAddmmGetWorkspaceSize(Tensor self, Tensor mat1, Tensor mat2, Scalar beta, Scalar alpha, TensorRef out,
                                       int8_t cubeMathType, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnAddmm", workspaceSize, executor);
  const Slot added = op.in("self", self);
  const Slot a = op.in("mat1", mat1, matrix_walk(mat1)), b = op.in("mat2", mat2, matrix_walk(mat2));
  const auto old = static_cast<float>(op.number("beta", beta)), fresh = static_cast<float>(op.number("alpha", alpha));
  const Slot y = op.out("out", out);
  op.attributes({cubeMathType});
  if (!op.ok()) return op.status();
  op.rank(a, 2, 2);
  op.rank(b, 2, 2);
  check_product(op, a, b, y, cubeMathType);
  op.same_dtype(added, a);
  op.valid(broadcast(op[added].shape, op[y].shape) == op[y].shape,
           "self " + text_of(op[added].shape) + " does not broadcast to out " + text_of(op[y].shape));
  return op.finish(Unit::Cube, operations(op[a], op[y]), [=](const Operands& v) {
    std::vector<float> sums = products(v[a], v[b]);
    const std::vector<float> others = read_as<float>(v[added], v[y].shape);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = old * others[i] + fresh * sums[i];
    write(v[y], sums);
  });
}
ACLNN_PHASE2(aclnnAddmm);

// The tensor itself says FRACTAL_NZ from phase 1 on, so that the same handle can be passed on as a weight.
aclnnStatus aclnnTransMatmulWeightGetWorkspaceSize(TensorRef mmWeightRef, uint64_t* workspaceSize,
                                                   aclOpExecutor** executor) {
  Operator op("aclnnTransMatmulWeight", workspaceSize, executor);
  const Slot weight = op.ref("mmWeightRef", mmWeightRef, Walk::Strides);
  if (!op.ok()) return op.status();
  op.dtype(weight, {kHalf, kBf16, kInt8});
  op.rank(weight, 2, 6);
  op.valid(!op[weight].fractal(), "mmWeightRef is FRACTAL_NZ already");
  op.valid(op[weight].packed(), "mmWeightRef must be packed");
  op.once("it converts its weight in place");
  if (!op.ok()) return op.status();
  Dims storage(op[weight].shape.begin(), op[weight].shape.end() - 2);
  const Dims matrix = fractal_shape(op[weight].dim(-2), op[weight].dim(-1), op[weight].dtype);
  storage.insert(storage.end(), matrix.begin(), matrix.end());
  op.reach(weight, product(storage));
  const int status = op.finish(Unit::Vector, 0, [=](const Operands& v) { make_fractal(v[weight]); });
  if (status == 0) {
    mmWeightRef->view.format = kFractalNz;
    mmWeightRef->view.storage = storage;
  }
  return status;
}
ACLNN_PHASE2(aclnnTransMatmulWeight);

// In elements, not bytes.
aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray* tensorShape, uint64_t* weightTensorSize) {
  return weight_size("aclnnCalculateMatmulWeightSize", tensorShape, kHalf, 2, weightTensorSize);
}
aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, aclDataType dataType,
                                             uint64_t* weightTensorSize) {
  return weight_size("aclnnCalculateMatmulWeightSizeV2", tensorShape, dataType, 6, weightTensorSize);
}

}  // extern "C"
