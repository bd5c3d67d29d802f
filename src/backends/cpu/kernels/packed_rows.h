// Rows of x from anywhere as the tiles of a matrix product want them: packed into a thread's scratch, or in place.
// Internal linkage, as linear_tiles.h.
#pragma once

#include "backends/cpu/kernels/linear_tiles.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class W>
struct TileRows {
  const typename W::X* x;
  int64_t ldx;
};

// Row i is k numbers from row_at(i) on; zeros where that is null.
template <class In, class W, class RowAt>
TileRows<W> packed_rows(int64_t rows, int64_t k, float* scratch, const RowAt& row_at) {
  using T = typename In::Type;
  const int64_t ldx = linear_x_stride(k);
  for (int64_t i = 0; i < rows; ++i) {
    float* to = scratch + i * ldx;
    const T* row = row_at(i);
    if (!row) {
      std::memset(to, 0, static_cast<size_t>(ldx) * sizeof(float));
    } else if constexpr (W::kDot || sizeof(T) == 4) {
      std::memcpy(to, row, static_cast<size_t>(k) * sizeof(T));
      if (W::kDot && k % 2 != 0) reinterpret_cast<T*>(to)[k] = 0;
    } else {
      widen_row<In>(row, k, to);
    }
  }
  return {reinterpret_cast<const typename W::X*>(scratch), ldx};
}

// Rows that lie `stride` numbers apart; in place where the tiles can read them so.
template <class In, class W>
TileRows<W> rows_as_they_lie(const typename In::Type* x, int64_t stride, int64_t rows, int64_t k, float* scratch) {
  if constexpr (sizeof(typename In::Type) == 4) return {x, stride};
  if constexpr (W::kDot)
    if (k % 2 == 0 && stride % 2 == 0) return {reinterpret_cast<const typename W::X*>(x), stride / 2};
  return packed_rows<In, W>(rows, k, scratch, [&](int64_t i) { return x + i * stride; });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
