// moe_gate: scores of the experts and the best k of them.
// Workspace: two rows of scores per thread (moe_shape.h). A row is one thread's.
#include "backends/cpu/kernels/argmax.h"
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/exp.h"
#include "backends/cpu/kernels/moe_shape.h"
#include "ops/args/experts.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// exp(x - max) / sum, the sum in sixteen partial sums.
void softmax(const float* logits, int64_t n, float* scores) {
  F32x16 top = splat(kLowest);
  each_sixteen(n, [&](int64_t i, int64_t rest) {
    F32x16 v = load_n<F32>(logits + i, rest);
    for (int64_t j = rest; j < 16; ++j) v[j] = kLowest;
    top = select(greater(v, top), v, top);
  });
  const F32x16 max = splat(reduce_max(top));
  F32x16 sum = zero();
  each_sixteen(n, [&](int64_t i, int64_t rest) {
    F32x16 e = exp(load_n<F32>(logits + i, rest) - max);
    for (int64_t j = rest; j < 16; ++j) e[j] = 0;
    store_n<F32>(scores + i, e, rest);
    sum = sum + e;
  });
  const F32x16 all = splat(reduce_add(sum));
  store_each<F32>(scores, n, [=](int64_t i, int64_t rest) { return load_n<F32>(scores + i, rest) / all; });
}

void sigmoid_scores(const float* logits, int64_t n, float* scores) {
  store_each<F32>(scores, n,
                  [=](int64_t i, int64_t rest) { return splat(1.0f) / (exp(-load_n<F32>(logits + i, rest)) + 1.0f); });
}

// The index of the largest that is not among the first `count` of `taken`, which are -infinity; NaN is never larger.
int32_t best_left(const float* scores, int64_t n, const int32_t* taken, int64_t count) {
  const Best best = best_of<F32>(scores, 0, n);
  if (best.index != kNoIndex) return best.index;
  for (int32_t e = 0;; ++e) {
    bool is_taken = false;
    for (int64_t j = 0; j < count; ++j) is_taken = is_taken || taken[j] == e;
    if (!is_taken) return e;
  }
}

// Scores of all but the best groups become -infinity.
void keep_groups(float* choice, int64_t experts, int64_t groups, int64_t kept, bool by_two) {
  const int64_t each = experts / groups;
  float best[kMaxGateGroups];
  for (int64_t g = 0; g < groups; ++g) {
    float first = kLowest, second = kLowest;
    for (int64_t i = 0; i < each; ++i) {
      const float v = choice[g * each + i];
      if (v > first) {
        second = first;
        first = v;
      } else if (v > second) {
        second = v;
      }
    }
    best[g] = by_two ? first + second : first;
  }
  int32_t taken[kMaxGateGroups];
  for (int64_t j = 0; j < kept; ++j) {
    taken[j] = best_left(best, groups, taken, j);
    best[taken[j]] = kLowest;
  }
  for (int64_t g = 0; g < groups; ++g) {
    bool stays = false;
    for (int64_t j = 0; j < kept; ++j) stays = stays || taken[j] == g;
    for (int64_t i = 0; !stays && i < each; ++i) choice[g * each + i] = kLowest;
  }
}

void gate(const MoeGateArgs& a, const Launch& l) {
  const int64_t n = a.count, k = a.top_k;
  const float *logits = a.logits, *bias = a.bias;
  const int32_t* slots = a.slots;
  float* weights = a.weights;
  int32_t* experts = a.experts;
  const float scale = static_cast<float>(a.scale), eps = static_cast<float>(a.eps);
  float* scores = static_cast<float*>(l.workspace) + l.thread * 2 * gate_row(n);
  float* choice = scores + gate_row(n);
  const Range mine = l.share(l.size(a.tokens));
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    float* w = weights + t * k;
    int32_t* chosen = experts + t * k;
    if (slots[t] < 0) {
      for (int64_t j = 0; j < k; ++j) w[j] = 0, chosen[j] = static_cast<int32_t>(n);
      continue;
    }
    if (a.sigmoid)
      sigmoid_scores(logits + t * n, n, scores);
    else
      softmax(logits + t * n, n, scores);
    for (int64_t e = 0; e < n; ++e) choice[e] = bias ? scores[e] + bias[e] : scores[e];
    if (a.groups > 1) keep_groups(choice, n, a.groups, a.top_groups, a.top_two);
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      chosen[j] = best_left(choice, n, chosen, j);
      choice[chosen[j]] = kLowest;
      w[j] = scores[chosen[j]];
      sum += w[j];
    }
    for (int64_t j = 0; j < k; ++j) {
      if (a.normalise) w[j] = w[j] / (sum + eps);
      w[j] = w[j] * scale;
    }
  }
}

}  // namespace

REPRISE_KERNEL(moe_gate, gate)

}  // namespace reprise::cpu::REPRISE_ISA
