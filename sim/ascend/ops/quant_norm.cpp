// A sum, its norm and the norm's int8 form in one kernel.
#include "ascend/ops/check.h"
#include "ascend/ops/norm.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

struct QuantNorm {
  Slot x1, x2, gamma, sum;
  float epsilon = 0;
};

// What both operators check of their sum.
void check_sum(Operator& op, const QuantNorm& n) {
  op.dtype(n.x1, {kHalf, kBf16});
  for (const Slot slot : {n.x2, n.gamma, n.sum}) op.same_dtype(slot, n.x1);
  for (const Slot slot : {n.x2, n.sum}) op.shape(slot, op[n.x1].shape);
  op.rank(n.gamma, 1, 1);
  op.rank(n.x1, 2, 8);
  trailing(op, n.x1, n.gamma);
}

// Calls f(row, norm) for each row after its sum was written.
template <typename F>
void for_norms(const Operands& v, const QuantNorm& n, F&& f) {
  const int64_t width = v[n.gamma].count(), rows = width ? v[n.x1].count() / width : 0;
  const std::vector<float> gamma = read(v[n.gamma]);
  std::vector<float> a(gamma.size()), b(gamma.size());
  for (int64_t row = 0; row < rows; ++row) {
    read_row(v[n.x1], row, width, a.data());
    read_row(v[n.x2], row, width, b.data());
    for (size_t i = 0; i < a.size(); ++i) a[i] = rounded(v[n.x1].dtype, a[i] + b[i]);
    write_row(v[n.sum], row, width, a.data());
    norm_row(a.data(), gamma.data(), width, n.epsilon, b.data());
    f(row, b);
  }
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnAddRmsNormQuantGetWorkspaceSize(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1,
                                                 Tensor scales2Optional, Tensor zeroPoints1Optional,
                                                 Tensor zeroPoints2Optional, int64_t axis, double epsilon, bool divMode,
                                                 TensorRef y1Out, TensorRef y2Out, TensorRef xOut,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnAddRmsNormQuant", workspaceSize, executor);
  QuantNorm n;
  n.x1 = op.in("x1", x1), n.x2 = op.in("x2", x2), n.gamma = op.in("gamma", gamma);
  const Slot scales[] = {op.in("scales1", scales1), op.maybe_in("scales2Optional", scales2Optional)};
  const Slot zeros[] = {op.maybe_in("zeroPoints1Optional", zeroPoints1Optional),
                        op.maybe_in("zeroPoints2Optional", zeroPoints2Optional)};
  const Slot outs[] = {op.out("y1Out", y1Out), op.out("y2Out", y2Out)};
  n.sum = op.out("xOut", xOut);
  n.epsilon = static_cast<float>(epsilon);
  op.attributes({axis, divMode});
  op.attribute(epsilon);
  if (!op.ok()) return op.status();
  check_sum(op, n);
  op.tiled(divMode, "divMode must be true");
  op.tiled(axis == -1, "axis is " + std::to_string(axis) + "; it must be -1");
  const bool half = op[n.x1].dtype == kHalf;
  for (const int i : {0, 1}) {
    op.dtype(scales[i], {half ? kFloat : kBf16});
    op.dtype(zeros[i], {half ? kInt32 : kBf16});
    op.shape(scales[i], op[n.gamma].shape);
    op.shape(zeros[i], op[n.gamma].shape);
    if (!op.given(scales[i])) continue;
    op.dtype(outs[i], {kInt8});
    op.shape(outs[i], op[n.x1].shape);
  }
  op.tiled(op.given(scales[1]) || !op.given(zeros[1]), "zeroPoints2Optional needs scales2Optional");
  const Slot scale1 = scales[0], scale2 = scales[1], zero1 = zeros[0], zero2 = zeros[1], out1 = outs[0], out2 = outs[1];
  double bytes = op.bytes_of_all();
  if (!op.given(scale2)) bytes -= op[out2].bytes();
  return op.finish(
      Unit::Vector, static_cast<double>(op[n.x1].count()) * 9,
      [=](const Operands& v) {
        std::vector<float> divisors[2], shifts[2];
        for (const size_t i : {0, 1}) {
          const View &scale = v[i ? scale2 : scale1], &zero = v[i ? zero2 : zero1];
          if (!scale.given) continue;
          divisors[i] = read(scale);
          shifts[i] = zero.given ? read(zero) : std::vector<float>(divisors[i].size(), 0.0f);
        }
        std::vector<int8_t> row_out(divisors[0].size());
        for_norms(v, n, [&](int64_t row, const std::vector<float>& y) {
          for (const size_t i : {0, 1}) {
            if (divisors[i].empty()) continue;
            for (size_t j = 0; j < y.size(); ++j) row_out[j] = to_int8(y[j] / divisors[i][j] + shifts[i][j]);
            write_row(v[i ? out2 : out1], row, static_cast<int64_t>(y.size()), row_out.data());
          }
        });
      },
      bytes);
}
ACLNN_PHASE2(aclnnAddRmsNormQuant);

aclnnStatus aclnnAddRmsNormDynamicQuantGetWorkspaceSize(Tensor x1, Tensor x2, Tensor gamma, Tensor smoothScale1Optional,
                                                        Tensor smoothScale2Optional, double epsilon, TensorRef y1Out,
                                                        TensorRef y2Out, TensorRef xOut, TensorRef scale1Out,
                                                        TensorRef scale2Out, uint64_t* workspaceSize,
                                                        aclOpExecutor** executor) {
  Operator op("aclnnAddRmsNormDynamicQuant", workspaceSize, executor);
  QuantNorm n;
  n.x1 = op.in("x1", x1), n.x2 = op.in("x2", x2), n.gamma = op.in("gamma", gamma);
  const Slot smooth1 = op.maybe_in("smoothScale1Optional", smoothScale1Optional);
  const Slot smooth2 = op.maybe_in("smoothScale2Optional", smoothScale2Optional);
  const Slot out1 = op.out("y1Out", y1Out), out2 = op.out("y2Out", y2Out);
  n.sum = op.out("xOut", xOut);
  const Slot scale1 = op.out("scale1Out", scale1Out), scale2 = op.out("scale2Out", scale2Out);
  n.epsilon = static_cast<float>(epsilon);
  op.attribute(epsilon);
  if (!op.ok()) return op.status();
  check_sum(op, n);
  const bool both = op.given(smooth2);
  op.tiled(!both || op.given(smooth1), "smoothScale2Optional needs smoothScale1Optional");
  for (const Slot smooth : {smooth1, smooth2}) {
    op.same_dtype(smooth, n.x1);
    op.shape(smooth, op[n.gamma].shape);
  }
  op.dtype(out1, {kInt8});
  op.dtype(scale1, {kFloat});
  op.shape(out1, op[n.x1].shape);
  op.shape(scale1, row_shape(op[n.x1]));
  if (both) {
    op.dtype(out2, {kInt8});
    op.dtype(scale2, {kFloat});
    op.shape(out2, op[n.x1].shape);
    op.shape(scale2, row_shape(op[n.x1]));
  }
  const double bytes = op.bytes_of_all() - (both ? 0 : op[out2].bytes() + op[scale2].bytes());
  return op.finish(
      Unit::Vector, static_cast<double>(op[n.x1].count()) * (both ? 15 : 11),
      [=](const Operands& v) {
        const std::vector<float> first = v[smooth1].given ? read(v[smooth1]) : std::vector<float>{};
        const std::vector<float> second = both ? read(v[smooth2]) : std::vector<float>{};
        std::vector<int8_t> bytes_out(static_cast<size_t>(v[n.gamma].count()));
        std::vector<float> smoothed(bytes_out.size());
        for_norms(v, n, [&](int64_t row, const std::vector<float>& y) {
          const auto width = static_cast<int64_t>(y.size());
          for (const bool other : {false, true}) {
            if (other && !both) break;
            const std::vector<float>& smooth = other ? second : first;
            smoothed = y;
            for (size_t i = 0; i < smooth.size(); ++i) smoothed[i] *= smooth[i];
            const float scale = quantise_row(smoothed.data(), width, bytes_out.data());
            write_row(v[other ? out2 : out1], row, width, bytes_out.data());
            write_row(v[other ? scale2 : scale1], row, 1, &scale);
          }
        });
      },
      bytes);
}
ACLNN_PHASE2(aclnnAddRmsNormDynamicQuant);

}  // extern "C"
