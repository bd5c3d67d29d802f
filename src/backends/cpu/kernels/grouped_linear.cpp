// grouped_linear: groups of rows, each times its own matrix of a stack in the panel64 layout; grouped_linear_rows reads
// the rows from anywhere in x.
// Workspace: linear_shape.h, as of a linear with as many rows. Each row's sums are those of linear, for any other rows
// in its group.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

struct GroupedCall {
  GroupedCall(const auto& a, const int32_t* token_of, int64_t rows_of_x, const Launch& l)
      : x(a.x.data),
        token(token_of),
        starts(a.starts),
        weight(a.weight.data),
        out(a.out.data),
        rows(l.size(a.shape.rows)),
        x_rows(rows_of_x),
        k(a.shape.depth),
        n(a.shape.columns),
        groups(a.groups) {}

  const void* x;
  const int32_t* token;  // null: rows as they lie
  const int32_t* starts;
  const void* weight;
  void* out;
  int64_t rows, x_rows, k, n, groups;
};

// Rows [first, first + rows) as the tiles want them: in place where they lie so, else in the thread's scratch.
template <class In, class W>
TileRows<W> tile_rows_of(const GroupedCall& c, int64_t first, int64_t rows, float* scratch) {
  using T = typename In::Type;
  const int64_t k = c.k;
  const auto* x = static_cast<const T*>(c.x);
  const int32_t* token = c.token;
  const bool as_it_is = sizeof(T) == 4 || (W::kDot && k % 2 == 0);
  if (as_it_is && !token) return {reinterpret_cast<const typename W::X*>(x + first * k), W::kDot ? k / 2 : k};
  const auto row_at = [&](int64_t i) {
    const int64_t from = token ? token[first + i] : first + i;
    return from < 0 || from >= c.x_rows ? nullptr : x + from * k;
  };
  if (as_it_is && rows == 1 && row_at(0))
    return {reinterpret_cast<const typename W::X*>(row_at(0)), linear_x_stride(k)};
  return packed_rows<In, W>(rows, k, scratch, row_at);
}

template <class In, class W>
void run(const GroupedCall& c, const Launch& l) {
  using T = typename In::Type;
  const int64_t all = c.rows, k = c.k, n = c.n, panels = (n + kPanelColumns - 1) / kPanelColumns;
  const auto* weight = static_cast<const typename W::Elem*>(c.weight);
  auto* out = static_cast<T*>(c.out);
  const int64_t panel_elems = (k + W::kDepth - 1) / W::kDepth * kStepElems<W>;
  auto* own = l.scratch<float>(static_cast<int64_t>(linear_thread_bytes(all, k)));
  const GroupWalk walk{c.starts, c.groups, all};
  Scratch scratch;
  TileRows<W> from{};
  int64_t ready = -1;  // the row that `from` begins with
  const int64_t used = for_each_part(walk, panels, l, [&](int64_t g, int64_t begin, int64_t count, Range mine) {
    const int64_t block = linear_row_block(count);
    for (int64_t m = begin; m < begin + count; m += block) {
      const int64_t rows = std::min(block, begin + count - m);
      if (m != ready) from = tile_rows_of<In, W>(c, m, rows, own);
      ready = m;
      for (int64_t p = mine.begin; p < mine.end; ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
        panel_product<W>(from.x, from.ldx, rows, weight + (g * panels + p) * panel_elems, 0, k,
                         (columns + 15) / 16 * 16, scratch);
        round_sums<In, In>({scratch.c, rows, kPanelColumns, columns}, nullptr, out + m * n + column, n);
      }
    }
  });
  clear_rows(walk, used, out, n, l);
}

#ifdef REPRISE_TILES
void run_on_tiles(const GroupedCall& c, const Launch& l) {
  const int64_t all = c.rows, k = c.k, n = c.n, panels = (n + kPanelColumns - 1) / kPanelColumns;
  const int64_t words = (k + 1) / 2, panel_bytes = words * 4 * kPanelColumns;
  const auto* x = static_cast<const uint16_t*>(c.x);
  const auto* weight = static_cast<const uint8_t*>(c.weight);
  auto* out = static_cast<uint16_t*>(c.out);
  auto* scratch = l.scratch<uint8_t>(static_cast<int64_t>(unit_thread_bytes(all, 2 * k)));
  const GroupWalk walk{c.starts, c.groups, all};
  TileUnit unit;
  int64_t ready = -1;  // the row that the packed ones begin with
  const int64_t used = for_each_part(walk, panels, l, [&](int64_t g, int64_t begin, int64_t count, Range mine) {
    const int64_t block = unit_row_block(count, 2 * k);
    const UnitScratch<UnitBf16> own(scratch, block, 2 * k);
    for (int64_t m = begin; m < begin + count; m += block) {
      const int64_t rows = std::min(block, begin + count - m);
      if (m != ready)
        pack_unit_rows(rows, 2 * k, own.x, [&](int64_t i) {
          const int64_t from = c.token ? c.token[m + i] : m + i;
          return from < 0 || from >= c.x_rows ? nullptr : x + from * k;
        });
      ready = m;
      for (int64_t p = mine.begin; p < mine.end; ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
        unit_panel<UnitBf16>(unit, {own.x, rows, words}, weight + (g * panels + p) * panel_bytes, 0, columns, own.sums,
                             [&](Sums<float> sums, int64_t row, int64_t of_panel) {
                               round_sums<Bf16, Bf16>(sums, nullptr, out + (m + row) * n + column + of_panel, n);
                             });
      }
    }
  });
  clear_rows(walk, used, out, n, l);
}
#endif

template <class In>
void run_of(const GroupedCall& c, const Launch& l) {
  if constexpr (WeightOf<In>::kParts == 2) {
    const FlushSubnormals flush;
#if defined(REPRISE_TILES)
    return run_on_tiles(c, l);
#elif defined(__AVX512BF16__)
    if (l.way != 0) return run<In, WeightBf16Dot>(c, l);
#endif
    run<In, WeightOf<In>>(c, l);
  } else {
    run<In, WeightOf<In>>(c, l);
  }
}

template <class In>
void grouped(const GroupedLinearArgs& a, const Launch& l) {
  run_of<In>(GroupedCall(a, nullptr, l.size(a.shape.rows), l), l);
}
template <class In>
void grouped_rows(const GroupedLinearRowsArgs& a, const Launch& l) {
  run_of<In>(GroupedCall(a, a.token, l.size(a.x_rows), l), l);
}

}  // namespace

REPRISE_PRODUCTS(grouped_linear, grouped)
REPRISE_PRODUCTS(grouped_linear_rows, grouped_rows)

}  // namespace reprise::cpu::REPRISE_ISA
