// grouped_linear: groups of rows, each times its own matrix of a stack in the panel64 layout; grouped_linear_rows reads
// the rows from anywhere in x.
//
// Arguments: ptr x, token (grouped_linear_rows only), starts, weight, out; dim rows, K, N, groups, use of vdpbf16ps
// (avx512 only), rows of x, 1 where there is a token. Workspace: linear_shape.h, as of a linear with as many rows. Each
// row's sums are those of linear, whatever else is in its group.
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows [first, first + rows) as the tiles want them: in place where they lie so, else in the rank's scratch.
template <class In, class W>
TileRows<W> tile_rows_of(const LaunchArgs& args, int64_t x_rows, int64_t first, int64_t rows, float* scratch) {
  using T = typename In::Type;
  const int64_t k = args.dim[1].factor;
  const auto* x = static_cast<const T*>(args.ptr[0]);
  const auto* token = args.dim[6].factor != 0 ? static_cast<const int32_t*>(args.ptr[1]) : nullptr;
  const bool as_it_is = sizeof(T) == 4 || (W::kDot && k % 2 == 0);
  if (as_it_is && !token) return {reinterpret_cast<const typename W::X*>(x + first * k), W::kDot ? k / 2 : k};
  const auto row_at = [&](int64_t i) {
    const int64_t from = token ? token[first + i] : first + i;
    return from < 0 || from >= x_rows ? nullptr : x + from * k;
  };
  if (as_it_is && rows == 1 && row_at(0))
    return {reinterpret_cast<const typename W::X*>(row_at(0)), linear_x_stride(k)};
  return packed_rows<In, W>(rows, k, scratch, row_at);
}

template <class In, class W>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  using T = typename In::Type;
  const int64_t all = args.dim[0].value(live), x_rows = args.dim[5].value(live);
  const int64_t k = args.dim[1].factor, n = args.dim[2].factor, panels = (n + kPanelColumns - 1) / kPanelColumns;
  void* const* ptr = args.ptr.data() + args.dim[6].factor;
  const auto* weight = static_cast<const typename W::Elem*>(ptr[2]);
  auto* out = static_cast<T*>(ptr[3]);
  const int64_t panel_elems = (k + W::kDepth - 1) / W::kDepth * kStepElems<W>;
  auto* own = reinterpret_cast<float*>(static_cast<char*>(args.workspace) +
                                       static_cast<size_t>(rank) * linear_rank_bytes(all, k));
  const GroupWalk walk{static_cast<const int32_t*>(ptr[1]), args.dim[3].factor, all};
  Scratch scratch;
  const int64_t used =
      for_each_share(walk, panels, rank, ranks, [&](int64_t g, int64_t begin, int64_t count, Range mine) {
        const int64_t block = linear_row_block(count);
        for (int64_t m = begin; m < begin + count; m += block) {
          const int64_t rows = std::min(block, begin + count - m);
          const auto from = tile_rows_of<In, W>(args, x_rows, m, rows, own);
          for (int64_t p = mine.begin; p < mine.end; ++p) {
            const int64_t column = p * kPanelColumns;
            const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
            panel_product<W>(from.x, from.ldx, rows, weight + (g * panels + p) * panel_elems, 0, k,
                             (columns + 15) / 16 * 16, scratch);
            round_sums<In, In>(scratch.c, rows, columns, nullptr, out + m * n + column, n);
          }
        }
      });
  const Range rest = share(all - used, rank, ranks);
  if (rest.begin < rest.end)
    std::memset(out + (used + rest.begin) * n, 0, static_cast<size_t>((rest.end - rest.begin) * n) * sizeof(T));
}

}  // namespace

void grouped_linear_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<F32, WeightF32>(args, live, rank, ranks);
}
void grouped_linear_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const FlushSubnormals flush;
#if defined(__AVX512BF16__)
  if (args.dim[4].factor != 0) return run<Bf16, WeightBf16Dot>(args, live, rank, ranks);
#endif
  run<Bf16, WeightBf16>(args, live, rank, ranks);
}
void grouped_linear_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<F16, WeightF16>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
