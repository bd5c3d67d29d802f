// moe_route: a stable counting sort of choices by expert, and moe_combine, the way back.
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/moe_shape.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {

// ptr: experts, token, place, starts. dim: tokens, k, first expert, number of experts. Workspace: counts per rank.
// Every rank counts all choices, which is little, and so needs no other's numbers; then it places those of its experts.
void moe_route(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* experts = static_cast<const int32_t*>(args.ptr[0]);
  auto* token = static_cast<int32_t*>(args.ptr[1]);
  auto* place = static_cast<int32_t*>(args.ptr[2]);
  auto* starts = static_cast<int32_t*>(args.ptr[3]);
  const int64_t k = args.dim[1].factor, first = args.dim[2].factor, count = args.dim[3].factor;
  const int64_t choices = args.dim[0].value(live) * k;
  int32_t* next = static_cast<int32_t*>(args.workspace) + rank * route_row(count);
  for (int64_t e = 0; e < count; ++e) next[e] = 0;
  for (int64_t i = 0; i < choices; ++i) {
    const int64_t e = experts[i] - first;
    if (e >= 0 && e < count) ++next[e];
  }
  int32_t sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    const int32_t here = next[e];
    next[e] = sum;
    if (rank == 0) starts[e] = sum;
    sum += here;
  }
  if (rank == 0) {
    starts[count] = sum;
    for (int64_t i = sum; i < choices; ++i) token[i] = -1;
  }
  const Range mine = share(count, rank, ranks);
  const auto tokens_per_choice = static_cast<uint32_t>(k);
  for (int64_t i = 0; i < choices; ++i) {
    const int64_t e = experts[i] - first;
    if (e >= mine.begin && e < mine.end) {
      place[i] = next[e];
      token[next[e]++] = static_cast<int32_t>(static_cast<uint32_t>(i) / tokens_per_choice);
    } else if (rank == 0 && (e < 0 || e >= count)) {
      place[i] = -1;
    }
  }
}

namespace {

// ptr: y, weights, place, out. dim: tokens, k, columns.
template <typename E>
void combine(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* y = static_cast<const typename E::Type*>(args.ptr[0]);
  const auto* weights = static_cast<const float*>(args.ptr[1]);
  const auto* place = static_cast<const int32_t*>(args.ptr[2]);
  auto* out = static_cast<typename E::Type*>(args.ptr[3]);
  const int64_t tokens = args.dim[0].value(live), k = args.dim[1].factor, n = args.dim[2].factor;
  const int64_t rows = tokens * k;
  for_each_row_part(share_rows_or_elements(tokens, n, rank, ranks), n, [&](int64_t t, int64_t first, int64_t last) {
    store_each<E>(out + t * n + first, last - first, [&](int64_t i, int64_t rest) {
      F32x16 sum = zero();
      for (int64_t j = t * k; j < (t + 1) * k; ++j)
        if (place[j] >= 0 && place[j] < rows)
          sum = fma(splat(weights[j]), load_n<E>(y + place[j] * n + first + i, rest), sum);
      return sum;
    });
  });
}

// ptr: x, scale, out. dim: rows, columns.
template <typename E>
void scale(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  const auto* factor = static_cast<const float*>(args.ptr[1]);
  auto* out = static_cast<typename E::Type*>(args.ptr[2]);
  const int64_t n = args.dim[1].factor;
  for_each_row_part(share_rows_or_elements(args.dim[0].value(live), n, rank, ranks), n,
                    [&](int64_t t, int64_t first, int64_t last) {
                      const F32x16 f = splat(factor[t]);
                      const auto* from = x + t * n + first;
                      store_each<E>(out + t * n + first, last - first,
                                    [=](int64_t i, int64_t rest) { return load_n<E>(from + i, rest) * f; });
                    });
}

// ptr: x, out. dim: first size, elements per unit of it.
template <typename E>
void sigmoid_of(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  auto* out = static_cast<typename E::Type*>(args.ptr[1]);
  const Range r = share_rows_or_elements(args.dim[0].value(live), args.dim[1].value(live), rank, ranks);
  x += r.begin;
  store_each<E>(out + r.begin, r.end - r.begin,
                [=](int64_t i, int64_t rest) { return splat(1.0f) / (exp(-load_n<E>(x + i, rest)) + 1.0f); });
}

}  // namespace

REPRISE_KERNELS(moe_combine, combine)
REPRISE_KERNELS(scale_rows, scale)
REPRISE_KERNELS(sigmoid, sigmoid_of)

}  // namespace reprise::cpu::REPRISE_ISA
