// Products of int8 with int8. Sums are exact in int32, so the order of work is free; what comes after has the CPU's
// steps and so its bits.
#pragma once

#include "backends/cuda/kernels/linear.h"

namespace reprise::cuda {

// (float(sum) * scale[n]) * x_scale[m] (+ add[n]), each step rounded.
struct DynamicScales {
  const float* scale;
  const float* x_scale;
  const float* add = nullptr;
  DEV float of(int32_t sum, int64_t token, int64_t column) const {
    const float v = static_cast<float>(sum) * scale[column] * x_scale[token];
    return add ? v + add[column] : v;
  }
};
// float(sum + bias[n]) * scale[n] (+ add[n]).
struct StaticScales {
  const float* scale;
  const int32_t* bias;
  const float* add = nullptr;
  DEV float of(int32_t sum, int64_t, int64_t column) const {
    const auto biased = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(bias[column]));
    const float v = static_cast<float>(biased) * scale[column];
    return add ? v + add[column] : v;
  }
};

// The sum itself, for a result of int32.
struct SumsAlone {
  DEV int32_t of(int32_t sum, int64_t, int64_t) const { return sum; }
};

// From the library's sums to results, tokens from `first` on.
template <class Out, class Scales>
struct FinishW8A8 {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const int32_t* sums;
  Scales scales;
  typename Out::Type* out;
  int64_t first, n, columns;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = (static_cast<int64_t>(lane.block()) * kThreads + lane.thread()) * 4;
    if (i >= n) return;
    const int64_t t = first + i / columns, c = i % columns;  // columns are a multiple of four
    const Sixteen four = *reinterpret_cast<const Sixteen*>(sums + i);
    UNROLL
    for (int j = 0; j < 4; ++j)
      out[t * columns + c + j] = Out::store(scales.of(static_cast<int32_t>(four.word[j]), t, c + j));
  }
};

// `sums` is sums_bytes() where the library may be asked, else null.
template <class Out, class Scales, class L>
void product_w8a8(const ProductSizes& z, const void* x, const void* weight, const Scales& scales, void* sums, void* out,
                  L& launch) {
  if (z.tokens == 0) return;
  if (sums && z.tokens >= kManyTokens) {
    // All parts or none: the first says whether the library has a way.
    const int64_t at_once = tokens_at_once(z.columns);
    int64_t first = 0;
    for (; first < z.tokens; first += at_once) {
      const int64_t tokens = smaller(at_once, z.tokens - first), n = tokens * z.columns;
      const void* from = static_cast<const int8_t*>(x) + first * z.depth;
      if (!launch.product({Number::I8, Number::I32, tokens, z.depth, z.columns, from, weight, sums})) break;
      launch.run(blocks_for(n, kElementThreads * 4), kElementThreads, 0,
                 FinishW8A8<Out, Scales>{static_cast<const int32_t*>(sums), scales,
                                         static_cast<typename Out::Type*>(out), first, n, z.columns});
    }
    if (first >= z.tokens) return;
  }
  tiled_product<I8, Out>(z, x, weight, scales, out, launch);
}

// Workspace: sums_bytes().
template <class Out, class L>
void run_linear_w8a8_static(const LinearW8a8StaticArgs& a, L& launch) {
  product_w8a8<Out>(product_sizes(a.shape, launch), a.x, a.weight, StaticScales{a.scale, a.bias, a.add},
                    launch.workspace, a.out, launch);
}

template <class Out, class L>
void run_linear_w8a8_dynamic(const LinearW8a8DynamicArgs& a, L& launch) {
  product_w8a8<Out>(product_sizes(a.shape, launch), a.x, a.weight, DynamicScales{a.scale, a.x_scale, a.add},
                    launch.workspace, a.out, launch);
}

// Workspace: head_candidates_bytes() a row.
template <class L>
void run_lm_head_argmax_w8a8(const LmHeadW8a8Args& a, L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  if (z.tokens == 0) return;
  largest_of_product<I8>(z, a.x, a.weight, DynamicScales{a.scale, a.x_scale, nullptr},
                         static_cast<Largest*>(launch.workspace), a.out, launch);
}

template <class L>
void fill_linear_w8a8_of(KernelTable& table) {
  table.linear_w8a8_static = REPRISE_CUDA_PER_TYPE(run_linear_w8a8_static, L);
  table.linear_w8a8_dynamic = REPRISE_CUDA_PER_TYPE(run_linear_w8a8_dynamic, L);
  table.lm_head_argmax_w8a8 = erased<L, run_lm_head_argmax_w8a8<L>>;
}

}  // namespace reprise::cuda
