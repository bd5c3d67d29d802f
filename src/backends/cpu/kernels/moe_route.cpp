// moe_route: a stable counting sort of choices by expert; moe_combine, the way back; add_groups, biases of experts.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/moe_shape.h"
#include "ops/args/elements.h"
#include "ops/args/experts.h"

namespace reprise::cpu::REPRISE_ISA {

namespace {

// Workspace: counts per thread. Every thread counts all choices, which is little, and so needs no other's numbers; then
// it places those of its experts.
void route(const MoeRouteArgs& a, const Launch& l) {
  const int32_t* experts = a.experts;
  int32_t *token = a.token, *place = a.place, *starts = a.starts;
  const int64_t k = a.top_k, first = a.first, count = a.count;
  const int64_t choices = l.size(a.tokens) * k;
  const int thread = l.thread;
  int32_t* next = static_cast<int32_t*>(l.workspace) + thread * route_row(count);
  for (int64_t e = 0; e < count; ++e) next[e] = 0;
  for (int64_t i = 0; i < choices; ++i) {
    const int64_t e = experts[i] - first;
    if (e >= 0 && e < count) ++next[e];
  }
  int32_t sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    const int32_t here = next[e];
    next[e] = sum;
    if (thread == 0) starts[e] = sum;
    sum += here;
  }
  if (thread == 0) {
    starts[count] = sum;
    for (int64_t i = sum; i < choices; ++i) token[i] = -1;
  }
  const Range mine = l.share(count);
  const auto tokens_per_choice = static_cast<uint32_t>(k);
  for (int64_t i = 0; i < choices; ++i) {
    const int64_t e = experts[i] - first;
    if (e >= mine.begin && e < mine.end) {
      place[i] = next[e];
      token[next[e]++] = static_cast<int32_t>(static_cast<uint32_t>(i) / tokens_per_choice);
    } else if (thread == 0 && (e < 0 || e >= count)) {
      place[i] = -1;
    }
  }
}

template <typename E>
void combine(const MoeCombineArgs& a, const Launch& l) {
  const typename E::Type* y = a.y;
  const float* weights = a.weights;
  const int32_t* place = a.place;
  typename E::Type* out = a.out;
  const int64_t tokens = l.size(a.tokens), k = a.top_k, n = a.width;
  const int64_t rows = tokens * k;
  for_each_row_part(share_rows_or_elements(tokens, n, l.thread, l.threads), n,
                    [&](int64_t t, int64_t first, int64_t last) {
                      store_each<E>(out + t * n + first, last - first, [&](int64_t i, int64_t rest) {
                        F32x16 sum = zero();
                        for (int64_t j = t * k; j < (t + 1) * k; ++j)
                          if (place[j] >= 0 && place[j] < rows)
                            sum = fma(splat(weights[j]), load_n<E>(y + place[j] * n + first + i, rest), sum);
                        return sum;
                      });
                    });
}

template <typename E>
void add_groups(const AddGroupsArgs& a, const Launch& l) {
  const typename E::Type *x = a.x, *bias = a.bias;
  typename E::Type* out = a.out;
  const int64_t rows = l.size(a.rows), n = a.width;
  const GroupWalk walk{a.starts, a.groups, rows};
  const Range mine = l.share(rows);
  const int64_t used = walk.each([&](int64_t g, int64_t first, int64_t count) {
    for (int64_t r = std::max(first, mine.begin); r < std::min(first + count, mine.end); ++r)
      store_each<E>(out + r * n, n, [&](int64_t i, int64_t rest) {
        return load_n<E>(x + r * n + i, rest) + load_n<E>(bias + g * n + i, rest);
      });
  });
  clear_rows(walk, used, out, n, l);
}

template <typename E>
void scale(const ScaleRowsArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  const float* factor = a.scale;
  typename E::Type* out = a.out;
  const int64_t n = a.width;
  for_each_row_part(share_rows_or_elements(l.size(a.rows), n, l.thread, l.threads), n,
                    [&](int64_t t, int64_t first, int64_t last) {
                      const F32x16 f = splat(factor[t]);
                      const auto* from = x + t * n + first;
                      store_each<E>(out + t * n + first, last - first,
                                    [=](int64_t i, int64_t rest) { return load_n<E>(from + i, rest) * f; });
                    });
}

}  // namespace

REPRISE_KERNEL(moe_route, route)
REPRISE_KERNELS(moe_combine, combine)
REPRISE_KERNELS(scale_rows, scale)
REPRISE_KERNELS(add_groups, add_groups)

}  // namespace reprise::cpu::REPRISE_ISA
