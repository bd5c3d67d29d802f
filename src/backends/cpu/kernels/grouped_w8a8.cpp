// grouped_linear_w8a8_static and grouped_linear_w8a8_dynamic: groups of int8 rows, each times its own int8 matrix of a
// stack in the panel64 layout, scaled and rounded; and quantize_groups, which makes such rows where every group has a
// scale of its own.
//
// Workspace: w8a8_shape.h, as of a linear with as many rows. A row's result is that of linear_w8a8_static or
// linear_w8a8_dynamic with its group's matrix.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/kernels/w8a8_finish.h"
#include "ops/args/products.h"
#include "ops/args/quantise.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

#ifdef REPRISE_TILES
struct GroupShape {
  int64_t k, n;
  Range panels;
};

// The rows of one group, from row `first` on, on tile registers: finish(sums, first row, first column). `ready`: the
// row that those in `scratch` begin with.
template <class Finish>
void unit_group(const int8_t* x, int64_t first, int64_t count, const GroupShape& shape, const int8_t* matrix,
                uint8_t* scratch, int64_t& ready, const Finish& finish) {
  const int64_t k = shape.k, words = (k + 3) / 4, panel_size = kHeaderBytes + words * kWordBytes;
  const int64_t block = unit_row_block(count, k);
  const UnitScratch<UnitI8> own(scratch, block, k);
  TileUnit unit;
  for (int64_t m = first; m < first + count; m += block) {
    const int64_t rows = std::min(block, first + count - m);
    if (m != ready) pack_unit_rows(rows, k, own.x, [&](int64_t i) { return x + (m + i) * k; });
    ready = m;
    for (int64_t p = shape.panels.begin; p < shape.panels.end; ++p) {
      const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, shape.n - p * kPanelColumns));
      const auto* panel = reinterpret_cast<const uint8_t*>(matrix + p * panel_size + kHeaderBytes);
      unit_panel<UnitI8>(unit, {own.x, rows, words}, panel, 0, columns, own.sums,
                         [&](Sums<int32_t> sums, int64_t row, int64_t of_panel) {
                           finish(sums, m + row, p * kPanelColumns + of_panel);
                         });
    }
  }
}
#endif

template <class Out, class A>
void grouped_int8(const A& a, const Launch& l) {
  constexpr bool kStatic = requires { a.bias; };
  const int64_t all = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const int64_t panels = (n + kPanelColumns - 1) / kPanelColumns, groups = (k + 3) / 4;
  const int64_t panel_size = kHeaderBytes + groups * kWordBytes, ldx = w8a8_x_stride(k, kXWords);
  const int8_t *x = a.x, *weight = a.weight;
  const float* scale = a.scale;
  typename Out::Type* out = a.out;
  auto* prepared = l.scratch<uint32_t>(static_cast<int64_t>(w8a8_bytes(all, k)));
  const GroupWalk walk{a.starts, a.groups, all};
  alignas(64) int32_t sums[kFewTiles * kTileRows * kPanelColumns];
  int64_t ready = -1;  // the row that the prepared ones begin with
  const int64_t used = for_each_part(walk, panels, l, [&](int64_t e, int64_t begin, int64_t count, Range mine) {
    const auto finish = [&](Sums<int32_t> sums, int64_t row, int64_t column) {
      const int64_t of_all = e * n + column;
      const Finished<Out> f{sums, out + row * n + column, n};
      if constexpr (kStatic)
        finish_static(f, scale + of_all, static_cast<const int32_t*>(a.bias) + of_all, nullptr);
      else
        finish_dynamic(f, scale + of_all, static_cast<const float*>(a.x_scale) + row, nullptr);
    };
    const int8_t* matrix = weight + e * panels * panel_size;
#ifdef REPRISE_TILES
    if (on_tiles(count)) {
      auto* scratch = reinterpret_cast<uint8_t*>(prepared);
      unit_group(x, begin, count, {k, n, mine}, matrix, scratch, ready, finish);
      return;
    }
#endif
    const int64_t block = linear_row_block(count);
    for (int64_t m = begin; m < begin + count; m += block) {
      const int64_t rows = std::min(block, begin + count - m);
      for (int64_t i = 0; m != ready && i < rows; ++i) prepare_row(x + (m + i) * k, k, prepared + i * ldx);
      ready = m;
      for (int64_t p = mine.begin; p < mine.end; ++p) {
        const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - p * kPanelColumns));
        w8a8_panel(prepared, ldx, rows, matrix + p * panel_size, 0, columns, groups, sums,
                   [&](int32_t* c, int64_t row, int64_t got) {
                     finish(Sums<int32_t>{c, got, kPanelColumns, columns}, m + row, p * kPanelColumns);
                   });
      }
    }
  });
  clear_rows(walk, used, out, n, l);
}

template <typename E>
void quant_groups(const QuantizeGroupsArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  const float *scale = a.scale, *offset = a.offset;
  int8_t* out = a.values;
  const int64_t all = l.size(a.rows), n = a.width;
  const GroupWalk walk{a.starts, a.groups, all};
  const Range mine = l.share(all);
  const int64_t used = walk.each([&](int64_t g, int64_t first, int64_t rows) {
    const StaticScale by(scale + g, offset + g, 0, 0);
    const int64_t last = std::min(mine.end, first + rows);
    for (int64_t row = std::max(mine.begin, first); row < last; ++row)
      each_sixteen(n, [&](int64_t i, int64_t rest) {
        store_i8_n(out + row * n + i, by.apply(load_n<E>(x + row * n + i, rest), i, rest), rest);
      });
  });
  clear_rows(walk, used, out, n, l);
}

}  // namespace

REPRISE_KERNELS(grouped_linear_w8a8_static, grouped_int8, GroupedW8a8StaticArgs)
REPRISE_KERNELS(grouped_linear_w8a8_dynamic, grouped_int8, GroupedW8a8DynamicArgs)
REPRISE_KERNELS(quantize_groups, quant_groups)

}  // namespace reprise::cpu::REPRISE_ISA
