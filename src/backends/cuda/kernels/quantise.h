// Floats to int8, alone and at the end of norms and of the gated MLP. Quantising has the CPU's bits; what comes before
// it, the bits of the parts on this device.
#pragma once

#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/quantise_row.h"
#include "ops/args/quantise.h"

namespace reprise::cuda {

// Scale and offset of quantize_static: one number per column (step 1), or one for all (step 0).
struct StaticScale {
  const float* scale;
  const float* offset;
  int64_t scale_step, offset_step;
  DEV int8_t apply(float v, int64_t column) const {
    return to_i8(v * scale[column * scale_step] + offset[column * offset_step]);
  }
};

template <class E>
struct QuantizeStatic {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  int8_t* out;
  StaticScale by;
  int64_t n, columns;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (i < n) out[i] = by.apply(E::load(x[i]), i % columns);
  }
};

// Up to eight numbers of a row from a column on, as the kernels below quantise them; what lies behind the row is zeros.
template <class E>
struct PlainRow {
  const typename E::Type* x;
  int64_t columns;
  DEV void chunk(int64_t row, int64_t column, float (&v)[8]) const {
    load_chunk<E>(x + row * columns, column, columns, v);
  }
};
template <class E>
struct GatedRow {
  const typename E::Type* gate_up;
  int64_t columns;
  DEV static float apply(float gate, float up) { return rounded<E>(SiluMul<E>::apply(gate, up)); }
  DEV void chunk(int64_t row, int64_t column, float (&v)[8]) const {
    const typename E::Type* gate = gate_up + row * 2 * columns;
    float up[8];
    load_chunk<E>(gate, column, columns, v);
    load_chunk<E>(gate + columns, column, columns, up);
    UNROLL
    for (int j = 0; j < 8; ++j) v[j] = apply(v[j], up[j]);
  }
  DEV float at(int64_t row, int64_t column) const {
    const typename E::Type* gate = gate_up + row * 2 * columns + column;
    return apply(E::load(gate[0]), E::load(gate[columns]));
  }
};

struct alignas(8) EightI8 {
  int8_t v[8];
};
DEV void store_i8(int8_t* row, int64_t i, int64_t n, const EightI8& q) {
  if (n % 8 == 0) {
    *reinterpret_cast<EightI8*>(row + i) = q;
    return;
  }
  UNROLL
  for (int j = 0; j < 8; ++j)
    if (i + j < n) row[i + j] = q.v[j];
}
DEV float largest_of(const float (&v)[8], float top) {
  UNROLL
  for (int j = 0; j < 8; ++j) top = larger_magnitude(top, v[j]);
  return top;
}

// A block a row: its largest magnitude, then its numbers over their scale.
template <class Row>
struct QuantizeRows {
  static constexpr int kThreads = 512, kBlocks = 1;
  Row row;
  int8_t* out;
  float* scale;

  // Whole warps, a chunk of eight or more for each thread.
  static int threads(int64_t columns) {
    return static_cast<int>(smaller<int64_t>(kThreads, blocks_for(columns, 8 * 32) * 32));
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t at = lane.block(), n = row.columns;
    float kept[kKeptChunks][8];
    const float top = each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool, float(&v)[8], float so_far) {
      row.chunk(at, i, v);
      return largest_of(v, so_far);
    });
    const float by = dynamic_scale(block_max(lane, top, reinterpret_cast<float*>(lane.shared())));
    each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool here, float(&v)[8], float) {
      if (!here) row.chunk(at, i, v);
      EightI8 q;
      UNROLL
      for (int j = 0; j < 8; ++j) q.v[j] = to_i8(divide(v[j], by));
      store_i8(out + at * n, i, n, q);
      return 0.0f;
    });
    if (lane.thread() == 0) scale[at] = by;
  }
};

template <class E>
struct SiluMulQuantStatic {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  GatedRow<E> row;
  int8_t* out;
  StaticScale by;
  int64_t n;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (i < n) out[i] = by.apply(row.at(i / row.columns, i % row.columns), i % row.columns);
  }
};

// The norm of x + residual (norm.h), rounded, then quantised: with given scales, or, where `row_scale` is not null,
// with one a row.
template <class E>
struct AddRmsNormQuant {
  static constexpr int kThreads = 256, kBlocks = 1;
  using T = typename E::Type;
  const T* x;
  const T* residual;
  const T* weight;
  const T* bias;
  int8_t* out;
  float* row_scale;
  T* sum;
  StaticScale by;
  int64_t n;
  float eps;

  template <class L>
  DEV void operator()(L& lane) const {
    auto* scratch = reinterpret_cast<float*>(lane.shared());
    const int64_t at = lane.block() * n;
    const RmsNorm<E> norm{x, residual, weight, bias, nullptr, sum, n, eps};
    float kept[kKeptChunks][8];
    const float squares = each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool, float(&v)[8], float so_far) {
      norm.add(at, i, v);
      return square_chunk(v, so_far);
    });
    const float factor = rms_factor(block_sum(lane, squares, scratch), n, eps);
    auto normed = [&](int64_t i, bool here, float(&v)[8]) {
      if (!here) load_chunk<E>(sum + at, i, n, v);
      normalise_chunk<E>(v, factor, weight, bias, i, n);
      UNROLL
      for (int j = 0; j < 8; ++j) v[j] = i + j < n ? rounded<E>(v[j]) : 0.0f;
    };
    const float top = each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool here, float(&v)[8], float so_far) {
      if (!here && !row_scale) return so_far;
      normed(i, here, v);
      return largest_of(v, so_far);
    });
    float scale = 0;
    if (row_scale) {
      scale = dynamic_scale(block_max(lane, top, scratch));
      if (lane.thread() == 0) row_scale[lane.block()] = scale;
    }
    each_chunk(lane, n, kept, 0.0f, [&](int64_t i, bool here, float(&v)[8], float) {
      if (!here) normed(i, false, v);
      EightI8 q;
      UNROLL
      for (int j = 0; j < 8; ++j)
        q.v[j] = i + j >= n ? int8_t{0} : row_scale ? to_i8(divide(v[j], scale)) : by.apply(v[j], i + j);
      store_i8(out + at, i, n, q);
      return 0.0f;
    });
  }
};

template <class A>
StaticScale static_scale(const A& a) {
  return {a.scale, a.offset, a.scales == 1 ? 0 : 1, a.offsets == 1 ? 0 : 1};
}

template <class E, class L>
void run_quantize_static(const QuantizeStaticArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads), kElementThreads, 0,
             QuantizeStatic<E>{a.x, a.values, static_scale(a), n, a.width});
}

template <class E, class L>
void run_quantize_dynamic(const QuantizeDynamicArgs& a, L& launch) {
  using K = QuantizeRows<PlainRow<E>>;
  launch.run(launch.size(a.rows), K::threads(a.width), kReduceBytes, K{{a.x, a.width}, a.values, a.scale});
}

template <class E, class L>
void run_silu_mul_quant(const SiluMulQuantArgs& a, L& launch) {
  using K = QuantizeRows<GatedRow<E>>;
  launch.run(launch.size(a.rows), K::threads(a.width), kReduceBytes, K{{a.gate_up, a.width}, a.values, a.scale});
}

template <class E, class L>
void run_silu_mul_quant_static(const SiluMulQuantStaticArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads), kElementThreads, 0,
             SiluMulQuantStatic<E>{{a.gate_up, a.width}, a.values, static_scale(a), n});
}

template <class E, class L>
void run_add_rms_norm_quant_static(const AddRmsNormQuantStaticArgs& a, L& launch) {
  launch.run(launch.size(a.rows), norm_threads(a.width), kReduceBytes,
             AddRmsNormQuant<E>{a.x, a.r, a.weight, a.bias, a.values, nullptr, a.sum, static_scale(a), a.width,
                                static_cast<float>(a.eps)});
}

template <class E, class L>
void run_add_rms_norm_quant_dynamic(const AddRmsNormQuantDynamicArgs& a, L& launch) {
  launch.run(launch.size(a.rows), norm_threads(a.width), kReduceBytes,
             AddRmsNormQuant<E>{a.x, a.r, a.weight, a.bias, a.values, a.scale, a.sum, StaticScale{}, a.width,
                                static_cast<float>(a.eps)});
}

template <class L>
void fill_quantise_of(KernelTable& table) {
  table.quantize_static = REPRISE_CUDA_PER_TYPE(run_quantize_static, L);
  table.quantize_dynamic = REPRISE_CUDA_PER_TYPE(run_quantize_dynamic, L);
  table.silu_mul_quant = REPRISE_CUDA_PER_TYPE(run_silu_mul_quant, L);
  table.silu_mul_quant_static = REPRISE_CUDA_PER_TYPE(run_silu_mul_quant_static, L);
  table.add_rms_norm_quant_static = REPRISE_CUDA_PER_TYPE(run_add_rms_norm_quant_static, L);
  table.add_rms_norm_quant_dynamic = REPRISE_CUDA_PER_TYPE(run_add_rms_norm_quant_dynamic, L);
}

}  // namespace reprise::cuda
