// The machinery of matrix products with weights in GGUF blocks: rows of fp32 and f16 go through the chains of
// packed_tiles.h, rows of bf16 through the sums by blocks of packed_sums.h, and inputs that are rounded to int8 through
// those of byte_sums.h. Internal linkage, as linear_tiles.h.
#pragma once

#include "backends/cpu/kernels/byte_rows.h"
#include "backends/cpu/kernels/linear_blocks.h"
#include "backends/cpu/kernels/packed_sums.h"
#include "backends/cpu/kernels/parts.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// How sums are made: what the products read of rows, and how subnormals are taken meanwhile. set_rows() prepares rows
// [first, first + to.rows) of x, in a thread's scratch memory where they cannot be read as they lie.
template <class In>
struct ChainWay {
  struct Mode {};
  // As fp32: as they lie, or widened into scratch.
  void set_rows(PackedPanel& to, const typename In::Type* x, int64_t first, int64_t k, float* scratch) const {
    x += first * k;
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
  int64_t minimum_k;  // how many k share a minimum; 0 where there are none
  void set_rows(PackedPanel& to, const uint16_t* x, int64_t first, int64_t k, float* scratch) const {
    const PairRows<W> rows = pair_rows<W>(x + first * k, to.rows, k, minimum_k, scratch);
    to.x = rows.items;
    to.whole = rows.sums;
    to.stride = rows.stride;
  }
};
template <class In>
struct BytesWay {
  struct Mode {};
  ByteRowForm form;
  uint32_t *prepared, *list;  // all rows, by the launch's first part, and room for this thread's list of outliers;
                              // null: a thread prepares what it reads, and has all in its scratch memory
  void set_rows(PackedPanel& to, const typename In::Type* x, int64_t first, int64_t k, float* scratch) const {
    auto* own = reinterpret_cast<uint32_t*>(scratch);
    const int64_t stride = byte_x_stride(k);
    if (!prepared)
      for (int64_t i = 0; i < to.rows; ++i) write_byte_row<In>(x + (first + i) * k, k, form, own + i * stride);
    uint32_t* rows = prepared ? prepared + first * stride : own;
    to.outliers = list_outliers(rows, to.rows, k, form, prepared ? list : own + to.rows * stride);
    to.x = rows;
    to.whole = reinterpret_cast<const float*>(rows + k / 4);
    to.stride = stride;
  }
};

// The first part of a launch whose inputs are rounded to int8: every thread prepares its share of the rows.
template <class In, class A>
void prepare_byte_rows(const A& a, const Launch& l) {
  const typename In::Type* x = a.x;
  const int64_t k = a.shape.depth, stride = byte_x_stride(k);
  auto* rows = static_cast<uint32_t*>(l.workspace);
  const ByteRowForm form = byte_row_form(a.format);
  const Range mine = l.share(l.size(a.shape.rows));
  for (int64_t r = mine.begin; r < mine.end; ++r) write_byte_row<In>(x + r * k, k, form, rows + r * stride);
}

inline int64_t minimum_k_of(BlockFormat format) {
  int64_t k = 0;
  with_format(format, [&](auto p) { k = decltype(p)::kMinimum ? decltype(p)::kBlockK : 0; });
  return k;
}

// Where a launch has its rows: in scratch memory of each thread, or prepared by the first part.
enum class RowsAre : uint8_t { InScratch, Prepared };

// Calls body(way, product) for rows of In. The launch's way: of bf16, whether vdpbf16ps is the faster one; else the
// number of rows up to which weights are unpacked in registers.
template <class In, RowsAre kRows, class Body>
void with_way(const auto& a, const Launch& l, const Body& body) {
  if (a.int8_activations) {
    const int64_t rows = l.size(a.shape.rows), k = a.shape.depth;
    uint32_t *prepared = nullptr, *list = nullptr;
    if constexpr (kRows == RowsAre::Prepared) {
      prepared = static_cast<uint32_t*>(l.workspace);
      list = prepared + byte_rows_words(rows, k) + l.thread * outlier_list_words(rows, k);
    }
    return body(BytesWay<In>{byte_row_form(a.format), prepared, list}, bytes_product(a.format));
  }
  if constexpr (WeightOf<In>::kParts == 2) {
    const int64_t k = minimum_k_of(a.format);
#if defined(__AVX512BF16__)
    if (l.way != 0) return body(SumsWay<PairWords>{k}, pair_words_product(a.format));
#endif
    body(SumsWay<PairFloats>{k}, pair_floats_product(a.format));
  } else {
    body(ChainWay<In>{}, chains_product(a.format));
  }
}

inline int64_t packed_panel_bytes(BlockFormat format, int64_t k) {
  int64_t bytes = 0;
  with_format(format, [&](auto p) { bytes = BlockWalk<decltype(p)>::bytes(k); });
  return bytes;
}

// As products() of linear_tiles.h.
template <class In, RowsAre kRows, class Finish>
void packed_products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const typename In::Type* x = a.x;
  const uint8_t* weight = a.weight;
  const int64_t panel_bytes = packed_panel_bytes(a.format, k);
  auto* own = l.scratch<float>(static_cast<int64_t>(packed_thread_bytes(all_rows, k)));
  Scratch scratch;
  with_way<In, kRows>(a, l, [&](const auto& way, PanelProduct product) {
    [[maybe_unused]] const typename std::decay_t<decltype(way)>::Mode mode;
    PackedPanel call{.k = k, .direct = l.way, .c = scratch.c, .strip = scratch.strip};
    const auto prepare = [&](int64_t m, int64_t rows) {
      call.rows = rows;
      way.set_rows(call, x, m, k, own);
    };
    linear_parts(l, all_rows, n, prepare, [&](const LinearParts::Part& p) {
      call.panel = weight + p.panel * panel_bytes;
      call.first = p.first;
      call.columns = (p.last - p.first + 15) / 16 * 16;
      product(call);
      finish(Sums<float>{scratch.c, call.rows, kPanelColumns, p.last - p.first}, p.row,
             p.panel * kPanelColumns + p.first);
    });
  });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
