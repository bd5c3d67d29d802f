// linear_add and lm_head_argmax: matrix products whose sums go on at once, without a trip through memory.
//
// Arguments: as linear (linear.cpp), with other operands behind x and weight.
#include "backends/cpu/kernels/linear_tiles.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"

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
__attribute__((noinline)) void round_in_place(float* sums, int64_t rows, int columns, const typename E::Type* bias) {
  for (int j = 0; j < columns; j += 16) {
    const F32x16 b = bias ? load_n<E>(bias + j, columns - j) : zero();
    for (int64_t m = 0; m < rows; ++m) {
      float* at = sums + m * kPanelColumns + j;
      F32x16 v = load(at);
      if (bias) v = v + b;
      store(at, E::round(v));
    }
  }
}

// A function of its own, so that no addition moves across the change of mode.
template <class E>
__attribute__((noinline)) void add_rows(const float* sums, int64_t rows, int columns, const typename E::Type* residual,
                                        typename E::Type* out, int64_t stride) {
  for (int64_t m = 0; m < rows; ++m)
    for (int j = 0; j < columns; j += 16)
      store_n<E>(out + m * stride + j,
                 load(sums + m * kPanelColumns + j) + load_n<E>(residual + m * stride + j, columns - j), columns - j);
}

// ptr: x, weight, residual, bias or null, out.
template <class E>
void linear_add(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* residual = static_cast<const typename E::Type*>(args.ptr[2]);
  const auto* bias = static_cast<const typename E::Type*>(args.ptr[3]);
  auto* out = static_cast<typename E::Type*>(args.ptr[4]);
  const int64_t n = args.dim[2].factor;
  products_of<E>(args, live, rank, ranks, [&](float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
    const int64_t at = row * n + column;
    round_in_place<E>(sums, rows, columns, bias ? bias + column : nullptr);
    const KeepSubnormals keep;
    add_rows<E>(sums, rows, columns, residual + at, out + at, n);
  });
}

// ptr: x, weight, out. Workspace: that of linear, then argmax_shape.h.
template <class E>
void lm_head_argmax(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const int64_t all_rows = args.dim[0].value(live);
  Best* found = found_by_ranks(args, live, ranks) + rank * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  products_of<E>(args, live, rank, ranks, [&](float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
    search_rows(sums, rows, column, columns, found + row);
  });
}

}  // namespace

REPRISE_KERNELS(linear_add, linear_add)
REPRISE_KERNELS(lm_head_argmax, lm_head_argmax)
void lm_head_argmax_merge(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  merge_best(found_by_ranks(args, live, ranks), static_cast<int32_t*>(args.ptr[2]), args.dim[0].value(live), rank,
             ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
