// Choosing experts: by softmax, and by biased scores within groups.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

// The places of the `count` largest, larger first, of equal ones the first.
std::vector<size_t> largest(const std::vector<float>& values, int64_t count) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  places.resize(static_cast<size_t>(count));
  return places;
}

void softmax(std::vector<float>& row) {
  const float highest = *std::max_element(row.begin(), row.end());
  float sum = 0;
  for (float& value : row) sum += value = std::exp(value - highest);
  for (float& value : row) value /= sum;
}

struct GroupedGating {
  Slot x, bias, y, index, scores;
  int64_t k = 0, kept_groups = 0, groups = 1, select = 0, renorm = 0, norm = 0;
  bool wants_scores = false;
  float scale = 1, epsilon = 0;
};

// The score of a group: its largest member, or the sum of its two largest.
float group_score(const float* members, int64_t size, int64_t select) {
  float first = -INFINITY, second = -INFINITY;
  for (int64_t i = 0; i < size; ++i) {
    if (members[i] > first) {
      second = first;
      first = members[i];
    } else {
      second = std::max(second, members[i]);
    }
  }
  return select == 0 || size == 1 ? first : first + second;
}

void choose(const Operands& v, const GroupedGating& g) {
  const int64_t experts = v[g.x].dim(-1), rows = experts ? v[g.x].count() / experts : 0, size = experts / g.groups;
  const std::vector<float> bias =
      v[g.bias].given ? read(v[g.bias]) : std::vector<float>(static_cast<size_t>(experts), 0.0f);
  std::vector<float> scores(static_cast<size_t>(experts)), biased(scores.size());
  std::vector<float> weights(static_cast<size_t>(g.k));
  std::vector<int64_t> chosen(weights.size());
  for (int64_t row = 0; row < rows; ++row) {
    read_row(v[g.x], row, experts, scores.data());
    if (g.norm == 0) {
      softmax(scores);
    } else {
      for (float& score : scores) score = 1 / (1 + std::exp(-score));
    }
    for (size_t i = 0; i < scores.size(); ++i) biased[i] = scores[i] + bias[i];
    if (g.groups > 1) {
      std::vector<float> by_group;
      for (int64_t i = 0; i < g.groups; ++i) by_group.push_back(group_score(&biased[i * size], size, g.select));
      std::vector<char> open(by_group.size(), 0);
      for (const size_t group : largest(by_group, g.kept_groups)) open[group] = 1;
      for (size_t i = 0; i < biased.size(); ++i) {
        if (!open[i / static_cast<size_t>(size)]) biased[i] = -INFINITY;
      }
    }
    float sum = 0;
    const std::vector<size_t> best = largest(biased, g.k);
    for (size_t i = 0; i < best.size(); ++i) {
      chosen[i] = static_cast<int64_t>(best[i]);
      sum += weights[i] = scores[best[i]];
    }
    const bool divide = g.norm == 1 || g.renorm == 1;
    for (float& weight : weights) weight = (divide ? weight / (sum + g.epsilon) : weight) * g.scale;
    write_row(v[g.y], row, g.k, weights.data());
    write_row(v[g.index], row, g.k, chosen.data());
    if (g.wants_scores) write_row(v[g.scores], row, experts, scores.data());
  }
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(Tensor x, Tensor finishedOptional, int64_t k, int64_t renorm,
                                                        bool outputSoftmaxResultFlag, Tensor yOut, Tensor expertIdxOut,
                                                        Tensor softmaxResultOutOptional, uint64_t* workspaceSize,
                                                        aclOpExecutor** executor) {
  Operator op("aclnnMoeGatingTopKSoftmaxV2", workspaceSize, executor);
  const Slot in = op.in("x", x), finished = op.maybe_in("finishedOptional", finishedOptional);
  const Slot y = op.out("yOut", yOut), index = op.out("expertIdxOut", expertIdxOut);
  const bool wants = outputSoftmaxResultFlag;
  const Slot all = wants ? op.out("softmaxResultOutOptional", softmaxResultOutOptional)
                         : op.maybe_out("softmaxResultOutOptional", nullptr);
  op.attributes({k, renorm, wants});
  if (!op.ok()) return op.status();
  op.dtype(in, {kFloat, kHalf, kBf16});
  op.same_dtype(y, in);
  op.dtype(index, {kInt32});
  op.dtype(finished, {kBool});
  op.dtype(all, {kFloat});
  op.rank(in, 2, 3);
  const int64_t experts = op[in].dim(-1);
  op.tiled(k > 0 && k <= experts && k <= 1024,
           "k is " + std::to_string(k) + "; it may be 1 to the number of experts, at most 1024");
  op.tiled(renorm == 0 || renorm == 1, "renorm is " + std::to_string(renorm) + "; it may be 0 or 1");
  op.tiled(!wants || renorm == 0, "the softmax result is only there where renorm is 0");
  if (!op.ok()) return op.status();
  Dims chosen = op[in].shape, rows(op[in].shape.begin(), op[in].shape.end() - 1);
  chosen.back() = k;
  op.shape(y, chosen);
  op.shape(index, chosen);
  op.shape(all, op[in].shape);
  op.shape(finished, rows);
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()) * 8, [=](const Operands& v) {
    const std::vector<int64_t> done = v[finished].given ? read<int64_t>(v[finished]) : std::vector<int64_t>{};
    std::vector<float> scores(static_cast<size_t>(experts)), weights(static_cast<size_t>(k));
    std::vector<int64_t> places(weights.size());
    for (int64_t row = 0; row < product(rows); ++row) {
      read_row(v[in], row, experts, scores.data());
      if (renorm == 0) softmax(scores);
      const std::vector<size_t> best = largest(scores, k);
      for (size_t i = 0; i < best.size(); ++i) {
        weights[i] = scores[best[i]];
        places[i] = !done.empty() && done[static_cast<size_t>(row)] ? experts : static_cast<int64_t>(best[i]);
      }
      if (renorm == 1) softmax(weights);
      write_row(v[y], row, k, weights.data());
      write_row(v[index], row, k, places.data());
      if (wants) write_row(v[all], row, experts, scores.data());
    }
  });
}
ACLNN_PHASE2(aclnnMoeGatingTopKSoftmaxV2);

aclnnStatus aclnnMoeGatingTopKGetWorkspaceSize(Tensor x, Tensor biasOptional, int64_t k, int64_t kGroup,
                                               int64_t groupCount, int64_t groupSelectMode, int64_t renorm,
                                               int64_t normType, bool outFlag, double routedScalingFactor, double eps,
                                               Tensor yOut, Tensor expertIdxOut, Tensor normOut,
                                               uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnMoeGatingTopK", workspaceSize, executor, Since::Cann85);
  GroupedGating g;
  g.x = op.in("x", x), g.bias = op.maybe_in("biasOptional", biasOptional);
  g.y = op.out("yOut", yOut), g.index = op.out("expertIdxOut", expertIdxOut);
  g.scores = outFlag ? op.out("outOptional", normOut) : op.maybe_out("outOptional", nullptr);
  g.k = k, g.kept_groups = kGroup, g.groups = groupCount, g.select = groupSelectMode, g.renorm = renorm;
  g.norm = normType, g.wants_scores = outFlag, g.scale = static_cast<float>(routedScalingFactor);
  g.epsilon = static_cast<float>(eps);
  op.attributes({k, kGroup, groupCount, groupSelectMode, renorm, normType, outFlag});
  op.attribute(routedScalingFactor);
  op.attribute(eps);
  if (!op.ok()) return op.status();
  op.dtype(g.x, {kFloat, kHalf, kBf16});
  op.same_dtype(g.bias, g.x);
  op.same_dtype(g.y, g.x);
  op.dtype(g.index, {kInt32});
  op.dtype(g.scores, {kFloat});
  op.rank(g.x, 2, 2);
  const int64_t experts = op[g.x].dim(-1);
  op.shape(g.bias, {experts});
  op.tiled(experts <= 2048, std::to_string(experts) + " experts; at most 2048 may be");
  op.tiled(groupCount > 0 && kGroup > 0 && kGroup <= groupCount && experts % groupCount == 0,
           std::to_string(kGroup) + " of " + std::to_string(groupCount) + " groups do not divide " +
               std::to_string(experts) + " experts");
  op.obeys(Rule::GateRenorm, renorm == 0, "renorm is " + std::to_string(renorm));
  if (!op.ok()) return op.status();
  const int64_t size = experts / groupCount;
  op.tiled((size + 31) / 32 * 32 * groupCount <= 2048,
           std::to_string(groupCount) + " groups padded to 32 experts are more than 2048");
  op.tiled(k > 0 && k <= kGroup * size,
           "k is " + std::to_string(k) + "; the groups kept have " + std::to_string(kGroup * size));
  op.tiled(groupSelectMode == 0 || groupSelectMode == 1, "groupSelectMode may be 0 (max) or 1 (sum of two)");
  op.tiled(renorm == 0 || renorm == 1, "renorm may be 0 or 1");
  op.tiled(normType == 0 || normType == 1, "normType may be 0 (softmax) or 1 (sigmoid)");
  const int64_t rows = op[g.x].dim(0);
  op.shape(g.y, {rows, k});
  op.shape(g.index, {rows, k});
  op.shape(g.scores, op[g.x].shape);
  return op.finish(Unit::Vector, static_cast<double>(op[g.x].count()) * 12, [=](const Operands& v) { choose(v, g); });
}
ACLNN_PHASE2(aclnnMoeGatingTopK);

}  // extern "C"
