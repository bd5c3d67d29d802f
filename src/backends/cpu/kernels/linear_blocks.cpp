// linear_blocks, grouped_linear_blocks, lm_head_argmax_blocks and embedding_blocks: weights that stay in GGUF blocks
// (packed_products.h). Workspace: packed_thread_bytes() a thread; of the head, then the best of every thread. Linears
// whose inputs are rounded to int8 have two parts: rows, and their products; workspace: byte_rows_bytes() in all.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/packed_products.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In, class Out>
void linear_blocks(const LinearBlocksArgs& a, const Launch& l) {
  const typename In::Type* bias = a.bias;
  typename Out::Type* out = a.out;
  const int64_t n = a.shape.columns;
  packed_products<In, RowsAre::Prepared>(a, l, [&](Sums<float> sums, int64_t row, int64_t column) {
    round_sums<In, Out>(sums, bias ? bias + column : nullptr, out + row * n + column, n);
  });
}

template <class In>
void grouped_linear_blocks(const GroupedLinearBlocksArgs& a, const Launch& l) {
  using T = typename In::Type;
  const int64_t all = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns,
                panels = (n + kPanelColumns - 1) / kPanelColumns, panel_bytes = packed_panel_bytes(a.format, k);
  const T* x = a.x;
  const uint8_t* weight = a.weight;
  T* out = a.out;
  auto* own = l.scratch<float>(static_cast<int64_t>(packed_thread_bytes(all, k)));
  const GroupWalk walk{a.starts, a.groups, all};
  Scratch scratch;
  with_way<In, RowsAre::Prepared>(a, l, [&](const auto& way, PanelProduct product) {
    [[maybe_unused]] const typename std::decay_t<decltype(way)>::Mode mode;
    PackedPanel call{.k = k, .direct = l.way, .c = scratch.c, .strip = scratch.strip};
    int64_t ready = -1;  // the row that those of `call` begin with
    const int64_t used = for_each_part(walk, panels, l, [&](int64_t g, int64_t begin, int64_t count, Range mine) {
      const int64_t block = linear_row_block(count);
      for (int64_t m = begin; m < begin + count; m += block) {
        call.rows = std::min(block, begin + count - m);
        if (m != ready) way.set_rows(call, x, m, k, own);
        ready = m;
        for (int64_t p = mine.begin; p < mine.end; ++p) {
          const int64_t column = p * kPanelColumns;
          const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
          call.panel = weight + (g * panels + p) * panel_bytes;
          call.columns = (columns + 15) / 16 * 16;
          product(call);
          round_sums<In, In>({scratch.c, call.rows, kPanelColumns, columns}, nullptr, out + m * n + column, n);
        }
      }
    });
    clear_rows(walk, used, out, n, l);
  });
}

template <class In>
void prepare_linear_rows(const LinearBlocksArgs& a, const Launch& l) {
  prepare_byte_rows<In>(a, l);
}
template <class In>
void prepare_grouped_rows(const GroupedLinearBlocksArgs& a, const Launch& l) {
  prepare_byte_rows<In>(a, l);
}

Best* packed_found(const LmHeadBlocksArgs& a, const Launch& l) {
  return found_by_threads(l, packed_thread_bytes(l.size(a.shape.rows), a.shape.depth));
}

template <class In>
void lm_head_argmax_blocks(const LmHeadBlocksArgs& a, const Launch& l) {
  const int64_t all_rows = l.size(a.shape.rows);
  Best* found = packed_found(a, l) + l.thread * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  packed_products<In, RowsAre::InScratch>(
      a, l, [&](Sums<float> sums, int64_t row, int64_t column) { search_rows(sums, column, found + row); });
}

void merge_packed_head(const LmHeadBlocksArgs& a, const Launch& l) {
  merge_best(packed_found(a, l), a.out, l.size(a.shape.rows), l.thread, l.threads);
}

// 32 numbers of one row of a table: those of a register of rows are made at once.
template <class P>
void numbers_of_row(const uint8_t* panel, int64_t k, int column, float* out) {
  float strip[kUnitK * kStripColumns];
  const int first = column / kLanes * kLanes;
  BlockWalk<P> at(panel, k / P::kBlockK);
  for (int64_t i = 0; i < kUnitK; i += P::kBlockK, at.step())
    widen_block<P, EachNumber<P>>(at, first, kLanes, strip + i * kStripColumns);
  for (int64_t i = 0; i < kUnitK; ++i) out[i] = strip[i * kStripColumns + column - first];
}

template <class Out>
void embedding_blocks(const EmbeddingBlocksArgs& a, const Launch& l) {
  const uint8_t* table = a.table;
  const int32_t* ids = a.ids;
  typename Out::Type* out = a.out;
  const int64_t width = a.width, units = width / kUnitK;
  with_format(a.format, [&](auto p) {
    using P = decltype(p);
    // A row of a panel is spread over all of its lines, so even a single row is worth sharing.
    const Range mine = l.share(l.size(a.tokens) * units);
    for (int64_t u = mine.begin; u < mine.end; ++u) {
      const int64_t t = u / units, k = u % units * kUnitK, id = ids[t];
      float row[kUnitK] = {};
      if (id >= 0 && id < a.vocabulary)
        numbers_of_row<P>(table + id / kPanelColumns * BlockWalk<P>::bytes(width), k,
                          static_cast<int>(id % kPanelColumns), row);
      for (int64_t i = 0; i < kUnitK; i += 16) Out::store(out + t * width + k + i, load(row + i));
    }
  });
}

}  // namespace

REPRISE_KERNEL(linear_blocks_f32, linear_blocks<F32, F32>)
REPRISE_KERNEL(linear_blocks_bf16, linear_blocks<Bf16, Bf16>)
REPRISE_KERNEL(linear_blocks_bf16_f32, linear_blocks<Bf16, F32>)
REPRISE_KERNEL(linear_blocks_f16, linear_blocks<F16, F16>)
REPRISE_KERNEL(linear_blocks_f16_f32, linear_blocks<F16, F32>)
REPRISE_KERNELS(grouped_linear_blocks, grouped_linear_blocks)
REPRISE_KERNELS(linear_blocks_rows, prepare_linear_rows)
REPRISE_KERNELS(grouped_linear_blocks_rows, prepare_grouped_rows)
REPRISE_KERNELS(lm_head_argmax_blocks, lm_head_argmax_blocks)
REPRISE_KERNEL(lm_head_argmax_blocks_merge, merge_packed_head)
REPRISE_KERNELS(embedding_blocks, embedding_blocks)

}  // namespace reprise::cpu::REPRISE_ISA
