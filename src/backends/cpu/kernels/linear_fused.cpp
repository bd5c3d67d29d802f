// linear_add and lm_head_argmax: matrix products whose sums go on at once, without a trip through memory.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/linear_tiles.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Subnormals count again while it lives: the sum of a bf16 product flushes them, the addition after it does not.
class KeepSubnormals {
 public:
  KeepSubnormals() : saved_(float_mode()) { set_float_mode(saved_ & ~kFlushAll); }
  ~KeepSubnormals() { set_float_mode(saved_); }
  KeepSubnormals(const KeepSubnormals&) = delete;
  KeepSubnormals& operator=(const KeepSubnormals&) = delete;

 private:
  FloatMode saved_;
};

// sums = round(sums + bias), as the op `linear` leaves them.
template <class E>
__attribute__((noinline)) void round_in_place(Sums<float> s, const typename E::Type* bias) {
  for (int j = 0; j < s.columns; j += 16) {
    const F32x16 b = bias ? load_n<E>(bias + j, s.columns - j) : zero();
    for (int64_t m = 0; m < s.rows; ++m) {
      float* at = s.at + m * s.apart + j;
      F32x16 v = load(at);
      if (bias) v = v + b;
      store(at, E::round(v));
    }
  }
}

// A function of its own, so that no addition moves across the change of mode.
template <class E>
__attribute__((noinline)) void add_rows(Sums<float> s, const typename E::Type* residual, typename E::Type* out,
                                        int64_t stride) {
  for (int64_t m = 0; m < s.rows; ++m)
    for (int j = 0; j < s.columns; j += 16)
      store_n<E>(out + m * stride + j,
                 load(s.at + m * s.apart + j) + load_n<E>(residual + m * stride + j, s.columns - j), s.columns - j);
}

template <class E>
void linear_add(const LinearAddArgs& a, const Launch& l) {
  const typename E::Type *residual = a.residual, *bias = a.bias;
  typename E::Type* out = a.out;
  const int64_t n = a.shape.columns;
  products_of<E>(a, l, [&](Sums<float> sums, int64_t row, int64_t column) {
    const int64_t at = row * n + column;
    round_in_place<E>(sums, bias ? bias + column : nullptr);
    const KeepSubnormals keep;
    add_rows<E>(sums, residual + at, out + at, n);
  });
}

// Workspace: that of linear, then argmax_shape.h.
template <class E>
Best* own_best(const LmHeadArgs& a, const Launch& l) {
  return found_by_threads(l, product_bytes<E>(l.size(a.shape.rows), a.shape.depth));
}

template <class E>
void lm_head_argmax(const LmHeadArgs& a, const Launch& l) {
  const int64_t all_rows = l.size(a.shape.rows);
  Best* found = own_best<E>(a, l) + l.thread * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  products_of<E>(a, l, [&](Sums<float> sums, int64_t row, int64_t column) { search_rows(sums, column, found + row); });
}

template <class E>
void merge_float_head(const LmHeadArgs& a, const Launch& l) {
  merge_best(own_best<E>(a, l), a.out, l.size(a.shape.rows), l.thread, l.threads);
}

}  // namespace

REPRISE_PRODUCTS(linear_add, linear_add)
REPRISE_PRODUCTS(lm_head_argmax, lm_head_argmax)
REPRISE_PRODUCTS(lm_head_argmax_merge, merge_float_head)

}  // namespace reprise::cpu::REPRISE_ISA
