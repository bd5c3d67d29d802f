// The machinery of matrix products with weights in GGUF blocks: rows of fp32 and f16 go through the chains of
// packed_tiles.h, rows of bf16 through the sums by blocks of packed_sums.h. Internal linkage, as linear_tiles.h.
#pragma once

#include "backends/cpu/kernels/packed_sums.h"
#include "backends/cpu/kernels/packed_tiles.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// How sums are made: what the tiles read of rows, how subnormals are taken meanwhile, and the product with a panel.
template <class In>
struct ChainWay {
  struct Mode {};
  // As fp32: as they lie, or widened into scratch.
  template <class P>
  static WideRows rows(const typename In::Type* x, int64_t rows, int64_t k, float* scratch) {
    if constexpr (sizeof(typename In::Type) == 4) return {x, k};
    const int64_t stride = packed_x_stride(k);
    for (int64_t i = 0; i < rows; ++i)  // K is a multiple of 32
      for (int64_t j = 0; j < k; j += 16) store(scratch + i * stride + j, In::load(x + i * k + j));
    return {scratch, stride};
  }
  template <class P>
  static void product(const WideRows& x, int64_t rows, const uint8_t* panel, int first, int64_t k, int columns,
                      int64_t direct, Scratch& scratch) {
    packed_product<P>(x, rows, panel, first, k, columns, static_cast<int>(direct), scratch);
  }
};
template <class W>
struct SumsWay {
  using Mode = FlushSubnormals;
  template <class P>
  static PairRows<W> rows(const uint16_t* x, int64_t rows, int64_t k, float* scratch) {
    return pair_rows<W, P>(x, rows, k, scratch);
  }
  template <class P>
  static void product(const PairRows<W>& x, int64_t rows, const uint8_t* panel, int first, int64_t k, int columns,
                      int64_t, Scratch& scratch) {
    sums_product<W, P>(x, rows, panel, first, k, columns, scratch);
  }
};

// Calls body(Way{}, P{}) for rows of In and the format. The launch's way: of bf16, whether vdpbf16ps is the faster one;
// else the number of rows up to which weights are unpacked in registers.
template <class In, class Body>
void with_way(BlockFormat format, const Launch& l, const Body& body) {
  with_format(format, [&](auto p) {
    if constexpr (WeightOf<In>::kParts == 2) {
#if defined(__AVX512BF16__)
      if (l.way != 0) return body(SumsWay<PairWords>{}, p);
#endif
      body(SumsWay<PairFloats>{}, p);
    } else {
      body(ChainWay<In>{}, p);
    }
  });
}

// As products() of linear_tiles.h.
template <class In, class Way, class P, class Finish>
void packed_products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const LinearShare mine = linear_share(all_rows, n, l.thread, l.threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const typename In::Type* x = a.x;
  const uint8_t* weight = a.weight;
  const int64_t panel_bytes = BlockWalk<P>::bytes(k);
  auto* own = l.scratch<float>(static_cast<int64_t>(packed_thread_bytes(all_rows, k)));
  const int64_t block = linear_row_block(mine.rows.end - mine.rows.begin);
  Scratch scratch;
  [[maybe_unused]] const typename Way::Mode mode;
  for (int64_t m = mine.rows.begin; m < mine.rows.end; m += block) {
    const int64_t rows = std::min(mine.rows.end - m, block);
    const auto xt = Way::template rows<P>(x + m * k, rows, k, own);
    for (int64_t p = mine.columns.begin / kPanelColumns; p * kPanelColumns < mine.columns.end; ++p) {
      const int64_t base = p * kPanelColumns;
      const int first = static_cast<int>(std::max(mine.columns.begin, base) - base);
      const int last = static_cast<int>(std::min<int64_t>(mine.columns.end - base, kPanelColumns));
      Way::template product<P>(xt, rows, weight + p * panel_bytes, first, k, (last - first + 15) / 16 * 16, l.way,
                               scratch);
      finish(scratch.c, m, rows, base + first, last - first);
    }
  }
}

template <class In, class Finish>
void packed_products_of(const auto& a, const Launch& l, const Finish& finish) {
  with_way<In>(a.format, l, [&](auto way, auto p) { packed_products<In, decltype(way), decltype(p)>(a, l, finish); });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
