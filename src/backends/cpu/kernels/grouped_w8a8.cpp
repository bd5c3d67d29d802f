// grouped_linear_w8a8_static and grouped_linear_w8a8_dynamic: groups of int8 rows, each times its own int8 matrix of a
// stack in the panel64 layout, scaled and rounded; and quantize_groups, which makes such rows where every group has a
// scale of its own.
//
// Arguments: ptr x, starts, weight, scale, bias, out; or x, x_scale, starts, weight, scale, out; dim rows, K, N,
// groups. Workspace: w8a8_shape.h, as of a linear with as many rows. A row's result is that of linear_w8a8_static or
// linear_w8a8_dynamic with its group's matrix.
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/kernels/w8a8_tiles.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename T>
void clear_rows(T* out, int64_t used, int64_t all, int64_t n, int rank, int ranks) {
  const Range rest = share(all - used, rank, ranks);
  if (rest.begin < rest.end)
    std::memset(out + (used + rest.begin) * n, 0, static_cast<size_t>((rest.end - rest.begin) * n) * sizeof(T));
}

// Sixteen columns of so many rows: `sums` kPanelColumns apart, `out` n apart.
template <class Out>
struct Finished {
  const int32_t* sums;
  int64_t rows;
  typename Out::Type* out;
  int64_t n;
  int columns;
};

template <class Out>
void finish_static(const Finished<Out>& f, const float* scale, const int32_t* bias) {
  const F32x16 s = load_n<F32>(scale, f.columns);
  const I32x16 b = load_i32_n(bias, f.columns);
  for (int64_t i = 0; i < f.rows; ++i)
    store_n<Out>(f.out + i * f.n, to_float(wrapping_add(load_i32(f.sums + i * kPanelColumns), b)) * s, f.columns);
}

template <class Out>
void finish_dynamic(const Finished<Out>& f, const float* scale, const float* x_scale) {
  const F32x16 s = load_n<F32>(scale, f.columns);
  for (int64_t i = 0; i < f.rows; ++i)
    store_n<Out>(f.out + i * f.n, to_float(load_i32(f.sums + i * kPanelColumns)) * s * splat(x_scale[i]), f.columns);
}

template <class Out, bool kStatic>
void grouped(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const int64_t all = args.dim[0].value(live), k = args.dim[1].factor, n = args.dim[2].factor;
  const int64_t panels = (n + kPanelColumns - 1) / kPanelColumns, groups = (k + 3) / 4;
  const int64_t panel_size = kHeaderBytes + groups * kGroupBytes, ldx = w8a8_x_stride(k, kXWords);
  void* const* ptr = args.ptr.data() + (kStatic ? 0 : 1);  // from starts on both have the same, a bias apart
  const auto* x = static_cast<const int8_t*>(args.ptr[0]);
  const auto* x_scale = static_cast<const float*>(args.ptr[1]);
  const auto* weight = static_cast<const int8_t*>(ptr[2]);
  const auto* scale = static_cast<const float*>(ptr[3]);
  const auto* bias = static_cast<const int32_t*>(args.ptr[4]);
  auto* out = static_cast<typename Out::Type*>(args.ptr[5]);
  auto* prepared = reinterpret_cast<uint32_t*>(static_cast<char*>(args.workspace) +
                                               static_cast<size_t>(rank) * w8a8_rank_bytes(all, k, kXWords));
  const GroupWalk walk{static_cast<const int32_t*>(ptr[1]), args.dim[3].factor, all};
  alignas(64) int32_t sums[kFewTiles * kTileRows * kPanelColumns];
  const int64_t used =
      for_each_share(walk, panels, rank, ranks, [&](int64_t e, int64_t begin, int64_t count, Range mine) {
        const int64_t block = linear_row_block(count);
        for (int64_t m = begin; m < begin + count; m += block) {
          const int64_t rows = std::min(block, begin + count - m);
          for (int64_t i = 0; i < rows; ++i) prepare_row(x + (m + i) * k, k, prepared + i * ldx);
          for (int64_t p = mine.begin; p < mine.end; ++p) {
            const int64_t column = p * kPanelColumns, of_all = e * n + column;
            const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
            w8a8_panel(prepared, ldx, rows, weight + (e * panels + p) * panel_size, 0, columns, groups, sums,
                       [&](const int32_t* c, int64_t row, int64_t got) {
                         for (int j = 0; j < columns; j += 16) {
                           const Finished<Out> f{c + j, got, out + (m + row) * n + column + j, n, columns - j};
                           if constexpr (kStatic)
                             finish_static(f, scale + of_all + j, bias + of_all + j);
                           else
                             finish_dynamic(f, scale + of_all + j, x_scale + m + row);
                         }
                       });
          }
        }
      });
  clear_rows(out, used, all, n, rank, ranks);
}

// ptr: x, starts, scale, offset, values. dim: rows, row size, groups.
template <typename E>
void quant_groups(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  const auto* scale = static_cast<const float*>(args.ptr[2]);
  const auto* offset = static_cast<const float*>(args.ptr[3]);
  auto* out = static_cast<int8_t*>(args.ptr[4]);
  const int64_t all = args.dim[0].value(live), n = args.dim[1].factor;
  const GroupWalk walk{static_cast<const int32_t*>(args.ptr[1]), args.dim[2].factor, all};
  const Range mine = share(all, rank, ranks);
  const int64_t used = walk.each([&](int64_t g, int64_t first, int64_t rows) {
    const StaticScale by(scale + g, offset + g, 0, 0);
    const int64_t last = std::min(mine.end, first + rows);
    for (int64_t row = std::max(mine.begin, first); row < last; ++row)
      each_sixteen(n, [&](int64_t i, int64_t rest) {
        store_i8_n(out + row * n + i, by.apply(load_n<E>(x + row * n + i, rest), i, rest), rest);
      });
  });
  clear_rows(out, used, all, n, rank, ranks);
}

}  // namespace

REPRISE_KERNELS(grouped_linear_w8a8_static, grouped, true)
REPRISE_KERNELS(grouped_linear_w8a8_dynamic, grouped, false)
REPRISE_KERNELS(quantize_groups, quant_groups)

}  // namespace reprise::cpu::REPRISE_ISA
