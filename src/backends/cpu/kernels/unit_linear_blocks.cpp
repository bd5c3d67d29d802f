// linear_blocks, lm_head_argmax_blocks and grouped_linear_blocks of bf16 rows on tile registers (unit_blocks.h).
// Workspace: unit_blocks_thread_bytes() a thread; of the head, then the best of every thread.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/unit_blocks.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class Out>
void unit_linear_blocks(const LinearBlocksArgs& a, const Launch& l) {
  const uint16_t* bias = a.bias;
  typename Out::Type* out = a.out;
  const int64_t n = a.shape.columns;
  unit_blocks_products(a, l, [&](Sums<float> sums, int64_t row, int64_t column) {
    round_sums<Bf16, Out>(sums, bias ? bias + column : nullptr, out + row * n + column, n);
  });
}

Best* unit_found(const LmHeadBlocksArgs& a, const Launch& l) {
  return found_by_threads(l, unit_blocks_thread_bytes(l.size(a.shape.rows), a.shape.depth));
}

void unit_head_blocks(const LmHeadBlocksArgs& a, const Launch& l) {
  const int64_t all_rows = l.size(a.shape.rows);
  Best* found = unit_found(a, l) + l.thread * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  unit_blocks_products(a, l,
                       [&](Sums<float> sums, int64_t row, int64_t column) { search_rows(sums, column, found + row); });
}

void merge_unit_head(const LmHeadBlocksArgs& a, const Launch& l) {
  merge_best(unit_found(a, l), a.out, l.size(a.shape.rows), l.thread, l.threads);
}

void unit_grouped_blocks(const GroupedLinearBlocksArgs& a, const Launch& l) {
  const int64_t all = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns,
                panels = (n + kPanelColumns - 1) / kPanelColumns;
  const uint16_t* x = a.x;
  const uint8_t* weight = a.weight;
  uint16_t* out = a.out;
  const Unpacking weights = unpacking_of(a.format, k);
  auto* scratch = l.scratch<uint8_t>(static_cast<int64_t>(unit_blocks_thread_bytes(all, k)));
  const GroupWalk walk{a.starts, a.groups, all};
  const FlushSubnormals flush;
  TileUnit unit;
  int64_t ready = -1;  // the row that the packed ones begin with
  const int64_t used = for_each_part(walk, panels, l, [&](int64_t g, int64_t begin, int64_t count, Range mine) {
    const int64_t block = unit_row_block(count, 2 * k);
    const UnitBlocksScratch own(scratch, block, k);
    for (int64_t m = begin; m < begin + count; m += block) {
      const int64_t rows = std::min(block, begin + count - m);
      if (m != ready) pack_unit_rows(rows, 2 * k, own.x, [&](int64_t i) { return x + (m + i) * k; });
      ready = m;
      for (int64_t p = mine.begin; p < mine.end; ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
        unit_blocks_panel(unit, {own.x, rows, k / kUnitK, weights, weight + (g * panels + p) * weights.panel_bytes, 0,
                                 (columns + 15) / 16 * 16, own.strip, own.sums});
        round_sums<Bf16, Bf16>({own.sums, rows, kPanelColumns, columns}, nullptr, out + m * n + column, n);
      }
    }
  });
  clear_rows(walk, used, out, n, l);
}

}  // namespace

REPRISE_KERNEL(linear_blocks_bf16, unit_linear_blocks<Bf16>)
REPRISE_KERNEL(linear_blocks_bf16_f32, unit_linear_blocks<F32>)
REPRISE_KERNEL(grouped_linear_blocks_bf16, unit_grouped_blocks)
REPRISE_KERNEL(lm_head_argmax_blocks_bf16, unit_head_blocks)
REPRISE_KERNEL(lm_head_argmax_blocks_merge, merge_unit_head)

}  // namespace reprise::cpu::REPRISE_ISA
