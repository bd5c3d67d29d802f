// Root mean square norms, alone and behind a sum.
#include "ascend/ops/norm.h"

#include <cmath>

#include "ascend/ops/check.h"

namespace ascend_sim {

float norm_row(const float* x, const float* gamma, int64_t width, float epsilon, float* y) {
  float sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
  const float rstd = 1 / std::sqrt(sum / static_cast<float>(width) + epsilon);
  for (int64_t i = 0; i < width; ++i) y[i] = x[i] * rstd * gamma[i];
  return rstd;
}

namespace {

// A gamma of [1, H] is one of [H].
Dims without_ones(const Dims& shape) {
  size_t first = 0;
  while (first + 1 < shape.size() && shape[first] == 1) ++first;
  return {shape.begin() + static_cast<int64_t>(first), shape.end()};
}

}  // namespace

Dims rstd_shape(const View& x, const View& gamma) {
  Dims shape = x.shape;
  const size_t kept = shape.size() - std::min(shape.size(), without_ones(gamma.shape).size());
  std::fill(shape.begin() + static_cast<int64_t>(kept), shape.end(), 1);
  return shape;
}

bool trailing(Operator& op, Slot x, Slot gamma) {
  const Dims &whole = op[x].shape, tail = without_ones(op[gamma].shape);
  const bool fits =
      !tail.empty() && tail.size() <= whole.size() && std::equal(tail.rbegin(), tail.rend(), whole.rbegin());
  return op.valid(fits, "gamma " + text_of(tail) + " must be the last dimensions of x " + text_of(whole));
}

namespace {

void floats(Operator& op, Slot x) { op.dtype(x, {kFloat, kHalf, kBf16}); }

struct Sum {
  Slot x1, x2, gamma, y, rstd, sum;
};

int finish_sum(Operator& op, const Sum& s, double epsilon) {
  const double elements = static_cast<double>(op[s.x1].count());
  return op.finish(Unit::Vector, elements * 6, [=](const Operands& v) {
    const int64_t width = v[s.gamma].count(), rows = width ? v[s.x1].count() / width : 0;
    const std::vector<float> gamma = read(v[s.gamma]);
    std::vector<float> a(gamma.size()), b(gamma.size());
    for (int64_t row = 0; row < rows; ++row) {
      read_row(v[s.x1], row, width, a.data());
      read_row(v[s.x2], row, width, b.data());
      for (size_t i = 0; i < a.size(); ++i) a[i] = rounded(v[s.x1].dtype, a[i] + b[i]);
      if (v[s.sum].given) write_row(v[s.sum], row, width, a.data());
      const float rstd = norm_row(a.data(), gamma.data(), width, static_cast<float>(epsilon), b.data());
      write_row(v[s.y], row, width, b.data());
      if (v[s.rstd].given) write_row(v[s.rstd], row, 1, &rstd);
    }
  });
}

void check_sum(Operator& op, const Sum& s) {
  floats(op, s.x1);
  for (const Slot slot : {s.x2, s.gamma, s.y, s.sum}) op.same_dtype(slot, s.x1);
  for (const Slot slot : {s.x2, s.y, s.sum}) op.shape(slot, op[s.x1].shape);
  op.dtype(s.rstd, {kFloat});
  if (trailing(op, s.x1, s.gamma)) op.shape(s.rstd, rstd_shape(op[s.x1], op[s.gamma]));
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnRmsNormGetWorkspaceSize(Tensor x, Tensor gamma, double epsilon, Tensor yOut, Tensor rstdOut,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnRmsNorm", workspaceSize, executor);
  const Slot in = op.in("x", x), weight = op.in("gamma", gamma);
  const Slot y = op.out("yOut", yOut), rstd = op.out("rstdOut", rstdOut);
  op.attribute(epsilon);
  if (!op.ok()) return op.status();
  floats(op, in);
  op.same_dtype(y, in);
  op.dtype(weight, {op[in].dtype, kFloat});
  op.dtype(rstd, {kFloat});
  op.shape(y, op[in].shape);
  if (trailing(op, in, weight)) op.shape(rstd, rstd_shape(op[in], op[weight]));
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()) * 4, [=](const Operands& v) {
    const int64_t width = v[weight].count(), rows = width ? v[in].count() / width : 0;
    const std::vector<float> scale = read(v[weight]);
    std::vector<float> a(scale.size()), b(scale.size());
    for (int64_t row = 0; row < rows; ++row) {
      read_row(v[in], row, width, a.data());
      const float r = norm_row(a.data(), scale.data(), width, static_cast<float>(epsilon), b.data());
      write_row(v[y], row, width, b.data());
      write_row(v[rstd], row, 1, &r);
    }
  });
}
ACLNN_PHASE2(aclnnRmsNorm);

// The newest version does without rstd and the sum, but only for a gamma of one row.
aclnnStatus aclnnAddRmsNormGetWorkspaceSize(Tensor x1, Tensor x2, Tensor gamma, double epsilon, TensorRef yOut,
                                            TensorRef rstdOut, TensorRef xOut, uint64_t* workspaceSize,
                                            aclOpExecutor** executor) {
  Operator op("aclnnAddRmsNorm", workspaceSize, executor);
  Sum s;
  s.x1 = op.in("x1", x1), s.x2 = op.in("x2", x2), s.gamma = op.in("gamma", gamma);
  const View& scale = op[s.gamma];
  const bool may_lack = machine().cann != Cann::V8_1 && scale.given && scale.rank() == 2 && scale.dim(0) == 1;
  s.y = op.out("yOut", yOut);
  s.rstd = may_lack ? op.maybe_out("rstdOut", rstdOut) : op.out("rstdOut", rstdOut);
  s.sum = may_lack ? op.maybe_out("xOut", xOut) : op.out("xOut", xOut);
  op.attribute(epsilon);
  if (!op.ok()) return op.status();
  check_sum(op, s);
  return finish_sum(op, s, epsilon);
}
ACLNN_PHASE2(aclnnAddRmsNorm);

// x1 becomes the norm and x2 the sum.
aclnnStatus aclnnInplaceAddRmsNormGetWorkspaceSize(TensorRef x1Ref, TensorRef x2Ref, Tensor gamma, double epsilon,
                                                   Tensor rstdOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnInplaceAddRmsNorm", workspaceSize, executor, Since::Cann85);
  Sum s;
  s.x1 = s.y = op.ref("x1Ref", x1Ref), s.x2 = s.sum = op.ref("x2Ref", x2Ref);
  s.gamma = op.in("gamma", gamma), s.rstd = op.out("rstdOut", rstdOut);
  op.attribute(epsilon);
  if (!op.ok()) return op.status();
  check_sum(op, s);
  return finish_sum(op, s, epsilon);
}
ACLNN_PHASE2(aclnnInplaceAddRmsNorm);

}  // extern "C"
