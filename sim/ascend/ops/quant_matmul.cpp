// Products of int8 matrices with their scales: what a result may be made of is one table for all versions.
#include "ascend/ops/check.h"
#include "ascend/ops/matrix.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

struct QuantProduct {
  Slot x1, x2, scale, per_token, offset, bias, out;
  bool transpose1 = false, transpose2 = false;
};

// How many rows, columns and summands there are once the operands are turned.
struct Extent {
  int64_t rows = 0, depth = 0, columns = 0;
};

Extent extent_of(const View& x1, const View& x2, const QuantProduct& q) {
  Extent e;
  e.depth = q.transpose1 ? x1.dim(0) : x1.dim(-1);
  e.rows = e.depth ? x1.count() / e.depth : 0;
  e.columns = x2.dim(q.transpose2 ? -2 : -1);
  return e;
}

Matrix turned(Matrix matrix) {
  std::swap(matrix.rows, matrix.columns);
  std::swap(matrix.row_step, matrix.column_step);
  matrix.swapped = !matrix.swapped;
  return matrix;
}

// One row of the documented table: the types of the scales, of the bias and of the offset that a result may have.
void check_types(Operator& op, const QuantProduct& q) {
  const aclDataType out = op[q.out].dtype;
  const bool tokens = op.given(q.per_token);
  op.dtype(q.out, {kBf16, kHalf, kInt8, kInt32});
  op.dtype(q.per_token, {kFloat});
  const std::string made = "an out of " + name_of(out);
  if (out == kBf16) {
    op.dtype(q.scale, {kFloat, kBf16});
    op.dtype(q.bias, {kInt32, kBf16, kFloat});
  } else if (out == kHalf && tokens) {
    op.dtype(q.scale, {kFloat});
    op.dtype(q.bias, {kInt32, kHalf, kFloat});
  } else if (out == kInt32) {
    op.dtype(q.scale, {kFloat, kBf16});
    op.dtype(q.bias, {kInt32});
  } else {
    op.dtype(q.scale, {kUint64, kInt64});
    op.dtype(q.bias, {kInt32});
  }
  op.valid(!tokens || out == kBf16 || out == kHalf, made + " takes no scale per token");
  op.valid(!op.given(q.offset) || out == kInt8, made + " takes no offset");
  op.dtype(q.offset, {kFloat});
}

void compute(const Operands& v, const QuantProduct& q) {
  const Extent e = extent_of(v[q.x1], v[q.x2], q);
  Matrix left = matrix_of(v[q.x1]), right = matrix_of(v[q.x2]);
  if (q.transpose1) {
    left = turned(left);
  } else {  // leading dimensions are more rows
    left.rows = e.rows;
    left.columns = left.row_step = e.depth;
    left.column_step = 1;
  }
  if (q.transpose2) right = turned(right);
  std::vector<int32_t> sums(static_cast<size_t>(e.rows * e.columns));
  multiply(left, right, sums.data());
  const auto optional = [&](Slot slot) { return v[slot].given ? read_scales(v[slot]) : std::vector<float>{}; };
  const bool whole_bias = v[q.bias].given && v[q.bias].dtype == kInt32;
  const std::vector<int32_t> added = whole_bias ? read<int32_t>(v[q.bias]) : std::vector<int32_t>{};
  const std::vector<float> bias = whole_bias ? std::vector<float>{} : optional(q.bias);
  const std::vector<float> scales = optional(q.scale), tokens = optional(q.per_token), offsets = optional(q.offset);
  const aclDataType out = v[q.out].dtype;
  std::vector<float> line(static_cast<size_t>(e.columns));
  for (int64_t m = 0; m < e.rows; ++m) {
    int32_t* row = sums.data() + m * e.columns;
    for (size_t n = 0; n < added.size(); ++n) row[n] += added[n];
    if (out == kInt32) {  // scales are asked for and not applied
      write_row(v[q.out], m, e.columns, row);
      continue;
    }
    for (int64_t n = 0; n < e.columns; ++n) {
      const auto at_column = static_cast<size_t>(n);
      float value = static_cast<float>(row[n]) * scales[scales.size() == 1 ? 0 : at_column];
      if (!tokens.empty()) value *= tokens[static_cast<size_t>(m)];
      if (!bias.empty()) value += bias[at_column];
      if (!offsets.empty()) value += offsets[offsets.size() == 1 ? 0 : at_column];
      line[at_column] = out == kInt8 ? to_int8(value) : value;
    }
    write_row(v[q.out], m, e.columns, line.data());
  }
}

int finish_product(Operator& op, const QuantProduct& q, bool fractal) {
  op.attributes({q.transpose1, q.transpose2});
  if (!op.ok()) return op.status();
  op.dtype(q.x1, {kInt8});
  op.dtype(q.x2, {kInt8});
  op.rank(q.x1, 2, q.transpose1 ? 2 : 6);
  op.rank(q.x2, 2, 2);
  if (fractal)
    op.valid(op[q.x2].fractal(), "x2 must be FRACTAL_NZ (29), not format " + std::to_string(op[q.x2].format));
  check_fractal(op, q.x2, "x2");
  check_types(op, q);
  if (!op.ok()) return op.status();
  const Extent e = extent_of(op[q.x1], op[q.x2], q);
  const std::string shapes = text_of(op[q.x1].shape) + " and " + text_of(op[q.x2].shape);
  op.valid(op[q.x2].dim(q.transpose2 ? -1 : -2) == e.depth, "the inner dimensions of " + shapes + " differ");
  Dims expected = q.transpose1 ? Dims{e.rows} : row_shape(op[q.x1]);
  expected.push_back(e.columns);
  op.shape(q.out, expected);
  const auto columns = [&](Slot slot, const char* name, bool or_one) {
    if (!op.given(slot)) return;
    const bool fits = op[slot].count() == e.columns || (or_one && op[slot].count() == 1);
    op.valid(op[slot].rank() <= 2 && fits, std::string(name) + " " + text_of(op[slot].shape) + " needs " +
                                               std::to_string(e.columns) + " elements" + (or_one ? ", or 1" : ""));
  };
  columns(q.scale, "the scale of x2", true);
  columns(q.offset, "the offset of x2", true);
  columns(q.bias, "bias", false);
  op.valid(!op.given(q.per_token) || op[q.per_token].count() == e.rows,
           "the scale per token needs " + std::to_string(e.rows) + " elements");
  const double operations =
      2.0 * static_cast<double>(e.rows) * static_cast<double>(e.columns) * static_cast<double>(e.depth);
  return op.finish(Unit::CubeInt8, operations, [=](const Operands& v) { compute(v, q); });
}

// The newest argument list, which two operators share.
struct Named {
  Tensor x1, x2, x1_scale, x2_scale, y_scale, x1_offset, x2_offset, y_offset, bias;
  bool transpose1, transpose2;
  int64_t group;
  Tensor out;
};

int named_product(Operator& op, const Named& a, bool fractal) {
  QuantProduct q;
  q.x1 = op.in("x1", a.x1, a.transpose1 ? matrix_walk(a.x1) : Walk::Packed);
  q.x2 = op.in("x2", a.x2, matrix_walk(a.x2));
  q.per_token = op.maybe_in("x1Scale", a.x1_scale);
  q.scale = op.in("x2Scale", a.x2_scale);
  op.absent("yScale", a.y_scale);
  op.absent("x1Offset", a.x1_offset);
  q.offset = op.maybe_in("x2Offset", a.x2_offset);
  op.absent("yOffset", a.y_offset);
  q.bias = op.maybe_in("bias", a.bias);
  q.transpose1 = a.transpose1, q.transpose2 = a.transpose2;
  op.tiled(a.group == 0, "groupSize must be 0: products in groups are not simulated");
  q.out = op.out("out", a.out);
  return finish_product(op, q, fractal);
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnQuantMatmulV3GetWorkspaceSize(Tensor x1, Tensor x2, Tensor scale, Tensor offset, Tensor bias,
                                               bool transposeX1, bool transposeX2, Tensor out, uint64_t* workspaceSize,
                                               aclOpExecutor** executor) {
  Operator op("aclnnQuantMatmulV3", workspaceSize, executor);
  QuantProduct q;
  q.x1 = op.in("x1", x1, transposeX1 ? matrix_walk(x1) : Walk::Packed), q.x2 = op.in("x2", x2, matrix_walk(x2));
  q.scale = op.in("scale", scale), q.offset = op.maybe_in("offset", offset), q.bias = op.maybe_in("bias", bias);
  q.transpose1 = transposeX1, q.transpose2 = transposeX2;
  q.out = op.out("out", out);
  q.per_token = op.maybe_in("", nullptr);
  return finish_product(op, q, false);
}
ACLNN_PHASE2(aclnnQuantMatmulV3);

aclnnStatus aclnnQuantMatmulV4GetWorkspaceSize(Tensor x1, Tensor x2, Tensor scale, Tensor offset,
                                               Tensor pertokenScaleOptional, Tensor bias, bool transposeX1,
                                               bool transposeX2, Tensor out, uint64_t* workspaceSize,
                                               aclOpExecutor** executor) {
  Operator op("aclnnQuantMatmulV4", workspaceSize, executor);
  QuantProduct q;
  q.x1 = op.in("x1", x1, transposeX1 ? matrix_walk(x1) : Walk::Packed), q.x2 = op.in("x2", x2, matrix_walk(x2));
  q.scale = op.in("scale", scale), q.offset = op.maybe_in("offset", offset);
  q.per_token = op.maybe_in("pertokenScaleOptional", pertokenScaleOptional), q.bias = op.maybe_in("bias", bias);
  q.transpose1 = transposeX1, q.transpose2 = transposeX2;
  q.out = op.out("out", out);
  return finish_product(op, q, false);
}
ACLNN_PHASE2(aclnnQuantMatmulV4);

aclnnStatus aclnnQuantMatmulV5GetWorkspaceSize(Tensor x1, Tensor x2, Tensor x1Scale, Tensor x2Scale, Tensor yScale,
                                               Tensor x1Offset, Tensor x2Offset, Tensor yOffset, Tensor bias,
                                               bool transposeX1, bool transposeX2, int64_t groupSize, TensorRef out,
                                               uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnQuantMatmulV5", workspaceSize, executor, Since::Cann85);
  return named_product(
      op,
      {x1, x2, x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias, transposeX1, transposeX2, groupSize, out},
      false);
}
ACLNN_PHASE2(aclnnQuantMatmulV5);

aclnnStatus aclnnQuantMatmulWeightNzGetWorkspaceSize(Tensor x1, Tensor x2, Tensor x1Scale, Tensor x2Scale,
                                                     Tensor yScale, Tensor x1Offset, Tensor x2Offset, Tensor yOffset,
                                                     Tensor bias, bool transposeX1, bool transposeX2, int64_t groupSize,
                                                     TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnQuantMatmulWeightNz", workspaceSize, executor);
  return named_product(
      op,
      {x1, x2, x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias, transposeX1, transposeX2, groupSize, out},
      true);
}
ACLNN_PHASE2(aclnnQuantMatmulWeightNz);

}  // extern "C"
