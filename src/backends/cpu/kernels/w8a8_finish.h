// What becomes of the int32 sums of an int8 product: scaled, rounded rows of the result. Shared by the linears of one
// matrix and of groups. Internal linkage.
#pragma once

#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/w8a8_tiles.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Sums, and where their results go.
template <class Out>
struct Finished {
  Sums<int32_t> sums;
  typename Out::Type* out;
  int64_t n;
};

// A number per column, in registers where a panel is whole.
struct OfColumns {
  F32x16 v[kPanelColumns / 16];
  OfColumns(const float* p, int columns) {
#pragma GCC unroll 4
    for (int i = 0; i < kPanelColumns / 16; ++i)
      v[i] = p && 16 * i < columns ? load_n<F32>(p + 16 * i, columns - 16 * i) : zero();
  }
};

// `add` may be null, and is then not added: a sum of -0 stays what it is.
template <class Out>
void finish_static(const Finished<Out>& f, const float* scale, const int32_t* bias, const float* add) {
  const OfColumns s(scale, f.sums.columns), a(add, f.sums.columns);
  I32x16 b[kPanelColumns / 16] = {};
  for (int j = 0; j < f.sums.columns; j += 16) b[j / 16] = load_i32_n(bias + j, f.sums.columns - j);
  const auto scaled = [&](const int32_t* at, int64_t, int i) __attribute__((always_inline)) {
    return to_float(wrapping_add(load_i32(at), b[i])) * s.v[i];
  };
  if (!add) return store_rows<Out>(f.sums, f.out, f.n, scaled);
  store_rows<Out>(f.sums, f.out, f.n, [&](const int32_t* at, int64_t m, int i) { return scaled(at, m, i) + a.v[i]; });
}

template <class Out>
void finish_dynamic(const Finished<Out>& f, const float* scale, const float* x_scale, const float* add) {
  const OfColumns s(scale, f.sums.columns), a(add, f.sums.columns);
  const auto scaled = [&](const int32_t* at, int64_t m, int i) __attribute__((always_inline)) {
    return to_float(load_i32(at)) * s.v[i] * splat(x_scale[m]);
  };
  if (!add) return store_rows<Out>(f.sums, f.out, f.n, scaled);
  store_rows<Out>(f.sums, f.out, f.n, [&](const int32_t* at, int64_t m, int i) { return scaled(at, m, i) + a.v[i]; });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
