// head_linear: every head of x times its own matrix, on a stack of weights in the panel64 layout.
//
// Arguments: ptr x, weight, out; dim tokens, K, N, heads, use of vdpbf16ps (avx512 only). Workspace: linear_shape.h,
// as of a linear with the rows of one head. Ranks share (head, panel) pairs.
#include "backends/cpu/kernels/linear_tiles.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Rows of one head as the tiles want them: in place, or in the rank's scratch.
template <class In, class W>
struct HeadRows {
  const typename W::X* x;
  int64_t ldx;
};

template <class In, class W>
HeadRows<In, W> rows_of_head(const typename In::Type* x, int64_t stride, int64_t rows, int64_t k, float* scratch) {
  if constexpr (sizeof(typename In::Type) == 4) {
    return {x, stride};
  } else {
    const int64_t ldx = linear_x_stride(k);
    for (int64_t i = 0; i < rows; ++i) {
      if constexpr (W::kDot) {
        auto* row = reinterpret_cast<uint16_t*>(scratch + i * ldx);
        std::memcpy(row, x + i * stride, static_cast<size_t>(k) * 2);
        if (k % 2 != 0) row[k] = 0;
      } else {
        widen_row<In>(x + i * stride, k, scratch + i * ldx);
      }
    }
    return {reinterpret_cast<const typename W::X*>(scratch), ldx};
  }
}

template <class In, class W>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  using T = typename In::Type;
  const int64_t tokens = args.dim[0].value(live), k = args.dim[1].factor, n = args.dim[2].factor;
  const int64_t heads = args.dim[3].factor, panels = (n + kPanelColumns - 1) / kPanelColumns;
  const auto* x = static_cast<const T*>(args.ptr[0]);
  const auto* weight = static_cast<const typename W::Elem*>(args.ptr[1]);
  auto* out = static_cast<T*>(args.ptr[2]);
  const int64_t panel_elems = (k + W::kDepth - 1) / W::kDepth * kStepElems<W>;
  auto* wide_x = reinterpret_cast<float*>(static_cast<char*>(args.workspace) +
                                          static_cast<size_t>(rank) * linear_rank_bytes(tokens, k));
  const int64_t block = linear_row_block(tokens);
  const Range mine = share(heads * panels, rank, ranks);
  Scratch scratch;
  for (int64_t h = mine.begin / panels; h * panels < mine.end; ++h) {
    const int64_t first = std::max(mine.begin - h * panels, int64_t{0}), last = std::min(mine.end - h * panels, panels);
    for (int64_t m = 0; m < tokens; m += block) {
      const int64_t rows = std::min(block, tokens - m);
      const auto from = rows_of_head<In, W>(x + (m * heads + h) * k, heads * k, rows, k, wide_x);
      for (int64_t p = first; p < last; ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
        panel_product<W>(from.x, from.ldx, rows, weight + (h * panels + p) * panel_elems, 0, k,
                         (columns + 15) / 16 * 16, scratch);
        round_sums<In, In>(scratch.c, rows, columns, nullptr, out + (m * heads + h) * n + column, heads * n);
      }
    }
  }
}

}  // namespace

void head_linear_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<F32, WeightF32>(args, live, rank, ranks);
}
void head_linear_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const FlushSubnormals flush;
#if defined(__AVX512BF16__)
  if (args.dim[4].factor != 0) return run<Bf16, WeightBf16Dot>(args, live, rank, ranks);
#endif
  run<Bf16, WeightBf16>(args, live, rank, ranks);
}
void head_linear_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<F16, WeightF16>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
