// per_head_matmul: every head of x times its own matrix, on a stack of weights in the panel64 layout;
// per_head_matmul_rows: of some rows only. Workspace: linear_shape.h, as of a linear with the rows of one head. Threads
// share (head, panel) pairs. A row's sums are the same for every set of rows computed with it.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In>
struct HeadCall {
  using T = typename In::Type;

  // `rows`: those to compute, or null.
  HeadCall(const auto& a, const int32_t* rows, const Launch& l)
      : tokens(l.size(a.shape.rows)),
        k(a.shape.depth),
        n(a.shape.columns),
        heads(a.heads),
        count(tokens),
        x(a.x),
        list(rows),
        weight(a.weight),
        out(a.out) {
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

// The sums of a head's rows from m on and of its columns from `column` on.
template <class In>
void store_sums(const HeadCall<In>& c, int64_t h, int64_t m, int64_t column, Sums<float> sums) {
  const auto out = [&](int64_t i) { return c.out + (c.row(m + i) * c.heads + h) * c.n + column; };
  if (!c.list) return round_sums<In, In>(sums, nullptr, out(0), c.heads * c.n);
  for (int64_t i = 0; i < sums.rows; ++i)
    round_sums<In, In>({sums.at + i * sums.apart, 1, sums.apart, sums.columns}, nullptr, out(i), 0);
}

// Calls body(head, its first panel, behind its last one) for the thread's panels.
template <class In, class Body>
void each_head(const HeadCall<In>& c, const Launch& l, const Body& body) {
  const int64_t panels = (c.n + kPanelColumns - 1) / kPanelColumns;
  const Range mine = l.share(c.heads * panels);
  for (int64_t h = mine.begin / panels; h * panels < mine.end; ++h)
    body(h, std::max(mine.begin - h * panels, int64_t{0}), std::min(mine.end - h * panels, panels));
}

#ifdef REPRISE_TILES
void run_on_tiles(const HeadCall<Bf16>& c, const Launch& l) {
  const int64_t panels = (c.n + kPanelColumns - 1) / kPanelColumns, words = (c.k + 1) / 2;
  const int64_t panel_bytes = words * 4 * kPanelColumns, block = unit_row_block(c.count, 2 * c.k);
  const auto* weight = static_cast<const uint8_t*>(c.weight);
  const UnitScratch<UnitBf16> own(l.scratch<uint8_t>(static_cast<int64_t>(unit_thread_bytes(c.tokens, 2 * c.k))), block,
                                  2 * c.k);
  TileUnit unit;
  each_head(c, l, [&](int64_t h, int64_t first, int64_t last) {
    for (int64_t m = 0; m < c.count; m += block) {
      const int64_t rows = std::min(block, c.count - m);
      pack_unit_rows(rows, 2 * c.k, own.x, [&](int64_t i) { return c.x + (c.row(m + i) * c.heads + h) * c.k; });
      for (int64_t p = first; p < last; ++p) {
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, c.n - p * kPanelColumns));
        unit_panel<UnitBf16>(unit, {own.x, rows, words}, weight + (h * panels + p) * panel_bytes, 0, columns, own.sums,
                             [&](Sums<float> sums, int64_t row, int64_t of_panel) {
                               store_sums(c, h, m + row, p * kPanelColumns + of_panel, sums);
                             });
      }
    }
  });
}
#endif

template <class In, class W>
void run(const HeadCall<In>& c, const Launch& l) {
  const int64_t panels = (c.n + kPanelColumns - 1) / kPanelColumns;
  const int64_t panel_elems = (c.k + W::kDepth - 1) / W::kDepth * kStepElems<W>;
  const auto* weight = static_cast<const typename W::Elem*>(c.weight);
  auto* own = l.scratch<float>(static_cast<int64_t>(linear_thread_bytes(c.tokens, c.k)));
  const int64_t block = linear_row_block(c.count);
  Scratch scratch;
  each_head(c, l, [&](int64_t h, int64_t first, int64_t last) {
    for (int64_t m = 0; m < c.count; m += block) {
      const int64_t rows = std::min(block, c.count - m);
      TileRows<W> from;
      if (sizeof(typename In::Type) == 4 && !c.list)
        from = rows_as_they_lie<In, W>(c.x + (m * c.heads + h) * c.k, c.heads * c.k, rows, c.k, own);
      else
        from = packed_rows<In, W>(rows, c.k, own, [&](int64_t i) { return c.x + (c.row(m + i) * c.heads + h) * c.k; });
      for (int64_t p = first; p < last; ++p) {
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, c.n - p * kPanelColumns));
        panel_product<W>(from.x, from.ldx, rows, weight + (h * panels + p) * panel_elems, 0, c.k,
                         (columns + 15) / 16 * 16, scratch);
        store_sums(c, h, m, p * kPanelColumns, {scratch.c, rows, kPanelColumns, columns});
      }
    }
  });
}

// The rows between those of the list.
template <class In>
void clear_others(const HeadCall<In>& c, const Launch& l) {
  if (c.count == c.tokens) return;
  const Range mine = l.share(c.tokens);
  int64_t i = 0;
  while (i < c.count && c.list[i] < mine.begin) ++i;
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    if (i < c.count && c.list[i] == t)
      ++i;
    else
      std::memset(c.out + t * c.heads * c.n, 0, static_cast<size_t>(c.heads * c.n) * sizeof(typename In::Type));
  }
}

template <class In>
void run_and_clear(const HeadCall<In>& c, const Launch& l) {
  if constexpr (WeightOf<In>::kParts == 2) {
    const FlushSubnormals flush;
#if defined(REPRISE_TILES)
    run_on_tiles(c, l);
#else
#if defined(__AVX512BF16__)
    if (l.way != 0)
      run<In, WeightBf16Dot>(c, l);
    else
#endif
      run<In, WeightOf<In>>(c, l);
#endif
    clear_others<In>(c, l);
  } else {
    run<In, WeightOf<In>>(c, l);
    clear_others<In>(c, l);
  }
}

template <class In>
void all_rows(const PerHeadMatmulArgs& a, const Launch& l) {
  run_and_clear(HeadCall<In>(a, nullptr, l), l);
}
template <class In>
void some_rows(const PerHeadMatmulRowsArgs& a, const Launch& l) {
  run_and_clear(HeadCall<In>(a, a.list, l), l);
}

}  // namespace

REPRISE_PRODUCTS(per_head_matmul, all_rows)
REPRISE_PRODUCTS(per_head_matmul_rows, some_rows)

}  // namespace reprise::cpu::REPRISE_ISA
