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

// The number of a row at a column, as the kernels below quantise it.
template <class E>
struct PlainRow {
  const typename E::Type* x;
  int64_t columns;
  DEV float at(int64_t row, int64_t column) const { return E::load(x[row * columns + column]); }
};
template <class E>
struct GatedRow {
  const typename E::Type* gate_up;
  int64_t columns;
  DEV float at(int64_t row, int64_t column) const {
    const typename E::Type* gate = gate_up + row * 2 * columns + column;
    return rounded<E>(rounded<E>(silu_of(E::load(gate[0]))) * E::load(gate[columns]));
  }
};

// A block a row: its largest magnitude, then its numbers over their scale.
template <class Row>
struct QuantizeRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  Row row;
  int8_t* out;
  float* scale;

  template <class L>
  DEV void operator()(L& lane) const {
    float top = 0;
    for (int64_t c = lane.thread(); c < row.columns; c += lane.threads())
      top = larger_magnitude(top, row.at(lane.block(), c));
    const float by = dynamic_scale(block_max(lane, top, reinterpret_cast<float*>(lane.shared())));
    for (int64_t c = lane.thread(); c < row.columns; c += lane.threads())
      out[lane.block() * row.columns + c] = to_i8(divide(row.at(lane.block(), c), by));
    if (lane.thread() == 0) scale[lane.block()] = by;
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
    float squares = 0;
    for (int64_t i = lane.thread() * 8; i < n; i += lane.threads() * 8) {
      float v[8], r[8];
      load_chunk<E>(x + at, i, n, v);
      load_chunk<E>(residual + at, i, n, r);
      UNROLL
      for (int j = 0; j < 8; ++j) v[j] = rounded<E>(v[j] + r[j]);
      store_chunk<E>(sum + at, i, n, v);
      squares = square_chunk(v, squares);
    }
    const float factor = rms_factor(block_sum(lane, squares, scratch), n, eps);
    auto normed = [&](int64_t i, float(&v)[8]) {
      load_chunk<E>(sum + at, i, n, v);
      normalise_chunk<E>(v, factor, weight, bias, i, n);
      UNROLL
      for (int j = 0; j < 8; ++j) v[j] = rounded<E>(v[j]);
    };
    float scale = 0;
    if (row_scale) {
      float top = 0;
      for (int64_t i = lane.thread() * 8; i < n; i += lane.threads() * 8) {
        float v[8];
        normed(i, v);
        UNROLL
        for (int j = 0; j < 8; ++j)
          if (i + j < n) top = larger_magnitude(top, v[j]);
      }
      scale = dynamic_scale(block_max(lane, top, scratch));
      if (lane.thread() == 0) row_scale[lane.block()] = scale;
    }
    for (int64_t i = lane.thread() * 8; i < n; i += lane.threads() * 8) {
      float v[8];
      normed(i, v);
      UNROLL
      for (int j = 0; j < 8; ++j)
        if (i + j < n) out[at + i + j] = row_scale ? to_i8(divide(v[j], scale)) : by.apply(v[j], i + j);
    }
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
  launch.run(launch.size(a.rows), kElementThreads, kReduceBytes,
             QuantizeRows<PlainRow<E>>{{a.x, a.width}, a.values, a.scale});
}

template <class E, class L>
void run_silu_mul_quant(const SiluMulQuantArgs& a, L& launch) {
  launch.run(launch.size(a.rows), kElementThreads, kReduceBytes,
             QuantizeRows<GatedRow<E>>{{a.gate_up, a.width}, a.values, a.scale});
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
