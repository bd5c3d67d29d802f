#include "backends/cpu/kernels/rope.h"

#include "backends/cpu/kernels/define.h"
#include "ops/args/rotation.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E>
void rotate_rows(const RopeArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  const float* table = a.table;
  typename E::Type* out = a.out;
  const int64_t heads = a.heads, size = a.size, half = a.rotated / 2;
  const Range rows = l.share(l.size(a.tokens) * heads);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* angles = table + r / heads * a.rotated;
    if (a.interleaved)
      rope_neighbours<E>(x + r * size, angles, out + r * size, half, size);
    else
      rope_head<E>(x + r * size, angles, out + r * size, half, size);
  }
}

// The angle is a product of floats, as HF computes it; its cosine and sine are those of libm in double,
// rounded once. Work is divided by single angles, so that one token keeps every thread busy.
void make_table(const RopeTableArgs& a, const Launch& l) {
  const int32_t* positions = a.positions;
  float* table = a.table;
  const int64_t dim = a.dim, half = dim / 2, window = a.ntk_window;
  const float scale = static_cast<float>(a.scale);
  const Range angles = l.share(l.size(a.tokens) * half);
  int64_t stretched_for = -1;  // the token whose base is in log2_base
  double log2_base = 0;
  for (int64_t u = angles.begin; u < angles.end; ++u) {
    const int64_t t = u / half, i = u % half;
    const int64_t length = static_cast<int64_t>(positions[t]) + 1;
    double freq = a.inv_freq[i];
    if (window > 0 && length > window) {
      if (stretched_for != t) {
        const double stretch =
            a.ntk_factor * static_cast<double>(length) / static_cast<double>(window) - (a.ntk_factor - 1);
        const double power = static_cast<double>(dim) / static_cast<double>(dim - 2);
        log2_base = __builtin_log2(a.ntk_base) + power * __builtin_log2(stretch);
        stretched_for = t;
      }
      freq = __builtin_exp2(-2.0 * static_cast<double>(i) / static_cast<double>(dim) * log2_base);
    }
    const float angle = static_cast<float>(positions[t]) * static_cast<float>(freq);
    table[t * dim + i] = static_cast<float>(__builtin_cos(static_cast<double>(angle))) * scale;
    table[t * dim + half + i] = static_cast<float>(__builtin_sin(static_cast<double>(angle))) * scale;
  }
}

// The same angle of one of several positions.
void make_axes_table(const RopeTableAxesArgs& a, const Launch& l) {
  const int32_t* positions = a.positions;
  float* table = a.table;
  const int64_t half = a.frequencies, columns = a.columns;
  const float scale = static_cast<float>(a.scale);
  const Range angles = l.share(l.size(a.tokens) * half);
  for (int64_t u = angles.begin; u < angles.end; ++u) {
    const int64_t t = u / half, i = u % half;
    const int32_t position = positions[t * columns + static_cast<int64_t>(a.axes[i])];
    const float angle = static_cast<float>(position) * static_cast<float>(a.inv_freq[i]);
    table[t * 2 * half + i] = static_cast<float>(__builtin_cos(static_cast<double>(angle))) * scale;
    table[t * 2 * half + half + i] = static_cast<float>(__builtin_sin(static_cast<double>(angle))) * scale;
  }
}

void scale_positions(const PositionScaleArgs& a, const Launch& l) {
  const int32_t* positions = a.positions;
  float* out = a.out;
  const Range mine = l.share(l.size(a.tokens));
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    const int64_t at = positions[t] < 0 ? 0 : (positions[t] + a.offset) / a.period;
    out[t] = static_cast<float>(a.factors[at < a.count ? at : a.count - 1]);
  }
}

}  // namespace

REPRISE_KERNELS(rope, rotate_rows)
REPRISE_KERNEL(position_scale, scale_positions)
REPRISE_KERNEL(rope_table, make_table)
REPRISE_KERNEL(rope_table_axes, make_axes_table)

}  // namespace reprise::cpu::REPRISE_ISA
