#include "backends/cpu/kernels/rope.h"

#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: x, table, out. dim: tokens, heads, head size, rotated size, pairs are interleaved.
template <typename E>
void run(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  const auto* table = static_cast<const float*>(args.ptr[1]);
  auto* out = static_cast<typename E::Type*>(args.ptr[2]);
  const int64_t heads = args.dim[1].value(live), size = args.dim[2].value(live), rot = args.dim[3].value(live);
  const Range rows = share(args.dim[0].value(live) * heads, rank, ranks);
  const bool interleaved = args.dim[4].value(live) != 0;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* angles = table + r / heads * rot;
    if (interleaved)
      rope_neighbours<E>(x + r * size, angles, out + r * size, rot / 2, size);
    else
      rope_head<E>(x + r * size, angles, out + r * size, rot / 2, size);
  }
}

}  // namespace

REPRISE_KERNELS(rope, run)

// ptr: positions, table, inv_freq (the attribute's own doubles). dim: tokens, dim, ntk_window. scalar: scale, ntk_base,
// ntk_factor. The angle is a product of floats, as HF computes it; its cosine and sine are those of libm in double,
// rounded once. Work is divided by single angles, so that one token keeps every rank busy.
void rope_table(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* positions = static_cast<const int32_t*>(args.ptr[0]);
  auto* table = static_cast<float*>(args.ptr[1]);
  const auto* inv_freq = static_cast<const double*>(args.ptr[2]);
  const int64_t dim = args.dim[1].value(live), half = dim / 2, window = args.dim[2].value(live);
  const float scale = static_cast<float>(args.scalar[0]);
  const double ntk_base = args.scalar[1], ntk_factor = args.scalar[2];
  const Range angles = share(args.dim[0].value(live) * half, rank, ranks);
  int64_t stretched_for = -1;  // the token whose base is in log2_base
  double log2_base = 0;
  for (int64_t u = angles.begin; u < angles.end; ++u) {
    const int64_t t = u / half, i = u % half;
    const int64_t length = static_cast<int64_t>(positions[t]) + 1;
    double freq = inv_freq[i];
    if (window > 0 && length > window) {
      if (stretched_for != t) {
        const double stretch =
            ntk_factor * static_cast<double>(length) / static_cast<double>(window) - (ntk_factor - 1);
        const double power = static_cast<double>(dim) / static_cast<double>(dim - 2);
        log2_base = __builtin_log2(ntk_base) + power * __builtin_log2(stretch);
        stretched_for = t;
      }
      freq = __builtin_exp2(-2.0 * static_cast<double>(i) / static_cast<double>(dim) * log2_base);
    }
    const float angle = static_cast<float>(positions[t]) * static_cast<float>(freq);
    table[t * dim + i] = static_cast<float>(__builtin_cos(static_cast<double>(angle))) * scale;
    table[t * dim + half + i] = static_cast<float>(__builtin_sin(static_cast<double>(angle))) * scale;
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
