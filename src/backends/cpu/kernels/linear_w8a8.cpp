// linear_w8a8_static and linear_w8a8_dynamic: products of int8 matrices in the panel64 layout, scaled and rounded; and
// lm_head_argmax_w8a8, which looks for the largest of them at once.
//
// Arguments: ptr x, weight, scale, bias, add or null, out; or x, x_scale, weight, scale, add or null, out. dim rows, K,
// N. Workspace: w8a8_shape.h.
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/kernels/w8a8_tiles.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class Out>
void linear_static(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* scale = static_cast<const float*>(args.ptr[2]);
  const auto* bias = static_cast<const int32_t*>(args.ptr[3]);
  const auto* add = static_cast<const float*>(args.ptr[4]);
  auto* out = static_cast<typename Out::Type*>(args.ptr[5]);
  const int64_t n = args.dim[2].factor;
  w8a8_products(args, live, rank, ranks, args.ptr[0], args.ptr[1],
                [&](const int32_t* sums, int64_t row, int64_t rows, int64_t column, int columns) {
                  for (int j = 0; j < columns; j += 16) {
                    const int64_t at = column + j;
                    const F32x16 s = load_n<F32>(scale + at, columns - j);
                    const F32x16 a = add ? load_n<F32>(add + at, columns - j) : zero();
                    const I32x16 b = load_i32_n(bias + at, columns - j);
                    for (int64_t m = 0; m < rows; ++m) {
                      F32x16 v = to_float(wrapping_add(load_i32(sums + m * kPanelColumns + j), b)) * s;
                      if (add) v = v + a;
                      store_n<Out>(out + (row + m) * n + at, v, columns - j);
                    }
                  }
                });
}

template <class Out>
void linear_dynamic(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x_scale = static_cast<const float*>(args.ptr[1]);
  const auto* scale = static_cast<const float*>(args.ptr[3]);
  const auto* add = static_cast<const float*>(args.ptr[4]);
  auto* out = static_cast<typename Out::Type*>(args.ptr[5]);
  const int64_t n = args.dim[2].factor;
  w8a8_products(args, live, rank, ranks, args.ptr[0], args.ptr[2],
                [&](const int32_t* sums, int64_t row, int64_t rows, int64_t column, int columns) {
                  for (int j = 0; j < columns; j += 16) {
                    const int64_t at = column + j;
                    const F32x16 s = load_n<F32>(scale + at, columns - j);
                    const F32x16 a = add ? load_n<F32>(add + at, columns - j) : zero();
                    for (int64_t m = 0; m < rows; ++m) {
                      F32x16 v = to_float(load_i32(sums + m * kPanelColumns + j)) * s * splat(x_scale[row + m]);
                      if (add) v = v + a;
                      store_n<Out>(out + (row + m) * n + at, v, columns - j);
                    }
                  }
                });
}

Best* w8a8_found_by_ranks(const LaunchArgs& args, const LiveSizes& live, int ranks) {
  return reinterpret_cast<Best*>(static_cast<char*>(args.workspace) +
                                 static_cast<size_t>(ranks) *
                                     w8a8_rank_bytes(args.dim[0].value(live), args.dim[1].factor, kXWords));
}

}  // namespace

// ptr: x, x_scale, weight, scale, out. Workspace: that of the linears, then argmax_shape.h.
void lm_head_argmax_w8a8(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x_scale = static_cast<const float*>(args.ptr[1]);
  const auto* scale = static_cast<const float*>(args.ptr[3]);
  const int64_t all_rows = args.dim[0].value(live);
  Best* found = w8a8_found_by_ranks(args, live, ranks) + rank * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  w8a8_products(args, live, rank, ranks, args.ptr[0], args.ptr[2],
                [&](const int32_t* sums, int64_t row, int64_t rows, int64_t column, int columns) {
                  alignas(64) float logits[kTileRows * kPanelColumns];
                  for (int64_t m = 0; m < rows; ++m)
                    for (int j = 0; j < columns; j += 16)
                      store(logits + m * kPanelColumns + j, to_float(load_i32(sums + m * kPanelColumns + j)) *
                                                                load_n<F32>(scale + column + j, columns - j) *
                                                                splat(x_scale[row + m]));
                  search_rows(logits, rows, column, columns, found + row);
                });
}

void lm_head_argmax_w8a8_merge(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  merge_best(w8a8_found_by_ranks(args, live, ranks), static_cast<int32_t*>(args.ptr[4]), args.dim[0].value(live), rank,
             ranks);
}

REPRISE_KERNELS(linear_w8a8_static, linear_static)
REPRISE_KERNELS(linear_w8a8_dynamic, linear_dynamic)

}  // namespace reprise::cpu::REPRISE_ISA
