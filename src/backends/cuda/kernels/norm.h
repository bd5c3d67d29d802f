// RMS norm of rows, alone and behind a residual addition; layer norm.
//
// The sum of squares of a row has one order, regardless of the number of rows and whichever kernel asks: a thread of
// the row's team takes chunks of eight numbers, `threads` chunks apart, in ascending order; then the warp's lanes by
// xor 16, 8, 4, 2, 1; then the warps in ascending order. The team's size follows from the row's length alone
// (norm_threads). A head of up to 256 numbers has a team of one warp. A layer norm's two sums have the same order.
#pragma once

#include "backends/cuda/kernels/elementwise.h"
#include "ops/args/norms.h"

namespace reprise::cuda {

// Whole warps, at most 256 threads, a chunk of eight or more for each.
HOST_DEV int norm_threads(int64_t n) {
  const int64_t chunks = (n + 7) / 8;
  const int64_t threads = (chunks + 31) / 32 * 32;
  return static_cast<int>(smaller<int64_t>(threads, 256));
}

// Up to eight numbers from column i on; the rest are zeros.
template <class E>
DEV void load_chunk(const typename E::Type* row, int64_t i, int64_t n, float (&v)[8]) {
  if (n % 8 == 0) return load_eight<E>(row + i, v);
  UNROLL
  for (int j = 0; j < 8; ++j) v[j] = i + j < n ? E::load(row[i + j]) : 0.0f;
}
template <class E>
DEV void store_chunk(typename E::Type* row, int64_t i, int64_t n, const float (&v)[8]) {
  if (n % 8 == 0) return store_eight<E>(row + i, v);
  UNROLL
  for (int j = 0; j < 8; ++j)
    if (i + j < n) row[i + j] = E::store(v[j]);
}

// A thread's chunks of a row in ascending order, each with what the ones before left: body(column, here, numbers,
// so_far). The first kKeptChunks of them have registers of their own, in which the numbers stay from pass to pass
// (`here`); the others are fetched anew in every pass.
constexpr int kKeptChunks = 3;
template <class L, class Body>
DEV float each_chunk(L& lane, int64_t n, float (&kept)[kKeptChunks][8], float so_far, const Body& body) {
  const int64_t step = lane.threads() * 8;
  int64_t i = lane.thread() * 8;
  UNROLL
  for (int k = 0; k < kKeptChunks; ++k, i += step)
    if (i < n) so_far = body(i, true, kept[k], so_far);
  for (; i < n; i += step) {
    float v[8];
    so_far = body(i, false, v, so_far);
  }
  return so_far;
}

DEV float square_chunk(const float (&v)[8], float sum) {
  UNROLL
  for (int j = 0; j < 8; ++j) sum = fma(v[j], v[j], sum);
  return sum;
}

DEV float rms_factor(float squares, int64_t n, float eps) {
  return divide(1.0f, root(divide(squares, static_cast<float>(n)) + eps));
}

// x * factor * weight (+ bias) of a chunk.
template <class E>
DEV void normalise_chunk(float (&v)[8], float factor, const typename E::Type* weight, const typename E::Type* bias,
                         int64_t i, int64_t n) {
  float w[8], b[8];
  load_chunk<E>(weight, i, n, w);
  if (bias) load_chunk<E>(bias, i, n, b);
  UNROLL
  for (int j = 0; j < 8; ++j) {
    const float scaled = v[j] * factor;
    v[j] = bias ? fma(scaled, w[j], b[j]) : scaled * w[j];
  }
}

// Likewise with weights that are told as what they differ from one by.
template <class E>
DEV void normalise_centred(float (&v)[8], float factor, const typename E::Type* weight, int64_t i, int64_t n) {
  float w[8];
  load_chunk<E>(weight, i, n, w);
  UNROLL
  for (int j = 0; j < 8; ++j) v[j] = v[j] * factor * (w[j] + 1.0f);
}

enum class NormWeight : unsigned char { Plain, Centred, None };

// One block a row. `residual` and `sum` are null in a plain norm; else the row is x + residual, rounded, which goes to
// `sum`.
template <class E, NormWeight kWeight = NormWeight::Plain>
struct RmsNorm {
  static constexpr int kThreads = 256, kBlocks = 1;
  using T = typename E::Type;
  const T* x;
  const T* residual;
  const T* weight;
  const T* bias;
  T* out;
  T* sum;
  int64_t n;
  float eps;

  // The row's numbers, rounded as they are added.
  DEV void add(int64_t at, int64_t i, float (&v)[8]) const {
    load_chunk<E>(x + at, i, n, v);
    if (!residual) return;
    float r[8];
    load_chunk<E>(residual + at, i, n, r);
    UNROLL
    for (int j = 0; j < 8; ++j) v[j] = rounded<E>(v[j] + r[j]);
    store_chunk<E>(sum + at, i, n, v);
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t at = lane.block() * n;
    const T* from = residual ? sum + at : x + at;  // what this thread wrote itself
    float kept[kKeptChunks][8];
    const float squares = each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool, float(&v)[8], float so_far) {
      add(at, i, v);
      return square_chunk(v, so_far);
    });
    const float factor = rms_factor(block_sum(lane, squares, reinterpret_cast<float*>(lane.shared())), n, eps);
    each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool here, float(&v)[8], float) {
      if (!here) load_chunk<E>(from, i, n, v);
      if constexpr (kWeight == NormWeight::Centred) {
        normalise_centred<E>(v, factor, weight, i, n);
      } else if constexpr (kWeight == NormWeight::None) {
        UNROLL
        for (int j = 0; j < 8; ++j) v[j] = v[j] * factor;
      } else {
        normalise_chunk<E>(v, factor, weight, bias, i, n);
      }
      store_chunk<E>(out + at, i, n, v);
      return 0.0f;
    });
  }
};

// One block a row; row r has the weights of row r % vectors.
template <class E>
struct LayerNorm {
  static constexpr int kThreads = 256, kBlocks = 1;
  using T = typename E::Type;
  const T* x;
  const T* weight;
  const T* bias;
  T* out;
  int64_t n, vectors;
  float eps;

  template <class L>
  DEV void operator()(L& lane) const {
    const T* row = x + lane.block() * n;
    const int64_t vector = lane.block() % vectors * n;
    auto* scratch = reinterpret_cast<float*>(lane.shared());
    const float count = static_cast<float>(n);
    float kept[kKeptChunks][8];
    const float sum = each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool, float(&v)[8], float so_far) {
      load_chunk<E>(row, i, n, v);
      UNROLL
      for (int j = 0; j < 8; ++j) so_far = so_far + v[j];
      return so_far;
    });
    const float mean = divide(block_sum(lane, sum, scratch), count);
    auto centre = [&](int64_t i, bool here, float(&v)[8]) {
      if (!here) load_chunk<E>(row, i, n, v);
      UNROLL
      for (int j = 0; j < 8; ++j) v[j] = i + j < n ? v[j] - mean : 0.0f;
    };
    const float squares = each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool here, float(&v)[8], float so_far) {
      centre(i, here, v);
      return square_chunk(v, so_far);
    });
    const float factor = rms_factor(block_sum(lane, squares, scratch), n, eps);
    each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool here, float(&v)[8], float) {
      if (!here) centre(i, here, v);
      float w[8], b[8];
      load_chunk<E>(weight + vector, i, n, w);
      if (bias) load_chunk<E>(bias + vector, i, n, b);
      UNROLL
      for (int j = 0; j < 8; ++j) {
        v[j] = v[j] * factor * w[j];
        if (bias) v[j] = v[j] + b[j];
      }
      store_chunk<E>(out + lane.block() * n, i, n, v);
      return 0.0f;
    });
  }
};

constexpr size_t kReduceBytes = 32 * sizeof(float);

template <class E, class L>
void run_rms_norm(const RmsNormArgs& a, L& launch) {
  launch.run(launch.size(a.rows), norm_threads(a.width), kReduceBytes,
             RmsNorm<E>{a.x, nullptr, a.weight, a.bias, a.out, nullptr, a.width, static_cast<float>(a.eps)});
}

template <class E, class L>
void run_rms_norm_centred(const CentredRmsNormArgs& a, L& launch) {
  launch.run(launch.size(a.rows), norm_threads(a.width), kReduceBytes,
             RmsNorm<E, NormWeight::Centred>{a.x, nullptr, a.weight, nullptr, a.out, nullptr, a.width,
                                             static_cast<float>(a.eps)});
}

template <class E, class L>
void run_unit_rms_norm(const UnitRmsNormArgs& a, L& launch) {
  launch.run(
      launch.size(a.rows), norm_threads(a.width), kReduceBytes,
      RmsNorm<E, NormWeight::None>{a.x, nullptr, nullptr, nullptr, a.out, nullptr, a.width, static_cast<float>(a.eps)});
}

template <class E, class L>
void run_layer_norm(const LayerNormArgs& a, L& launch) {
  launch.run(launch.size(a.rows), norm_threads(a.width), kReduceBytes,
             LayerNorm<E>{a.x, a.weight, a.bias, a.out, a.width, a.vectors, static_cast<float>(a.eps)});
}

template <class E, class L>
void run_add_rms_norm(const AddRmsNormArgs& a, L& launch) {
  launch.run(launch.size(a.rows), norm_threads(a.width), kReduceBytes,
             RmsNorm<E>{a.x, a.r, a.weight, a.bias, a.out, a.sum, a.width, static_cast<float>(a.eps)});
}

template <class L>
void fill_norm_of(KernelTable& table) {
  table.rms_norm = REPRISE_CUDA_PER_TYPE(run_rms_norm, L);
  table.rms_norm_centred = REPRISE_CUDA_PER_TYPE(run_rms_norm_centred, L);
  table.unit_rms_norm = REPRISE_CUDA_PER_TYPE(run_unit_rms_norm, L);
  table.layer_norm = REPRISE_CUDA_PER_TYPE(run_layer_norm, L);
  table.add_rms_norm = REPRISE_CUDA_PER_TYPE(run_add_rms_norm, L);
}

}  // namespace reprise::cuda
