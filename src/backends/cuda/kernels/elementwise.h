// Kernels that work number by number, and those that copy rows: the CPU's bits.
#pragma once

#include "backends/cuda/kernel_table.h"
#include "backends/cuda/kernels/curves.h"
#include "backends/cuda/kernels/lane.h"
#include "ops/args/elements.h"
#include "ops/args/encoder.h"

namespace reprise::cuda {

constexpr int kElementThreads = 256;

inline int64_t blocks_for(int64_t n, int64_t each) { return (n + each - 1) / each; }

struct AddOf {
  static DEV float apply(float a, float b) { return a + b; }
};
struct MulOf {
  static DEV float apply(float a, float b) { return a * b; }
};
struct SiluOf {
  static DEV float apply(float a) { return silu_of(a); }
};
struct SigmoidOf {
  static DEV float apply(float a) { return divide(1.0f, exp_of(-a) + 1.0f); }
};
struct ReciprocalOf {
  static DEV float apply(float a) { return divide(1.0f, a); }
};

struct GeluOf {
  static DEV float apply(float a) { return gelu_of(a); }
};
struct ReluSquaredOf {
  static DEV float apply(float a) {
    const float above = 0.0f > a ? 0.0f : a;
    return above * above;
  }
};
struct GeluTanhOf {
  static DEV float apply(float a) { return gelu_tanh_of(a); }
};

// With numbers of the op's own.
struct ScaleOf {
  float by;
  DEV float apply(float a) const { return a * by; }
};
struct SoftcapOf {
  float cap;
  DEV float apply(float a) const { return tanh_of(divide(a, cap)) * cap; }
};
struct SwigluClampedOf {
  float alpha, limit;
  DEV float apply(float gate, float up) const {
    const float g = gate > limit ? limit : gate;
    float u = up > limit ? limit : up;
    u = u < -limit ? -limit : u;
    return (u + 1.0f) * divide(g, exp_of(-(g * alpha)) + 1.0f);
  }
};

// Eight numbers a thread; the last ones singly.
template <class E, class Op>
struct Binary {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* a;
  const typename E::Type* b;
  typename E::Type* out;
  int64_t n;
  Op op{};

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = (static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread()) * 8;
    if (i + 8 <= n) {
      float x[8], y[8];
      load_eight<E>(a + i, x);
      load_eight<E>(b + i, y);
      UNROLL
      for (int j = 0; j < 8; ++j) x[j] = op.apply(x[j], y[j]);
      store_eight<E>(out + i, x);
    } else {
      for (int64_t j = i; j < n; ++j) out[j] = E::store(op.apply(E::load(a[j]), E::load(b[j])));
    }
  }
};

template <class E, class Op>
struct Unary {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* a;
  typename E::Type* out;
  int64_t n;
  Op op{};

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = (static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread()) * 8;
    if (i + 8 <= n) {
      float x[8];
      load_eight<E>(a + i, x);
      UNROLL
      for (int j = 0; j < 8; ++j) x[j] = op.apply(x[j]);
      store_eight<E>(out + i, x);
    } else {
      for (int64_t j = i; j < n; ++j) out[j] = E::store(op.apply(E::load(a[j])));
    }
  }
};

// silu(first half of a row), rounded, times the second half. One thread makes eight columns, or one where the half is
// no multiple of eight.
template <class E>
struct SiluMul {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* gate_up;
  typename E::Type* out;
  int64_t rows, columns;

  static DEV float apply(float gate, float up) { return rounded<E>(silu_of(gate)) * up; }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t unit = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (columns % 8 == 0) {
      const int64_t i = unit * 8;
      if (i >= rows * columns) return;
      const int64_t row = i / columns, column = i % columns;
      float gate[8], up[8];
      load_eight<E>(gate_up + row * 2 * columns + column, gate);
      load_eight<E>(gate_up + row * 2 * columns + columns + column, up);
      UNROLL
      for (int j = 0; j < 8; ++j) gate[j] = apply(gate[j], up[j]);
      store_eight<E>(out + i, gate);
    } else if (unit < rows * columns) {
      const int64_t row = unit / columns, column = unit % columns;
      const typename E::Type* gate = gate_up + row * 2 * columns + column;
      out[unit] = E::store(apply(E::load(gate[0]), E::load(gate[columns])));
    }
  }
};

template <class E>
struct ScaleRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  const float* scale;
  typename E::Type* out;
  int64_t n, columns;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (i < n) out[i] = E::store(E::load(x[i]) * scale[i / columns]);
  }
};

// A thread asks for kChunk bytes at a time. Few threads: what they ask for arrives long after they have ended, and the
// multiprocessors are for what runs meanwhile.
struct Prefetch {
  static constexpr int kThreads = 32, kBlocks = 1;
  static constexpr int64_t kChunk = 4096, kLine = 128;
  const char* from;
  int64_t bytes;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t lanes = static_cast<int64_t>(lane.blocks()) * lane.threads();
    for (int64_t at = (lane.block() * lane.threads() + lane.thread()) * kChunk; at < bytes; at += lanes * kChunk) {
      const int64_t left = bytes - at;
      lane.prefetch(from + at, static_cast<int>(left < kChunk ? left / kLine * kLine : kChunk));
    }
  }
};

// Row i of `out` is `bytes` of row source(i) of `x`, from byte `begin` of its `pitch`; a source outside [0, count)
// gives zeros. One block a row.
struct CopyRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const char* x;
  const int32_t* index;  // null: row i itself
  char* out;
  int64_t count, pitch, begin, bytes;

  template <class Word, class L>
  DEV void move(L& lane, int64_t from) const {
    const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
    const auto* source = reinterpret_cast<const Word*>(x + from * pitch + begin);
    auto* to = reinterpret_cast<Word*>(out + lane.block() * bytes);
    const bool exists = from >= 0 && from < count;
    for (int64_t i = lane.thread(); i < words; i += lane.threads()) to[i] = exists ? source[i] : Word{};
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t from = index ? index[lane.block()] : lane.block();
    if ((pitch | begin | bytes) % 16 == 0)
      move<Sixteen>(lane, from);
    else if ((pitch | begin | bytes) % 2 == 0)
      move<uint16_t>(lane, from);
    else
      move<uint8_t>(lane, from);
  }
};

// The columns of a, then those of b; widths in bytes. One block a row.
struct JoinColumns {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const char* a;
  const char* b;
  char* out;
  int64_t a_width, b_width;

  template <class Word, class L>
  DEV void move(L& lane) const {
    const int64_t row = lane.block(), split = a_width / static_cast<int64_t>(sizeof(Word));
    const int64_t words = split + b_width / static_cast<int64_t>(sizeof(Word));
    const auto* first = reinterpret_cast<const Word*>(a + row * a_width);
    const auto* second = reinterpret_cast<const Word*>(b + row * b_width);
    auto* to = reinterpret_cast<Word*>(out + row * (a_width + b_width));
    for (int64_t i = lane.thread(); i < words; i += lane.threads()) to[i] = i < split ? first[i] : second[i - split];
  }

  template <class L>
  DEV void operator()(L& lane) const {
    if ((a_width | b_width) % 16 == 0)
      move<Sixteen>(lane);
    else if ((a_width | b_width) % 2 == 0)
      move<uint16_t>(lane);
    else
      move<uint8_t>(lane);
  }
};

template <class E>
struct Widen {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  float* out;
  int64_t n;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (i < n) out[i] = E::load(x[i]);
  }
};

struct CopyBytes {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const char* x;
  char* out;
  int64_t bytes;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = (static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread()) * 16;
    if (i + 16 <= bytes)
      *words_at<Sixteen>(out + i) = *words_at<Sixteen>(x + i);
    else
      for (int64_t j = i; j < bytes; ++j) out[j] = x[j];
  }
};

template <class E, class Op, class L>
void run_binary(const BinaryArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads * 8), kElementThreads, 0, Binary<E, Op>{a.a, a.b, a.out, n});
}
template <class E, class Op, class L>
void run_unary(const UnaryArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads * 8), kElementThreads, 0, Unary<E, Op>{a.x, a.out, n});
}
template <class E, class L>
void run_add(const BinaryArgs& a, L& launch) {
  run_binary<E, AddOf>(a, launch);
}
template <class E, class L>
void run_mul(const BinaryArgs& a, L& launch) {
  run_binary<E, MulOf>(a, launch);
}
template <class E, class L>
void run_silu(const UnaryArgs& a, L& launch) {
  run_unary<E, SiluOf>(a, launch);
}
template <class E, class L>
void run_sigmoid(const UnaryArgs& a, L& launch) {
  run_unary<E, SigmoidOf>(a, launch);
}
template <class E, class L>
void run_reciprocal(const UnaryArgs& a, L& launch) {
  run_unary<E, ReciprocalOf>(a, launch);
}

template <class E, class L>
void run_gelu(const UnaryArgs& a, L& launch) {
  run_unary<E, GeluOf>(a, launch);
}
template <class E, class L>
void run_relu_squared(const UnaryArgs& a, L& launch) {
  run_unary<E, ReluSquaredOf>(a, launch);
}
template <class E, class L>
void run_gelu_tanh(const UnaryArgs& a, L& launch) {
  run_unary<E, GeluTanhOf>(a, launch);
}
template <class E, class Op, class L>
void run_with_number(const NumberArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads * 8), kElementThreads, 0,
             Unary<E, Op>{a.x, a.out, n, {static_cast<float>(a.number)}});
}
template <class E, class L>
void run_scale(const NumberArgs& a, L& launch) {
  run_with_number<E, ScaleOf>(a, launch);
}
template <class E, class L>
void run_softcap(const NumberArgs& a, L& launch) {
  run_with_number<E, SoftcapOf>(a, launch);
}
template <class E, class L>
void run_swiglu_clamped(const SwigluClampedArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(
      blocks_for(n, kElementThreads * 8), kElementThreads, 0,
      Binary<E, SwigluClampedOf>{a.gate, a.up, a.out, n, {static_cast<float>(a.alpha), static_cast<float>(a.limit)}});
}

template <class E, class L>
void run_silu_mul(const SiluMulArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows), columns = a.width;
  launch.run(blocks_for(rows * columns, kElementThreads * (columns % 8 == 0 ? 8 : 1)), kElementThreads, 0,
             SiluMul<E>{a.gate_up, a.out, rows, columns});
}

template <class E, class L>
void run_scale_rows(const ScaleRowsArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads), kElementThreads, 0, ScaleRows<E>{a.x, a.scale, a.out, n, a.width});
}

template <class L>
void run_slice(const SliceArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(rows, kElementThreads, 0,
             CopyRows{a.x, nullptr, a.out, rows, a.width * a.element, a.begin * a.element, a.size * a.element});
}

template <class L>
void run_copy(const CopyArgs& a, L& launch) {
  const int64_t bytes = launch.size(a.rows) * a.width * a.element;
  launch.run(blocks_for(bytes, kElementThreads * 16), kElementThreads, 0, CopyBytes{a.x, a.out, bytes});
}

template <class L>
void run_rows(const IndexSelectArgs& a, L& launch) {
  const int64_t bytes = a.width * a.element;
  launch.run(launch.size(a.rows), kElementThreads, 0,
             CopyRows{a.x, a.index, a.out, launch.size(a.x_rows), bytes, 0, bytes});
}

template <class L>
void run_prefetch(const PrefetchArgs& a, L& launch) {
  const char* param = a.param;
  const int64_t most = launch.limits.multiprocessors / 8 + 1,
                needed = blocks_for(a.bytes, Prefetch::kThreads * Prefetch::kChunk);
  launch.run(needed < most ? needed : most, Prefetch::kThreads, 0, Prefetch{param + a.first, a.bytes});
}

template <class L>
void run_concat(const ConcatArgs& a, L& launch) {
  launch.run(launch.size(a.rows), kElementThreads, 0, JoinColumns{a.a, a.b, a.out, a.a_width, a.b_width});
}

// A block a row.
template <class E>
struct FiniteRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  int32_t* out;
  int64_t width;

  template <class L>
  DEV void operator()(L& lane) const {
    const typename E::Type* row = x + static_cast<int64_t>(lane.block()) * width;
    float broken = 0;
    for (int64_t i = lane.thread(); i < width; i += kThreads) {
      const float v = E::load(row[i]);
      broken = v - v == 0.0f ? broken : 1.0f;  // NaN where v is not finite
    }
    broken = block_max(lane, broken, reinterpret_cast<float*>(lane.shared()));
    if (lane.thread() == 0) out[lane.block()] = broken == 0.0f ? 1 : 0;
  }
};
template <class E, class L>
void run_finite_rows(const UnaryArgs& a, L& launch) {
  launch.run(launch.size(a.rows), FiniteRows<E>::kThreads, 32 * sizeof(float), FiniteRows<E>{a.x, a.out, a.width});
}

template <class E, class L>
void run_widen(const VectorsArgs& a, L& launch) {
  const int64_t n = launch.size(a.rows) * a.width;
  launch.run(blocks_for(n, kElementThreads), kElementThreads, 0, Widen<E>{a.x, a.out, n});
}

template <class L>
void fill_elementwise_of(KernelTable& table) {
  table.add = REPRISE_CUDA_PER_TYPE(run_add, L);
  table.mul = REPRISE_CUDA_PER_TYPE(run_mul, L);
  table.silu = REPRISE_CUDA_PER_TYPE(run_silu, L);
  table.sigmoid = REPRISE_CUDA_PER_TYPE(run_sigmoid, L);
  table.reciprocal = REPRISE_CUDA_PER_TYPE(run_reciprocal, L);
  table.silu_mul = REPRISE_CUDA_PER_TYPE(run_silu_mul, L);
  table.scale_rows = REPRISE_CUDA_PER_TYPE(run_scale_rows, L);
  table.gelu = REPRISE_CUDA_PER_TYPE(run_gelu, L);
  table.relu_squared = REPRISE_CUDA_PER_TYPE(run_relu_squared, L);
  table.gelu_tanh = REPRISE_CUDA_PER_TYPE(run_gelu_tanh, L);
  table.scale = REPRISE_CUDA_PER_TYPE(run_scale, L);
  table.softcap = REPRISE_CUDA_PER_TYPE(run_softcap, L);
  table.swiglu_clamped = REPRISE_CUDA_PER_TYPE(run_swiglu_clamped, L);
  table.widen = REPRISE_CUDA_PER_TYPE(run_widen, L);
  table.finite_rows = REPRISE_CUDA_PER_TYPE(run_finite_rows, L);
  table.concat = erased<L, run_concat<L>>;
  table.slice = erased<L, run_slice<L>>;
  table.copy = erased<L, run_copy<L>>;
  table.rows = erased<L, run_rows<L>>;
  table.embedding = erased<L, run_rows<L>>;
  table.prefetch = erased<L, run_prefetch<L>>;
}

}  // namespace reprise::cuda
