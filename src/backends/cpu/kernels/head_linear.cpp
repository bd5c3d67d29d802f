// head_linear: every head of x times its own matrix, on a stack of weights in the panel64 layout; head_linear_rows: of
// some rows only.
//
// Arguments: ptr x, rows (head_linear_rows only), weight, out; dim tokens, K, N, heads, use of vdpbf16ps (avx512 only),
// 1 where there are rows. Workspace: linear_shape.h, as of a linear with the rows of one head. Ranks share (head,
// panel) pairs. A row's sums are the same whatever rows are computed with it.
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In>
struct HeadCall {
  using T = typename In::Type;

  HeadCall(const LaunchArgs& args, const LiveSizes& live)
      : tokens(args.dim[0].value(live)), k(args.dim[1].factor), n(args.dim[2].factor), heads(args.dim[3].factor) {
    const auto some = static_cast<size_t>(args.dim[5].factor);
    x = static_cast<const T*>(args.ptr[0]);
    list = some ? static_cast<const int32_t*>(args.ptr[1]) : nullptr;
    weight = args.ptr[1 + some];
    out = static_cast<T*>(args.ptr[2 + some]);
    count = tokens;
    if (list)
      for (count = 0; count < tokens && list[count] >= 0;) ++count;
  }

  int64_t row(int64_t i) const { return list ? list[i] : i; }

  int64_t tokens, k, n, heads;
  int64_t count;  // rows to compute
  const T* x;
  const int32_t* list;
  const void* weight;
  T* out;
};

template <class In, class W>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const HeadCall<In> c(args, live);
  const int64_t panels = (c.n + kPanelColumns - 1) / kPanelColumns;
  const int64_t panel_elems = (c.k + W::kDepth - 1) / W::kDepth * kStepElems<W>;
  const auto* weight = static_cast<const typename W::Elem*>(c.weight);
  auto* own = reinterpret_cast<float*>(static_cast<char*>(args.workspace) +
                                       static_cast<size_t>(rank) * linear_rank_bytes(c.tokens, c.k));
  const int64_t block = linear_row_block(c.count);
  const Range mine = share(c.heads * panels, rank, ranks);
  Scratch scratch;
  for (int64_t h = mine.begin / panels; h * panels < mine.end; ++h) {
    const int64_t first = std::max(mine.begin - h * panels, int64_t{0}), last = std::min(mine.end - h * panels, panels);
    for (int64_t m = 0; m < c.count; m += block) {
      const int64_t rows = std::min(block, c.count - m);
      TileRows<W> from;
      if (sizeof(typename In::Type) == 4 && !c.list)
        from = rows_as_they_lie<In, W>(c.x + (m * c.heads + h) * c.k, c.heads * c.k, rows, c.k, own);
      else
        from = packed_rows<In, W>(rows, c.k, own, [&](int64_t i) { return c.x + (c.row(m + i) * c.heads + h) * c.k; });
      for (int64_t p = first; p < last; ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, c.n - column));
        panel_product<W>(from.x, from.ldx, rows, weight + (h * panels + p) * panel_elems, 0, c.k,
                         (columns + 15) / 16 * 16, scratch);
        const auto out = [&](int64_t i) { return c.out + (c.row(m + i) * c.heads + h) * c.n + column; };
        if (!c.list)
          round_sums<In, In>(scratch.c, rows, columns, nullptr, out(0), c.heads * c.n);
        else
          for (int64_t i = 0; i < rows; ++i)
            round_sums<In, In>(scratch.c + i * kPanelColumns, 1, columns, nullptr, out(i), 0);
      }
    }
  }
}

// The rows between those of the list.
template <class In>
void clear_others(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const HeadCall<In> c(args, live);
  if (c.count == c.tokens) return;
  const Range mine = share(c.tokens, rank, ranks);
  int64_t i = 0;
  while (i < c.count && c.list[i] < mine.begin) ++i;
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    if (i < c.count && c.list[i] == t)
      ++i;
    else
      std::memset(c.out + t * c.heads * c.n, 0, static_cast<size_t>(c.heads * c.n) * sizeof(typename In::Type));
  }
}

template <class In, class W>
void run_and_clear(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run<In, W>(args, live, rank, ranks);
  clear_others<In>(args, live, rank, ranks);
}

}  // namespace

void head_linear_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run_and_clear<F32, WeightF32>(args, live, rank, ranks);
}
void head_linear_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const FlushSubnormals flush;
#if defined(__AVX512BF16__)
  if (args.dim[4].factor != 0) return run_and_clear<Bf16, WeightBf16Dot>(args, live, rank, ranks);
#endif
  run_and_clear<Bf16, WeightBf16>(args, live, rank, ranks);
}
void head_linear_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  run_and_clear<F16, WeightF16>(args, live, rank, ranks);
}

}  // namespace reprise::cpu::REPRISE_ISA
