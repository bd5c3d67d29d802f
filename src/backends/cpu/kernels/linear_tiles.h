// The machinery of ops around a matrix product: blocks of rows and panels of weights through the tiles of tile.h, and
// what is done with the sums of each panel left to the op.
//
// Rows go in blocks that stay in the second-level cache while the weights stream past, so up to kBlockRows rows read
// every weight once. 16-bit x is widened once per block of rows; 16-bit weights are widened inside the tile for few
// rows, and by the first of several tiles for all of them. Everything here has internal linkage, as in a source file of
// its own.
#pragma once

#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/parts.h"
#include "backends/cpu/kernels/tile.h"
#ifdef REPRISE_TILES
#include "backends/cpu/kernels/unit_products.h"
#endif

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kBlockDepth = 128;  // k of one block: a strip or a panel of 16 KiB, leaving room for x and the sums
template <class W>                    // rows up to which memory is the limit, and whole panels stream best
constexpr int kFewRows = (kRegisters == 16                ? 1
                          : sizeof(typename W::Elem) == 4 ? 4
                                                          : 2) *
                         kTileRows;
constexpr int64_t kAheadBytes = 8192;  // how far ahead a single pass over the weights fetches

template <class E>
struct WeightsOf;
template <>
struct WeightsOf<F32> {
  using Type = WeightF32;
};
template <>
struct WeightsOf<Bf16> {
  using Type = WeightBf16;
};
template <>
struct WeightsOf<F16> {
  using Type = WeightF16;
};
template <class E>
using WeightOf = typename WeightsOf<E>::Type;

// One row of x as the tiles want it: fp32, for bf16 with the values of a pair swapped, zeros up to a multiple of 16.
template <class In>
void widen_row(const typename In::Type* x, int64_t k, float* out) {
  for (int64_t i = 0; i < k; i += 16) {
    typename In::Type padded[16] = {};
    const typename In::Type* from = x + i;
    if (k - i < 16) {
      std::memcpy(padded, from, static_cast<size_t>(k - i) * sizeof(padded[0]));
      from = padded;
    }
    F32x16 v = In::load(from);
    if constexpr (WeightOf<In>::kParts == 2) v = swap_pairs(v);
    store(out + i, v);
  }
}

struct Scratch {
  alignas(64) float c[kBlockRows * kPanelColumns];
  alignas(64) float strip[kBlockDepth * kStripColumns];
};

// All row tiles of a panel in one block of k, for few rows. The lines to fetch meanwhile are spread over the tiles, as
// one run after the other; two tiles take a pair of lines each in every step where there are four. Both measured best
// where they are used.
template <class W>
void panel_of_tiles(const typename W::X* x, int64_t ldx, int64_t rows, const typename W::Elem* w, int64_t steps,
                    float* c, int columns, bool resume, Ahead ahead) {
  const int tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
  const bool runs = (tiles > 2 || ahead.lines < 4) && ahead.lines * 64 == ahead.stride;
  for (int t = 0; t < tiles; ++t) {
    const Range r = share(rows, t, tiles);
    int lines = (ahead.lines + tiles - t - 1) / (tiles - t);
    if (!runs) lines = std::min(ahead.lines, (lines + 1) / 2 * 2);
    tile_rows<W>(static_cast<int>(r.end - r.begin), x + r.begin * ldx, ldx, w, steps, c + r.begin * kPanelColumns,
                 columns, resume, {ahead.next, lines, runs ? 64 * lines : ahead.stride});
    ahead.next += 64 * lines * (runs ? steps : 1);
    ahead.lines -= lines;
  }
}

// All row tiles of one strip in one block of k, for many rows; `bytes` from ahead.next on are fetched meanwhile,
// evenly.
template <class W>
void strip_of_tiles(const typename W::X* x, int64_t ldx, int64_t rows, const typename W::Elem* w, int64_t steps,
                    float* c, int columns, bool resume, const char* next, int64_t bytes, float* strip) {
  constexpr bool kKeep = !W::kDot && kStepElems<W> != kStripColumns;  // fp32 is copied to lie close

  const int tiles = static_cast<int>((rows + kStripRows - 1) / kStripRows);
  for (int t = 0; t < tiles; ++t) {
    const Range r = share(rows, t, tiles);
    const int count = static_cast<int>(r.end - r.begin);
    const auto* xr = x + r.begin * ldx;
    float* cr = c + r.begin * kPanelColumns;
    const bool kept = kKeep && t > 0;
    const int64_t tile_steps = kept ? steps * W::kParts : steps, tile_bytes = bytes / tiles;
    const int stride = static_cast<int>((tile_bytes + tile_steps - 1) / tile_steps);

    const Ahead ahead{next + t * tile_bytes, 1, stride};

    if constexpr (kKeep) {
      if (kept) {
        strip_rows<WeightStrip, false>(count, xr, ldx, strip, tile_steps, cr, columns, resume, ahead, nullptr);
        continue;
      }
      if (tiles > 1) {
        strip_rows<W, true>(count, xr, ldx, w, steps, cr, columns, resume, ahead, strip);
        continue;
      }
    }
    strip_rows<W, false>(count, xr, ldx, w, steps, cr, columns, resume, ahead, nullptr);
  }
}

// `columns` (a multiple of 16) of one panel for one block of rows: sums in scratch.c. The next block of weights is
// fetched while this one is used.
template <class W>
void panel_product(const typename W::X* x, int64_t ldx, int64_t rows, const typename W::Elem* panel, int first,
                   int64_t k, int columns, Scratch& scratch) {
  const int64_t steps = (k + W::kDepth - 1) / W::kDepth;
  const bool few = rows <= kFewRows<W>;
  const int64_t depth = few && sizeof(typename W::Elem) == 4 ? kBlockDepth / 2 : kBlockDepth;
  const bool whole = rows <= kPanelWideRows;  // else a block stays in the first-level cache for all passes
  const int64_t blocks = whole ? 1 : (k + depth - 1) / depth;
  const int64_t block = (steps + blocks - 1) / blocks;  // about equally long: a short one cannot hide the next's way
  constexpr int kStepBytes = static_cast<int>(kStepElems<W> * static_cast<int64_t>(sizeof(typename W::Elem)));
  const int piece = kStepBytes / kPanelColumns * columns;
  for (int64_t s = 0; s < steps; s += block) {
    const int64_t n = std::min(block, steps - s);
    const typename W::X* xs = x + s * W::kParts;
    const typename W::Elem* w = panel + s * kStepElems<W> + first * W::kDepth;
    const char* next = reinterpret_cast<const char*>(w) + (whole ? kAheadBytes : n * kStepBytes);
    if (few) {
      panel_of_tiles<W>(xs, ldx, rows, w, n, scratch.c, columns, s > 0, {next, (piece + 63) / 64, kStepBytes});
      continue;
    }
    for (int j = 0; j < columns; j += kStripColumns) {
      const int width = std::min(kStripColumns, columns - j);
      strip_of_tiles<W>(xs, ldx, rows, w + j * W::kDepth, n, scratch.c + j, width, s > 0,
                        next + n * kStepBytes * j / columns, n * kStepBytes * width / columns, scratch.strip);
    }
  }
}

// The sums of a thread's rows and columns, part by part: finish(sums, first row, first column) may change them. Of the
// arguments x, weight and shape are read.
template <class In, class W, class Finish>
void products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const typename In::Type* x = a.x;
  const typename W::Elem* weight = a.weight;
  const int64_t panel_elems = (k + W::kDepth - 1) / W::kDepth * kStepElems<W>;
  auto* wide_x = l.scratch<float>(static_cast<int64_t>(linear_thread_bytes(all_rows, k)));
  Scratch scratch;
  const typename W::X* xt = nullptr;
  int64_t ldx = 0;
  const auto prepare = [&](int64_t m, int64_t rows) {
    const typename In::Type* xm = x + m * k;
    ldx = linear_x_stride(k);
    if constexpr (W::kDot) {
      // Pairs are read as words; an odd row length needs rows of its own with a zero at the end.
      xt = reinterpret_cast<const uint32_t*>(xm);
      if (k % 2 == 0) {
        ldx = k / 2;
      } else {
        xt = reinterpret_cast<const uint32_t*>(wide_x);
        for (int64_t i = 0; i < rows; ++i) {
          auto* row = reinterpret_cast<uint16_t*>(wide_x + i * ldx);
          std::memcpy(row, xm + i * k, static_cast<size_t>(k) * 2);
          row[k] = 0;
        }
      }
    } else if constexpr (sizeof(typename In::Type) == 2) {
      for (int64_t i = 0; i < rows; ++i) widen_row<In>(xm + i * k, k, wide_x + i * ldx);
      xt = wide_x;
    } else {
      xt = xm;
      ldx = k;
    }
  };
  linear_parts(l, all_rows, n, prepare, [&](const LinearParts::Part& p) {
    const int columns = p.last - p.first;
    panel_product<W>(xt, ldx, p.rows, weight + p.panel * panel_elems, p.first, k, (columns + 15) / 16 * 16, scratch);
    finish(Sums<float>{scratch.c, p.rows, kPanelColumns, columns}, p.row, p.panel * kPanelColumns + p.first);
  });
}

// The bytes of the workspace that each thread has for itself.
template <class In>
size_t product_bytes(int64_t rows, int64_t k) {
#ifdef REPRISE_TILES
  if constexpr (WeightOf<In>::kParts == 2) return unit_thread_bytes(rows, 2 * k);
#endif
  return linear_thread_bytes(rows, k);
}

// The same with the weights of the dtype; bf16 on tile registers in their order, else by the faster of two ways with
// the same bits (the launch says which).
template <class In, class Finish>
void products_of(const auto& a, const Launch& l, const Finish& finish) {
  if constexpr (WeightOf<In>::kParts == 2) {
    const FlushSubnormals flush;
#if defined(REPRISE_TILES)
    auto* own = l.scratch<uint8_t>(static_cast<int64_t>(product_bytes<In>(l.size(a.shape.rows), a.shape.depth)));
    return unit_products<UnitBf16>(a, l, own, finish);
#elif defined(__AVX512BF16__)
    if (l.way != 0) return products<In, WeightBf16Dot>(a, l, finish);
#endif
    products<In, WeightOf<In>>(a, l, finish);
  } else {
    products<In, WeightOf<In>>(a, l, finish);
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
