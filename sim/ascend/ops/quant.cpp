// Quantising to int8: with given scales, with a scale per row, and the packed form of scales.
#include <cmath>

#include "ascend/ops/check.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

float rounded_as(const std::string& mode, float value) {
  if (mode == "floor") return std::floor(value);
  if (mode == "ceil") return std::ceil(value);
  if (mode == "trunc") return std::trunc(value);
  return std::nearbyint(value);
}

int static_quant(const char* name, Tensor x, Tensor scale, Tensor offset, bool sqrt_mode, const char* round_mode,
                 int32_t type, int64_t axis, Tensor y, uint64_t* size, aclOpExecutor** executor) {
  Operator op(name, size, executor);
  const Slot in = op.in("x", x), factor = op.in("scale", scale), shift = op.maybe_in("offset", offset);
  const std::string mode = op.text(round_mode);
  const Slot out = op.out("y", y);
  op.attributes({sqrt_mode, type, axis});
  op.valid(mode == "round" || mode == "floor" || mode == "ceil" || mode == "trunc",
           "roundMode \"" + mode + "\" may be round, floor, ceil or trunc");
  op.valid(type == kInt8 || type == kInt32 || type == kInt4,
           "dstType is " + std::to_string(type) + "; it may be 2, 3 or 29");
  op.present(type == kInt8, "only dstType 2 (INT8) is simulated");
  if (!op.ok()) return op.status();
  op.dtype(in, {kFloat, kHalf, kBf16});
  op.same_dtype(factor, in);
  op.same_dtype(shift, in);
  op.dtype(out, {kInt8});
  op.shape(out, op[in].shape);
  const int64_t at_axis = axis_of(axis, op[in].rank());
  op.valid(at_axis >= 0 && at_axis >= op[in].rank() - 2,
           "axis is " + std::to_string(axis) + "; it may be one of the last two");
  if (!op.ok()) return op.status();
  const Split split = split_at(op[in].shape, at_axis);
  op.valid(op[factor].count() == 1 || op[factor].count() == split.size,
           "scale " + text_of(op[factor].shape) + " needs 1 or " + std::to_string(split.size) + " elements");
  op.valid(!op.given(shift) || op[shift].count() == op[factor].count(), "offset and scale differ in size");
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()) * 3, [=](const Operands& v) {
    std::vector<float> values = read(v[in]);
    const std::vector<float> scales = read(v[factor]), shifts = v[shift].given ? read(v[shift]) : std::vector<float>{0};
    for (size_t i = 0; i < values.size(); ++i) {
      const auto place = static_cast<size_t>(static_cast<int64_t>(i) / split.inner % split.size);
      const float by = scales[scales.size() == 1 ? 0 : place];
      const float scaled = values[i] * (sqrt_mode ? by * by : by) + shifts[shifts.size() == 1 ? 0 : place];
      values[i] = to_int8(rounded_as(mode, scaled));
    }
    write(v[out], values);
  });
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnAscendQuantGetWorkspaceSize(Tensor x, Tensor scale, Tensor offset, bool sqrtMode,
                                             const char* roundMode, int32_t dstType, Tensor y, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  return static_quant("aclnnAscendQuant", x, scale, offset, sqrtMode, roundMode, dstType, -1, y, workspaceSize,
                      executor);
}
ACLNN_PHASE2(aclnnAscendQuant);

aclnnStatus aclnnAscendQuantV3GetWorkspaceSize(Tensor x, Tensor scale, Tensor offset, bool sqrtMode,
                                               const char* roundMode, int32_t dstType, int32_t axis, Tensor y,
                                               uint64_t* workspaceSize, aclOpExecutor** executor) {
  return static_quant("aclnnAscendQuantV3", x, scale, offset, sqrtMode, roundMode, dstType, axis, y, workspaceSize,
                      executor);
}
ACLNN_PHASE2(aclnnAscendQuantV3);

aclnnStatus aclnnDynamicQuantGetWorkspaceSize(Tensor x, Tensor smoothScalesOptional, Tensor yOut, Tensor scaleOut,
                                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnDynamicQuant", workspaceSize, executor);
  const Slot in = op.in("x", x), smooth = op.maybe_in("smoothScalesOptional", smoothScalesOptional);
  const Slot out = op.out("yOut", yOut), scale = op.out("scaleOut", scaleOut);
  if (!op.ok()) return op.status();
  op.dtype(in, {kHalf, kBf16});
  op.same_dtype(smooth, in);
  op.dtype(out, {kInt8});
  op.dtype(scale, {kFloat});
  op.rank(in, 2, 8);
  op.shape(out, op[in].shape);
  op.shape(scale, row_shape(op[in]));
  op.shape(smooth, {op[in].dim(-1)});
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()) * 4, [=](const Operands& v) {
    const int64_t width = v[in].dim(-1), rows = v[scale].count();
    const std::vector<float> factors = v[smooth].given ? read(v[smooth]) : std::vector<float>{};
    std::vector<float> row(static_cast<size_t>(width));
    std::vector<int8_t> bytes(row.size());
    for (int64_t i = 0; i < rows; ++i) {
      read_row(v[in], i, width, row.data());
      for (size_t j = 0; j < factors.size(); ++j) row[j] *= factors[j];
      const float s = quantise_row(row.data(), width, bytes.data());
      write_row(v[out], i, width, bytes.data());
      write_row(v[scale], i, 1, &s);
    }
  });
}
ACLNN_PHASE2(aclnnDynamicQuant);

// The matrix unit keeps 19 bits of a scale, in the low half of 64 bits of which one more is set.
aclnnStatus aclnnTransQuantParamV2GetWorkspaceSize(Tensor scale, Tensor offset, Tensor out, uint64_t* workspaceSize,
                                                   aclOpExecutor** executor) {
  Operator op("aclnnTransQuantParamV2", workspaceSize, executor);
  const Slot in = op.in("scale", scale);
  op.absent("offset", offset);
  const Slot y = op.out("out", out);
  if (!op.ok()) return op.status();
  op.dtype(in, {kFloat});
  op.dtype(y, {kUint64, kInt64});
  op.shape(y, op[in].shape);
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()), [=](const Operands& v) {
    std::vector<uint64_t> packed;
    for (const float value : read(v[in])) {
      packed.push_back((std::bit_cast<uint32_t>(value) & 0xFFFFE000u) | uint64_t{1} << 46);
    }
    write(v[y], packed);
  });
}
ACLNN_PHASE2(aclnnTransQuantParamV2);

}  // extern "C"
