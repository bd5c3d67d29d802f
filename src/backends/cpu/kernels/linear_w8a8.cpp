// linear_w8a8_static and linear_w8a8_dynamic: products of int8 matrices in the panel64 layout, scaled and rounded; and
// lm_head_argmax_w8a8, which looks for the largest of them at once. Workspace: w8a8_shape.h.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/w8a8_finish.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class Out>
void linear_static(const LinearW8a8StaticArgs& args, const Launch& l) {
  const float *scale = args.scale, *add = args.add;
  const int32_t* bias = args.bias;
  typename Out::Type* out = args.out;
  const int64_t n = args.shape.columns;
  w8a8_products(args, l, [&](Sums<int32_t> sums, int64_t row, int64_t column) {
    finish_static<Out>({sums, out + row * n + column, n}, scale + column, bias + column, add ? add + column : nullptr);
  });
}

template <class Out>
void linear_dynamic(const LinearW8a8DynamicArgs& args, const Launch& l) {
  const float *x_scale = args.x_scale, *scale = args.scale, *add = args.add;
  typename Out::Type* out = args.out;
  const int64_t n = args.shape.columns;
  w8a8_products(args, l, [&](Sums<int32_t> sums, int64_t row, int64_t column) {
    finish_dynamic<Out>({sums, out + row * n + column, n}, scale + column, x_scale + row, add ? add + column : nullptr);
  });
}

Best* w8a8_found_by_threads(const ProductShape& shape, const Launch& l) {
  return reinterpret_cast<Best*>(static_cast<char*>(l.workspace) +
                                 static_cast<size_t>(l.threads) * w8a8_bytes(l.size(shape.rows), shape.depth));
}

// Workspace: that of the linears, then argmax_shape.h.
void head(const LmHeadW8a8Args& args, const Launch& l) {
  const float *x_scale = args.x_scale, *scale = args.scale;
  const int64_t all_rows = l.size(args.shape.rows);
  Best* found = w8a8_found_by_threads(args.shape, l) + l.thread * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  w8a8_products(args, l, [&](Sums<int32_t> sums, int64_t row, int64_t column) {
    alignas(64) float logits[kPanelColumns];
    for (int64_t m = 0; m < sums.rows; ++m) {
      for (int j = 0; j < sums.columns; j += 16)
        store(logits + j, to_float(load_i32(sums.at + m * sums.apart + j)) *
                              load_n<F32>(scale + column + j, sums.columns - j) * splat(x_scale[row + m]));
      search_rows({logits, 1, kPanelColumns, sums.columns}, column, found + row + m);
    }
  });
}

void merge_head(const LmHeadW8a8Args& a, const Launch& l) {
  merge_best(w8a8_found_by_threads(a.shape, l), a.out, l.size(a.shape.rows), l.thread, l.threads);
}

}  // namespace

REPRISE_KERNEL(lm_head_argmax_w8a8, head)
REPRISE_KERNEL(lm_head_argmax_w8a8_merge, merge_head)
REPRISE_KERNELS(linear_w8a8_static, linear_static)
REPRISE_KERNELS(linear_w8a8_dynamic, linear_dynamic)

}  // namespace reprise::cpu::REPRISE_ISA
