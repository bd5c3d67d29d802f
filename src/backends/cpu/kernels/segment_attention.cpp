// Attention over the rows of a sequence, without a cache. A score is one chain of sums over the numbers of a head, a
// result one chain over the keys, and a row's weights are summed lane by lane: all depend on the sequence alone.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/exp.h"
#include "backends/cpu/kernels/segment_shape.h"
#include "ops/args/encoder.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kQueries = SegmentShape::kQueries, kBlock = SegmentShape::kBlock;

// One thread's view of the sequence and head that it works on.
struct Segment {
  Segment(float* scratch, int64_t bound, int64_t keys, int64_t size)
      : keys(keys),
        size(size),
        shape(keys, size),
        k(scratch),
        v(k + SegmentShape(bound, size).key_floats()),
        scores(v + SegmentShape(bound, size).value_floats()),
        q(scores + kQueries * SegmentShape(bound, size).columns) {}

  int64_t keys, size;
  SegmentShape shape;
  float* k;       // [size, columns]
  float* v;       // [keys, width]
  float* scores;  // [kQueries, columns]
  float* q;       // [kQueries, width]
};

template <typename E>
void widen_row(const typename E::Type* row, float* out, int64_t size, int64_t width) {
  for (int64_t d = 0; d < width; d += 16) store(out + d, load_n<E>(row + d, size - d < 16 ? size - d : 16));
}

template <typename E>
void pack(const typename E::Type* k, const typename E::Type* v, int64_t stride, const Segment& s) {
  const int64_t columns = s.shape.columns, width = s.shape.width;
  for (int64_t j = 0; j < s.keys; ++j) {
    widen_row<E>(v + j * stride, s.v + j * width, s.size, width);
    for (int64_t d = 0; d < s.size; d += 16) {
      const int64_t n = s.size - d < 16 ? s.size - d : 16;
      const F32x16 part = load_n<E>(k + j * stride + d, n);
      for (int64_t i = 0; i < n; ++i) s.k[(d + i) * columns + j] = part[i];
    }
  }
  for (int64_t d = 0; d < s.size; ++d)
    for (int64_t j = s.keys; j < columns; ++j) s.k[d * columns + j] = 0;
}

// Scores of kQueries queries with all keys.
void score(const Segment& s, float scale) {
  const int64_t columns = s.shape.columns, width = s.shape.width;
  for (int64_t j = 0; j < columns; j += 32) {
    F32x16 low[kQueries], high[kQueries];
    for (int i = 0; i < kQueries; ++i) low[i] = high[i] = zero();
    const float* key = s.k + j;
    for (int64_t d = 0; d < s.size; ++d, key += columns) {
      const F32x16 a = load(key), b = load(key + 16);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const F32x16 q = splat(s.q[i * width + d]);
        low[i] = fma(q, a, low[i]);
        high[i] = fma(q, b, high[i]);
      }
    }
    for (int i = 0; i < kQueries; ++i) {
      store(s.scores + i * columns + j, low[i] * scale);
      store(s.scores + i * columns + j + 16, high[i] * scale);
    }
  }
}

// Scores become weights; 1 / their sum.
float weigh(float* scores, int64_t keys) {
  F32x16 top = splat(-__builtin_inff());
  each_sixteen(keys, [&](int64_t j, int64_t n) {
    F32x16 v = load(scores + j);
    for (int64_t i = n; i < 16; ++i) v[i] = -__builtin_inff();
    top = larger(v, top);
  });
  const float most = reduce_max(top);
  F32x16 sum = zero();
  each_sixteen(keys, [&](int64_t j, int64_t n) {
    F32x16 v = exp_bounded(load(scores + j) - most);
    for (int64_t i = n; i < 16; ++i) v[i] = 0;
    store(scores + j, v);
    sum += v;
  });
  return 1.0f / reduce_add(sum);
}

// Columns [d, d + 16 kVectors) of the results of kQueries queries.
template <typename E, int kVectors>
void gather(const Segment& s, int64_t d, const float* factor, typename E::Type* const* out) {
  const int64_t columns = s.shape.columns, width = s.shape.width;
  F32x16 sum[kQueries][kVectors];
  for (auto& row : sum)
    for (auto& part : row) part = zero();
  const float* value = s.v + d;
  for (int64_t j = 0; j < s.keys; ++j, value += width) {
    F32x16 v[kVectors];
    for (int c = 0; c < kVectors; ++c) v[c] = load(value + 16 * c);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const F32x16 weight = splat(s.scores[i * columns + j]);
      for (int c = 0; c < kVectors; ++c) sum[i][c] = fma(weight, v[c], sum[i][c]);
    }
  }
  for (int i = 0; i < kQueries; ++i)
    for (int c = 0; c < kVectors && out[i]; ++c) {
      const int64_t at = d + 16 * c, left = s.size - at;
      store_n<E>(out[i] + at, sum[i][c] * factor[i], left < 16 ? left : 16);
    }
}

// Queries [begin, end) of the sequence, which are rows `stride` apart.
template <typename E>
void attend(const Segment& s, const typename E::Type* q, typename E::Type* out, int64_t stride, int64_t begin,
            int64_t end, float scale) {
  for (int64_t first = begin; first < end; first += kQueries) {
    typename E::Type* to[kQueries] = {};
    float factor[kQueries];
    for (int64_t i = 0; i < kQueries; ++i) {
      const int64_t row = first + i < end ? first + i : end - 1;  // a row that is there, computed once more
      widen_row<E>(q + row * stride, s.q + i * s.shape.width, s.size, s.shape.width);
      if (first + i < end) to[i] = out + row * stride;
    }
    score(s, scale);
    for (int64_t i = 0; i < kQueries; ++i) factor[i] = weigh(s.scores + i * s.shape.columns, s.keys);
    int64_t d = 0;
    for (; d + 32 <= s.shape.width; d += 32) gather<E, 2>(s, d, factor, to);
    for (; d < s.shape.width; d += 16) gather<E, 1>(s, d, factor, to);
  }
}

template <typename E>
void segments(const SegmentAttentionArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T *q = a.q, *k = a.k, *v = a.v;
  T* out = a.out;
  const int32_t* border = a.cu_seqlens;
  const int64_t sequences = l.size(a.borders) - 1, stride = a.heads * a.size, bound = l.size(a.tokens);
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
    for (int64_t h = 0; h < a.heads && unit < mine.end; ++h, unit += blocks) {
      if (unit + blocks <= mine.begin) continue;
      const int64_t at = border[r] * stride + h * a.size;
      pack<E>(k + at, v + at, stride, s);
      const int64_t from = mine.begin > unit ? mine.begin - unit : 0;
      const int64_t to = mine.end - unit < blocks ? mine.end - unit : blocks;
      attend<E>(s, q + at, out + at, stride, from * kBlock, to * kBlock < keys ? to * kBlock : keys,
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
