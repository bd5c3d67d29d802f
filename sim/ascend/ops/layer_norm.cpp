// LayerNorm over the last dimensions.
#include <cmath>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

struct Normed {
  Slot x, weight, bias, y, mean, rstd;
};

void norm_rows(const Normed& s, int64_t width, double epsilon, const Operands& v) {
  const int64_t rows = width ? v[s.x].count() / width : 0;
  const std::vector<float> weight = v[s.weight].given ? read(v[s.weight]) : std::vector<float>();
  const std::vector<float> bias = v[s.bias].given ? read(v[s.bias]) : std::vector<float>();
  std::vector<float> x(static_cast<size_t>(width));
  for (int64_t row = 0; row < rows; ++row) {
    read_row(v[s.x], row, width, x.data());
    float sum = 0, squares = 0;
    for (const float value : x) sum += value;
    const float mean = sum / static_cast<float>(width);
    for (const float value : x) squares += (value - mean) * (value - mean);
    const float rstd = 1 / std::sqrt(squares / static_cast<float>(width) + static_cast<float>(epsilon));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - mean) * rstd;
      if (!weight.empty()) x[i] *= weight[i];
      if (!bias.empty()) x[i] += bias[i];
    }
    write_row(v[s.y], row, width, x.data());
    if (v[s.mean].given) write_row(v[s.mean], row, 1, &mean);
    if (v[s.rstd].given) write_row(v[s.rstd], row, 1, &rstd);
  }
}

// hicann/ops-nn @ 303aea49, aclnn_layer_norm.cpp:109-135 (types) and 177-245 (shapes).
void check_layer_norm(Operator& op, const Normed& s, const Dims& normed) {
  op.dtype(s.x, {kFloat, kHalf, kBf16});
  op.dtype(s.y, {kFloat, kHalf, kBf16});
  for (const Slot slot : {s.weight, s.bias}) op.dtype(slot, {op[s.x].dtype, kFloat});
  op.same_dtype(s.bias, s.weight);
  const Dims& shape = op[s.x].shape;
  op.valid(
      !normed.empty() && normed.size() <= shape.size() && std::equal(normed.rbegin(), normed.rend(), shape.rbegin()),
      "normalizedShape " + text_of(normed) + " must be the last dimensions of input " + text_of(shape));
  op.shape(s.weight, normed);
  op.shape(s.bias, normed);
  op.shape(s.y, shape);
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnLayerNormGetWorkspaceSize(Tensor input, Ints normalizedShape, Tensor weightOptional,
                                           Tensor biasOptional, double eps, TensorRef out, TensorRef meanOutOptional,
                                           TensorRef rstdOutOptional, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  Operator op("aclnnLayerNorm", workspaceSize, executor);
  Normed s;
  s.x = op.in("input", input);
  const Dims normed = op.ints("normalizedShape", normalizedShape, true);
  s.weight = op.maybe_in("weightOptional", weightOptional), s.bias = op.maybe_in("biasOptional", biasOptional);
  s.y = op.out("out", out);
  s.mean = op.maybe_out("meanOutOptional", meanOutOptional);
  s.rstd = op.maybe_out("rstdOutOptional", rstdOutOptional);
  op.attribute(eps);
  if (!op.ok()) return op.status();
  check_layer_norm(op, s, normed);
  if (!op.ok()) return op.status();
  const int64_t width = product(normed);
  return op.finish(Unit::Vector, static_cast<double>(op[s.x].count()) * 6,
                   [=](const Operands& v) { norm_rows(s, width, eps, v); });
}
ACLNN_PHASE2(aclnnLayerNorm);

}  // extern "C"
