#include "backends/cpu/kernels/quantize.h"

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: x, scale, offset, values. dim: rows, row size, steps of scale and of offset (1, or 0 when one number serves all
// columns).
template <typename E>
void quant_static(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  const StaticScale scale(args.ptr[1], args.ptr[2], args.dim[2].factor, args.dim[3].factor);
  auto* out = static_cast<int8_t*>(args.ptr[3]);
  const int64_t n = args.dim[1].value(live);
  const Range mine = share_rows_or_elements(args.dim[0].value(live), n, rank, ranks);
  for_each_row_part(mine, n, [&](int64_t row, int64_t first, int64_t last) {
    const int64_t at = row * n + first;
    each_sixteen(last - first, [&](int64_t i, int64_t rest) {
      store_i8_n(out + at + i, scale.apply(load_n<E>(x + at + i, rest), first + i, rest), rest);
    });
  });
}

// ptr: x, values, scales. dim: rows, row size. Few rows are shared by columns, and every rank looks at all of the row
// for the scale: cheaper than a second phase.
template <typename E>
void quant_dynamic(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* x = static_cast<const typename E::Type*>(args.ptr[0]);
  auto* out = static_cast<int8_t*>(args.ptr[1]);
  auto* scales = static_cast<float*>(args.ptr[2]);
  const int64_t count = args.dim[0].value(live), n = args.dim[1].value(live);
  const bool whole = quantize_whole_rows(count, ranks);
  const Range rows = whole ? share(count, rank, ranks) : Range{0, count};
  const Range columns = whole ? Range{0, n} : share(n, 16, rank, ranks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float scale = dynamic_scale(row_top<E>(x + row * n, n));
    if (whole || rank == 0) scales[row] = scale;
    const int64_t at = row * n + columns.begin;
    ByScale(scale).store<E>(x + at, out + at, columns.end - columns.begin);
  }
}

// ptr: gate_up, scale, offset, values. dim: rows, columns of values, steps as above.
template <typename E>
void silu_mul_static(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* gate_up = static_cast<const typename E::Type*>(args.ptr[0]);
  const StaticScale scale(args.ptr[1], args.ptr[2], args.dim[2].factor, args.dim[3].factor);
  auto* out = static_cast<int8_t*>(args.ptr[3]);
  const int64_t n = args.dim[1].value(live);
  const Range mine = share_rows_or_elements(args.dim[0].value(live), n, rank, ranks);
  for_each_row_part(mine, n, [&](int64_t row, int64_t first, int64_t last) {
    const auto* gate = gate_up + row * 2 * n + first;
    int8_t* to = out + row * n + first;
    int64_t i = 0;
    for (; i + 32 <= last - first; i += 32) {
      F32x16 a, b;
      silu_times_up_two<E>(gate + i, gate + n + i, a, b);
      round_two<E>(a, b);
      store_i8(to + i, scale.apply(a, first + i, 16));
      store_i8(to + i + 16, scale.apply(b, first + i + 16, 16));
    }
    each_sixteen(last - first - i, [&](int64_t j, int64_t rest) {
      const int64_t c = i + j;
      const F32x16 v = E::round(silu_times_up<E>(gate + c, gate + n + c, rest));
      store_i8_n(to + c, scale.apply(v, first + c, rest), rest);
    });
  });
}

template <typename E>
struct SiluMul {
  using T = typename E::Type;
  SiluMul(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks)
      : gate_up(static_cast<const T*>(args.ptr[0])),
        out(static_cast<int8_t*>(args.ptr[1])),
        scales(static_cast<float*>(args.ptr[2])),
        rows(args.dim[0].value(live)),
        n(args.dim[1].value(live)),
        whole(quantize_whole_rows(rows, ranks)),
        shape(n, static_cast<int64_t>(sizeof(T)), ranks) {}

  T* kept(int64_t row) const { return reinterpret_cast<T*>(static_cast<char*>(workspace) + shape.row_at(row)); }
  // The product of columns [first, last), rounded into the scratch row; its largest magnitude.
  float multiply(int64_t row, T* to, int64_t first, int64_t last) const {
    const T* gate = gate_up + row * 2 * n + first;
    F32x16 top = zero();
    int64_t i = 0;
    for (; i + 32 <= last - first; i += 32) {
      F32x16 a, b;
      silu_times_up_two<E>(gate + i, gate + n + i, a, b);
      store_rounded_two<E>(to + first + i, a, b);
      top = larger_magnitude(larger_magnitude(top, a), b);
    }
    each_sixteen(last - first - i, [&](int64_t j, int64_t rest) {
      const F32x16 v = silu_times_up<E>(gate + i + j, gate + n + i + j, rest);
      top = larger_magnitude(top, store_rounded_n<E>(to + first + i + j, v, rest));
    });
    return reduce_max(top);
  }
  void quantise(int64_t row, const T* from, float scale, int64_t first, int64_t last) const {
    ByScale(scale).store<E>(from + first, out + row * n + first, last - first);
  }

  const T* gate_up;
  int8_t* out;
  float* scales;
  int64_t rows, n;
  bool whole;
  SiluMulShape shape;
  void* workspace = nullptr;
};

// ptr: gate_up, values, scales. dim: rows, columns of values. Workspace: quantize_shape.h. Many rows: each is one
// rank's work, done in the first phase. Few rows: ranks share the columns and keep the product and its largest
// magnitude for the second.
template <typename E>
void silu_mul_quant(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  SiluMul<E> a(args, live, rank, ranks);
  a.workspace = args.workspace;
  if (a.whole) {
    const Range rows = share(a.rows, rank, ranks);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      a.scales[row] = dynamic_scale(a.multiply(row, a.kept(rank), 0, a.n));
      a.quantise(row, a.kept(rank), a.scales[row], 0, a.n);
    }
    return;
  }
  const Range columns = share(a.n, 16, rank, ranks);
  for (int64_t row = 0; row < a.rows; ++row)
    static_cast<float*>(a.workspace)[a.shape.top_at(row, rank)] =
        a.multiply(row, a.kept(row), columns.begin, columns.end);
}

template <typename E>
void silu_mul_quant_finish(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  SiluMul<E> a(args, live, rank, ranks);
  if (a.whole) return;
  a.workspace = args.workspace;
  const Range columns = share(a.n, 16, rank, ranks);
  for (int64_t row = 0; row < a.rows; ++row) {
    float top = 0;
    for (int k = 0; k < ranks; ++k) {
      const float other = static_cast<const float*>(a.workspace)[a.shape.top_at(row, k)];
      top = other > top ? other : top;
    }
    const float scale = dynamic_scale(top);
    if (rank == 0) a.scales[row] = scale;
    a.quantise(row, a.kept(row), scale, columns.begin, columns.end);
  }
}

}  // namespace

REPRISE_KERNELS(quantize_static, quant_static)
REPRISE_KERNELS(quantize_dynamic, quant_dynamic)
REPRISE_KERNELS(silu_mul_quant_static, silu_mul_static)
REPRISE_KERNELS(silu_mul_quant, silu_mul_quant)
REPRISE_KERNELS(silu_mul_quant_finish, silu_mul_quant_finish)

}  // namespace reprise::cpu::REPRISE_ISA
