#include "backends/cpu/kernels/quantize.h"

#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "ops/args/quantise.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E>
void quant_static(const QuantizeStaticArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  const StaticScale scale(a);
  int8_t* out = a.values;
  const int64_t n = a.width;
  const Range mine = share_rows_or_elements(l.size(a.rows), n, l.thread, l.threads);
  for_each_row_part(mine, n, [&](int64_t row, int64_t first, int64_t last) {
    const int64_t at = row * n + first;
    each_sixteen(last - first, [&](int64_t i, int64_t rest) {
      store_i8_n(out + at + i, scale.apply(load_n<E>(x + at + i, rest), first + i, rest), rest);
    });
  });
}

// Few rows are shared by columns, and every thread looks at all of the row for the scale: cheaper than a second part.
template <typename E>
void quant_dynamic(const QuantizeDynamicArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  int8_t* out = a.values;
  float* scales = a.scale;
  const int64_t count = l.size(a.rows), n = a.width;
  const bool whole = quantize_whole_rows(count, l.threads);
  const Range rows = whole ? l.share(count) : Range{0, count};
  const Range columns = whole ? Range{0, n} : l.share(n, 16);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float scale = dynamic_scale(row_top<E>(x + row * n, n));
    if (whole || l.thread == 0) scales[row] = scale;
    const int64_t at = row * n + columns.begin;
    ByScale(scale).store<E>(x + at, out + at, columns.end - columns.begin);
  }
}

template <typename E>
void silu_mul_static(const SiluMulQuantStaticArgs& args, const Launch& l) {
  const typename E::Type* gate_up = args.gate_up;
  const StaticScale scale(args);
  int8_t* out = args.values;
  const int64_t n = args.width;
  const Range mine = share_rows_or_elements(l.size(args.rows), n, l.thread, l.threads);
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
  SiluMul(const SiluMulQuantArgs& a, const Launch& l)
      : gate_up(a.gate_up),
        out(a.values),
        scales(a.scale),
        rows(l.size(a.rows)),
        n(a.width),
        whole(quantize_whole_rows(rows, l.threads)),
        shape(n, static_cast<int64_t>(sizeof(T)), l.threads),
        workspace(l.workspace) {}

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
  void* workspace;
};

// Workspace: quantize_shape.h. Many rows: each is one thread's work, done in the first part. Few rows: threads share
// the columns and keep the product and its largest magnitude for the second.
template <typename E>
void silu_mul_quant(const SiluMulQuantArgs& args, const Launch& l) {
  const SiluMul<E> a(args, l);
  if (a.whole) {
    const Range rows = l.share(a.rows);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      a.scales[row] = dynamic_scale(a.multiply(row, a.kept(l.thread), 0, a.n));
      a.quantise(row, a.kept(l.thread), a.scales[row], 0, a.n);
    }
    return;
  }
  const Range columns = l.share(a.n, 16);
  for (int64_t row = 0; row < a.rows; ++row)
    static_cast<float*>(a.workspace)[a.shape.top_at(row, l.thread)] =
        a.multiply(row, a.kept(row), columns.begin, columns.end);
}

template <typename E>
void silu_mul_quant_finish(const SiluMulQuantArgs& args, const Launch& l) {
  const SiluMul<E> a(args, l);
  if (a.whole) return;
  const Range columns = l.share(a.n, 16);
  for (int64_t row = 0; row < a.rows; ++row) {
    float top = 0;
    for (int k = 0; k < l.threads; ++k) {
      const float other = static_cast<const float*>(a.workspace)[a.shape.top_at(row, k)];
      top = other > top ? other : top;
    }
    const float scale = dynamic_scale(top);
    if (l.thread == 0) a.scales[row] = scale;
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
