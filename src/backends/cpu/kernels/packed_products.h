// The machinery of matrix products with weights in GGUF blocks: rows of fp32 and f16 go through the chains of
// packed_tiles.h, rows of bf16 through the sums by blocks of packed_sums.h. Internal linkage, as linear_tiles.h.
#pragma once

#include "backends/cpu/kernels/linear_blocks.h"
#include "backends/cpu/kernels/packed_sums.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// How sums are made: what the products read of rows, and how subnormals are taken meanwhile.
template <class In>
struct ChainWay {
  struct Mode {};
  // As fp32: as they lie, or widened into scratch.
  static void set_rows(PackedPanel& to, const typename In::Type* x, int64_t k, int64_t, float* scratch) {
    to.x = x;
    to.stride = k;
    if constexpr (sizeof(typename In::Type) == 4) return;
    to.x = scratch;
    to.stride = packed_x_stride(k);
    for (int64_t i = 0; i < to.rows; ++i)  // K is a multiple of 32
      for (int64_t j = 0; j < k; j += 16) store(scratch + i * to.stride + j, In::load(x + i * k + j));
  }
};
template <class W>
struct SumsWay {
  using Mode = FlushSubnormals;
  static void set_rows(PackedPanel& to, const uint16_t* x, int64_t k, int64_t minimum_k, float* scratch) {
    const PairRows<W> rows = pair_rows<W>(x, to.rows, k, minimum_k, scratch);
    to.x = rows.items;
    to.whole = rows.sums;
    to.stride = rows.stride;
  }
};

// Calls body(Way{}, product) for rows of In and the format. The launch's way: of bf16, whether vdpbf16ps is the faster
// one; else the number of rows up to which weights are unpacked in registers.
template <class In, class Body>
void with_way(BlockFormat format, const Launch& l, const Body& body) {
  if constexpr (WeightOf<In>::kParts == 2) {
#if defined(__AVX512BF16__)
    if (l.way != 0) return body(SumsWay<PairWords>{}, pair_words_product(format));
#endif
    body(SumsWay<PairFloats>{}, pair_floats_product(format));
  } else {
    body(ChainWay<In>{}, chains_product(format));
  }
}

inline int64_t packed_panel_bytes(BlockFormat format, int64_t k) {
  int64_t bytes = 0;
  with_format(format, [&](auto p) { bytes = BlockWalk<decltype(p)>::bytes(k); });
  return bytes;
}

// How many k share a minimum; 0 where there are none.
inline int64_t minimum_k(BlockFormat format) {
  int64_t k = 0;
  with_format(format, [&](auto p) { k = decltype(p)::kMinimum ? decltype(p)::kBlockK : 0; });
  return k;
}

// As products() of linear_tiles.h.
template <class In, class Finish>
void packed_products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const LinearShare mine = linear_share(all_rows, n, l.thread, l.threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const typename In::Type* x = a.x;
  const uint8_t* weight = a.weight;
  const int64_t panel_bytes = packed_panel_bytes(a.format, k);
  auto* own = l.scratch<float>(static_cast<int64_t>(packed_thread_bytes(all_rows, k)));
  const int64_t block = linear_row_block(mine.rows.end - mine.rows.begin);
  Scratch scratch;
  with_way<In>(a.format, l, [&](auto way, PanelProduct product) {
    [[maybe_unused]] const typename decltype(way)::Mode mode;
    PackedPanel call{.k = k, .direct = l.way, .c = scratch.c, .strip = scratch.strip};
    for (int64_t m = mine.rows.begin; m < mine.rows.end; m += block) {
      call.rows = std::min(mine.rows.end - m, block);
      way.set_rows(call, x + m * k, k, minimum_k(a.format), own);
      for (int64_t p = mine.columns.begin / kPanelColumns; p * kPanelColumns < mine.columns.end; ++p) {
        const int64_t base = p * kPanelColumns;
        const int last = static_cast<int>(std::min<int64_t>(mine.columns.end - base, kPanelColumns));
        call.panel = weight + p * panel_bytes;
        call.first = static_cast<int>(std::max(mine.columns.begin, base) - base);
        call.columns = (last - call.first + 15) / 16 * 16;
        product(call);
        finish(scratch.c, m, call.rows, base + call.first, last - call.first);
      }
    }
  });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
