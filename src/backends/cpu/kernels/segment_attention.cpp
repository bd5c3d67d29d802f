// Attention over the rows of a sequence, without a cache. A score is one chain of sums over the numbers of a head, a
// result one chain over the keys, and a row's weights are summed lane by lane: all depend on the sequence alone. Keys
// outside a window have the weight 0, so that it makes no difference which of them a tile of queries goes over.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/exp.h"
#include "backends/cpu/kernels/segment_shape.h"
#include "ops/args/encoder.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kSegmentQueries = SegmentShape::kQueries, kBlock = SegmentShape::kBlock,
                  kSegmentPanel = SegmentShape::kPanel;

// Queries and registers across of a tile: as many sums as there are registers for beside what they are made of.
#if defined(__AVX512F__)
constexpr int kSegmentTile = 8, kSegmentVectors = 2;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kSegmentTile = 4, kSegmentVectors = 1;
#else
constexpr int kSegmentTile = 2, kSegmentVectors = 1;
#endif
static_assert(kSegmentTile <= kSegmentQueries && SegmentShape::kBlock % kSegmentTile == 0);

// One thread's view of the sequence and head that it works on.
struct Segment {
  Segment(float* scratch, int64_t bound, int64_t keys, int64_t size)
      : keys(keys),
        size(size),
        shape(keys, size),
        k(scratch),
        v(k + SegmentShape(bound, size).key_floats()),
        scores(v + SegmentShape(bound, size).value_floats()),
        q(scores + kSegmentQueries * SegmentShape(bound, size).columns) {}

  // The keys before column `end`, rounded up to whole tiles.
  static int64_t tile_columns(int64_t end) {
    return (end + 16 * kSegmentVectors - 1) / (16 * kSegmentVectors) * (16 * kSegmentVectors);
  }
  int64_t used_columns() const { return tile_columns(keys); }
  // The keys that rows [first, last] of the sequence see.
  Range seen(int64_t first, int64_t last, int64_t window) const {
    if (window == 0) return {0, keys};
    return {first < window ? 0 : first - window + 1, keys - last < window ? keys : last + window};
  }

  int64_t keys, size;
  SegmentShape shape;
  float* k;       // [columns / kSegmentPanel, width, kSegmentPanel]
  float* v;       // [keys, width]
  float* scores;  // [kSegmentQueries, columns]
  float* q;       // [kSegmentQueries, width]
};

template <typename E>
void widen_row(const typename E::Type* row, float* out, int64_t size, int64_t width) {
  for (int64_t d = 0; d < width; d += 16) store(out + d, load_n<E>(row + d, size - d < 16 ? size - d : 16));
}

// Rows become columns: each step takes row i and row i + 8 by turns, and after four of them a number's row and column
// have changed places.
inline void transpose_segment(F32x16 (&rows)[16]) {
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step) {
    F32x16 next[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + 8]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
}

template <typename E>
void pack(const typename E::Type* k, const typename E::Type* v, int64_t stride, const Segment& s) {
  const int64_t width = s.shape.width, columns = s.used_columns();
  for (int64_t j = 0; j < s.keys; ++j) widen_row<E>(v + j * stride, s.v + j * width, s.size, width);
  for (int64_t j = 0; j < columns; j += 16) {
    float* panel = s.k + j / kSegmentPanel * width * kSegmentPanel + j % kSegmentPanel;
    for (int64_t d = 0; d < s.size; d += 16) {
      F32x16 rows[16];
      for (int64_t i = 0; i < 16; ++i)
        rows[i] = j + i < s.keys ? load_n<E>(k + (j + i) * stride + d, s.size - d < 16 ? s.size - d : 16) : zero();
      transpose_segment(rows);
      for (int64_t i = 0; i < 16; ++i) store(panel + (d + i) * kSegmentPanel, rows[i]);
    }
  }
}

// sum[i][c] = left[i][0] right[0][c] + left[i][1] right[1][c] + ..., one chain over `steps` numbers of a row; rows are
// so many floats apart.
template <int kAcross>
inline __attribute__((always_inline)) void multiply_segment(const float* left, int64_t left_stride, const float* right,
                                                            int64_t right_stride, int64_t steps,
                                                            F32x16 (&sum)[kSegmentTile][kAcross]) {
  for (auto& row : sum)
    for (auto& part : row) part = zero();
  for (int64_t k = 0; k < steps; ++k, right += right_stride) {
    F32x16 across[kAcross];
#pragma GCC unroll 2
    for (int c = 0; c < kAcross; ++c) across[c] = load(right + 16 * c);
#pragma GCC unroll 8
    for (int i = 0; i < kSegmentTile; ++i) {
      const F32x16 number = splat(left[i * left_stride + k]);
#pragma GCC unroll 2
      for (int c = 0; c < kAcross; ++c) sum[i][c] = fma(number, across[c], sum[i][c]);
    }
  }
}

// Scores of kSegmentTile queries with the keys of whole tiles [begin, end).
void score(const Segment& s, int64_t begin, int64_t end, float scale) {
  const int64_t columns = s.shape.columns, width = s.shape.width;
  for (int64_t j = begin; j < end; j += 16 * kSegmentVectors) {
    const float* key = s.k + j / kSegmentPanel * width * kSegmentPanel + j % kSegmentPanel;
    F32x16 sum[kSegmentTile][kSegmentVectors];
    multiply_segment(s.q, width, key, kSegmentPanel, s.size, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kSegmentTile; ++i)
#pragma GCC unroll 2
      for (int c = 0; c < kSegmentVectors; ++c) store(s.scores + i * columns + j + 16 * c, sum[i][c] * scale);
  }
}

// Scores of the keys of whole tiles [begin, end) become weights, which are 0 but for those `seen`; 1 / their sum.
float weigh(float* scores, int64_t begin, int64_t end, Range seen) {
  for (int64_t j = begin; j < seen.begin; ++j) scores[j] = -__builtin_inff();
  for (int64_t j = seen.end; j < end; ++j) scores[j] = -__builtin_inff();
  F32x16 top = splat(-__builtin_inff());
  for (int64_t j = begin; j < end; j += 16) top = larger(load(scores + j), top);
  const float most = reduce_max(top);
  F32x16 sum = zero();
  for (int64_t j = begin; j < end; j += 16) {
    const F32x16 v = exp_bounded(load(scores + j) - most);
    store(scores + j, v);
    sum += v;
  }
  return 1.0f / reduce_add(sum);
}

// Columns [d, d + 16 kSegmentAcross) of the results of kSegmentTile queries, of which `rows` are there, over the keys
// `seen` by any of them.
template <typename E, int kSegmentAcross>
[[gnu::always_inline]] inline void gather(const Segment& s, Range seen, int64_t d, const float* factor,
                                          typename E::Type* out, int64_t stride, int64_t rows) {
  F32x16 sum[kSegmentTile][kSegmentAcross];
  multiply_segment(s.scores + seen.begin, s.shape.columns, s.v + seen.begin * s.shape.width + d, s.shape.width,
                   seen.end - seen.begin, sum);
#pragma GCC unroll 8
  for (int i = 0; i < kSegmentTile; ++i)
#pragma GCC unroll 2
    for (int c = 0; c < kSegmentAcross; ++c) {
      const int64_t at = d + 16 * c, left = s.size - at;
      if (i < rows) store_n<E>(out + i * stride + at, sum[i][c] * factor[i], left < 16 ? left : 16);
    }
}

// All columns of these results: a function of its own, so that its loops have the registers.
template <typename E>
[[gnu::noinline]] void gather_all(const Segment& s, Range seen, const float* factor, typename E::Type* out,
                                  int64_t stride, int64_t rows) {
  const int64_t width = s.shape.width;
  int64_t d = 0;
  for (; d + 16 * kSegmentVectors <= width; d += 16 * kSegmentVectors)
    gather<E, kSegmentVectors>(s, seen, d, factor, out, stride, rows);
  if constexpr (kSegmentVectors > 1)
    if (d < width) gather<E, 1>(s, seen, d, factor, out, stride, rows);
}

// Queries [begin, end) of the sequence, which are rows `stride` apart.
template <typename E>
void attend(const Segment& s, const typename E::Type* q, typename E::Type* out, int64_t stride, int64_t begin,
            int64_t end, int64_t window, float scale) {
  const int64_t columns = s.shape.columns, width = s.shape.width;
  for (int64_t first = begin; first < end; first += kSegmentTile) {
    const int64_t rows = end - first < kSegmentTile ? end - first : kSegmentTile;
    float factor[kSegmentTile] = {};
    for (int64_t i = 0; i < kSegmentTile; ++i) {
      const int64_t row = first + (i < rows ? i : rows - 1);  // a row that is there, computed once more
      widen_row<E>(q + row * stride, s.q + i * width, s.size, width);
    }
    const Range any = s.seen(first, first + rows - 1, window);
    const int64_t from = any.begin / kSegmentPanel * kSegmentPanel, to_end = Segment::tile_columns(any.end);
    score(s, from, to_end, scale);
    for (int64_t i = 0; i < rows; ++i)
      factor[i] = weigh(s.scores + i * columns, from, to_end, s.seen(first + i, first + i, window));
    gather_all<E>(s, any, factor, out + first * stride, stride, rows);
  }
}

template <typename E>
void segments(const SegmentAttentionArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T *q = a.q, *k = a.k, *v = a.v;
  T* out = a.out;
  const int32_t* border = a.cu_seqlens;
  const int64_t sequences = l.size(a.borders) - 1, stride = a.heads * a.size, bound = l.size(a.tokens);
  const int64_t kv_stride = a.kv_heads * a.size, each = a.heads / a.kv_heads;
  float* scratch = l.scratch<float>(SegmentShape(bound, a.size).thread_floats() * static_cast<int64_t>(sizeof(float)));
  int64_t units = 0;
  for (int64_t r = 0; r < sequences; ++r) units += (border[r + 1] - border[r] + kBlock - 1) / kBlock * a.heads;
  const Range mine = l.share(units);
  int64_t unit = 0;
  for (int64_t r = 0; r < sequences && unit < mine.end; ++r) {
    const int64_t keys = border[r + 1] - border[r], blocks = (keys + kBlock - 1) / kBlock;
    if (unit + blocks * a.heads <= mine.begin) {
      unit += blocks * a.heads;
      continue;
    }
    const Segment s(scratch, bound, keys, a.size);
    int64_t packed = -1;  // the head of keys and values that the scratch memory has
    for (int64_t h = 0; h < a.heads && unit < mine.end; ++h, unit += blocks) {
      if (unit + blocks <= mine.begin) continue;
      const int64_t at = border[r] * stride + h * a.size, kv_at = border[r] * kv_stride + h / each * a.size;
      if (h / each != packed) pack<E>(k + kv_at, v + kv_at, kv_stride, s);
      packed = h / each;
      const int64_t from = mine.begin > unit ? mine.begin - unit : 0;
      const int64_t to = mine.end - unit < blocks ? mine.end - unit : blocks;
      attend<E>(s, q + at, out + at, stride, from * kBlock, to * kBlock < keys ? to * kBlock : keys, a.window,
                static_cast<float>(a.scale));
    }
  }
}

template <typename E>
void pool(const PoolRowsArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  const int32_t *border = a.cu_seqlens, *rows = a.rows;
  float* out = a.out;
  const int64_t sequences = l.size(a.borders) - 1, n = a.width;
  const Range mine = l.share(l.size(a.count));
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int64_t row = rows[i];
    int64_t r = 0;
    while (r + 1 < sequences && border[r + 1] <= row) ++r;
    const int64_t last = a.kind == 2 ? border[r] : row, first = a.kind == 0 ? row : border[r];
    const float count = static_cast<float>(last - first + 1);
    for (int64_t c = 0; c < n; c += 16) {
      const int64_t width = n - c < 16 ? n - c : 16;
      F32x16 sum = zero();
      for (int64_t t = first; t <= last; ++t) sum += load_n<E>(x + t * n + c, width);
      store_n<F32>(out + i * n + c, a.kind == 1 ? sum / count : sum, width);
    }
  }
}

template <typename E>
void widen_rows(const VectorsArgs& a, const Launch& l) {
  const typename E::Type* x = a.x;
  float* out = a.out;
  const int64_t n = a.width;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r)
    store_each<F32>(out + r * n, n, [=](int64_t i, int64_t rest) { return load_n<E>(x + r * n + i, rest); });
}

void normalize(const VectorsArgs& a, const Launch& l) {
  const float* x = a.x;
  float* out = a.out;
  const int64_t n = a.width;
  const Range rows = l.share(l.size(a.rows));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* row = x + r * n;
    F32x16 squares = zero();
    each_sixteen(n, [&](int64_t i, int64_t rest) {
      const F32x16 v = load_n<F32>(row + i, rest);
      squares = fma(v, v, squares);
    });
    const float norm = __builtin_sqrtf(reduce_add(squares));
    const float divisor = norm > 1e-12f ? norm : 1e-12f;
    store_each<F32>(out + r * n, n, [=](int64_t i, int64_t rest) { return load_n<F32>(row + i, rest) / divisor; });
  }
}

}  // namespace

REPRISE_KERNELS(segment_attention, segments)
REPRISE_KERNELS(pool_rows, pool)
REPRISE_KERNELS(widen, widen_rows)
REPRISE_KERNEL(l2_normalize, normalize)

}  // namespace reprise::cpu::REPRISE_ISA
