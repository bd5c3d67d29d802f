// The work on the states of layers that keep one for each sequence, for the rules of gated_delta.cpp and
// state_space.cpp: row by row in prompts and in decoding alike, so that a row's bits do not depend on the rows that are
// computed with it. The forms in chunks, which other implementations have for prompts, take half again as many
// multiply-adds; they pay where a matrix unit does them.
//
// A column of a head's state depends on no other column, so a thread takes some columns of some heads, and 32 of them
// stay in the first-level cache while all rows of a tile go over them. Sums over the rows of a state: numbers i and
// i + 2, ... in two chains by i % 2, then the two are added.
//
// Drafts change the columns that are worked on and not the state. What each would change of it stays in the slot, and
// the next step makes those changes first that came true: they are a key and a value each, a fraction of a state.
#pragma once

#include <cstring>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/curves.h"
#include "backends/cpu/kernels/delta_shape.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/float_mode.h"
#include "backends/cpu/kernels/stream.h"

namespace reprise::cpu::REPRISE_ISA {

// Subnormal results become zeros while it lives: states that fade would all end there, at a hundred times the cost.
class FadeToZero {
 public:
  FadeToZero() : saved_(float_mode()) { set_float_mode(saved_ | kFlushResults); }
  ~FadeToZero() { set_float_mode(saved_); }
  FadeToZero(const FadeToZero&) = delete;
  FadeToZero& operator=(const FadeToZero&) = delete;

 private:
  FloatMode saved_;
};

// log(1 + exp(x)), within 2e-7 of the result: log(1 + z) = 2 atanh(z / (2 + z)) of z = exp(-|x|), and x where that is
// above 0.
inline F32x16 softplus(F32x16 x) {
  constexpr float kAtanh[] = {1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f};
  const F32x16 z = exp_bounded(-absolute(x)), s = z / (z + 2.0f);
  return fma(s + s, polynomial(s * s, kAtanh), larger(x, zero()));
}

// Sixteen rows' number of a head out of [T, heads].
template <typename E>
F32x16 numbers_of_head(const typename E::Type* x, int64_t heads, int64_t row, int64_t head, int64_t rows) {
  typename E::Type some[16] = {};
  for (int64_t i = 0; i < 16 && i < rows; ++i) some[i] = x[(row + i) * heads + head];
  return E::load(some);
}

// Rows of one head, ready for its state; `pitch` numbers from key to key. A row's output has `skip` times its value
// besides, by rules that do not look for the key in the state.
struct StateTile {
  float *q, *k, *decay, *beta;
  int64_t pitch;
  float skip;
};

// What the drafts of a step would change of one head's state, as a slot has it.
struct StateChanges {
  template <typename Args>
  StateChanges(float* head, const Args& a)
      : values(head + a.key * a.value),
        keys(values + a.most_drafts * a.value),
        decay(keys + a.most_drafts * a.key),
        beta(decay + a.most_drafts) {}
  float *values, *keys, *decay, *beta;
};

// A rule has Args, with the sizes of a state and of the step; kFinds: what is taken in is what a value differs by from
// that which its key finds in the state, else the value; `width` numbers from row to row; values(head), where the
// first row's are; and prepare(tile, head, row, rows), which makes those rows of a head ready.
template <typename E, typename Rule>
struct StateHead {
  using T = typename E::Type;
  using Args = typename Rule::Args;

  StateHead(const Args& args, const Launch& l) : a(args), rule(args) {
    const int64_t pitch = delta_key(a.key);
    float* at = l.scratch<float>(delta_thread_floats(a.key) * static_cast<int64_t>(sizeof(float)));
    tile = {at, at + kDeltaRows * pitch, at + 2 * kDeltaRows * pitch, at + (2 * pitch + 1) * kDeltaRows, pitch, 0.0f};
    kept = at + delta_rows_floats(a.key);
    const int64_t bytes = l.size(a.sequences) * a.heads * a.key * a.value * static_cast<int64_t>(sizeof(float));
    const void* states = static_cast<const float*>(a.state);
    streams = bytes >= kStreamedStates && a.value % 16 == 0 && reinterpret_cast<uintptr_t>(states) % kLine == 0;
  }

  // Sixteen of `n` numbers from `at` on; kWhole: all of them are there.
  template <typename From, bool kWhole>
  static F32x16 sixteen(const typename From::Type* x, int64_t at, int64_t n) {
    if constexpr (kWhole) return From::load(x + at);
    return at < n ? load_n<From>(x + at, n - at) : zero();
  }
  template <typename To, bool kWhole>
  static void put(typename To::Type* x, int64_t at, int64_t n, F32x16 v) {
    if constexpr (kWhole) return To::store(x + at, v);
    if (at < n) store_n<To>(x + at, v, n - at);
  }

  // One row over n columns of a state, 32 at most, from one place to another, which may be the same. Both have `stride`
  // numbers from key to key; kState: 32 of them may be touched; kStream: the new state goes past the caches. Without
  // `out` it has no query.
  template <bool kState, bool kRow, typename V, bool kStream = false>
  void step(const StateTile& rows, const float* from, float* to, int64_t stride, int64_t t,
            const typename V::Type* value, T* out, int64_t n) const {
    const float *k = rows.k + t * rows.pitch, *q = out ? rows.q + t * rows.pitch : k;
    const F32x16 decay = splat(rows.decay[t]), beta = splat(rows.beta[t]);
    const F32x16 x0 = sixteen<V, kRow>(value, 0, n), x1 = sixteen<V, kRow>(value, 16, n);
    F32x16 u0 = x0, u1 = x1;
    if constexpr (Rule::kFinds) {
      F32x16 s0[2] = {zero(), zero()}, s1[2] = {zero(), zero()};
      const auto known = [&](int64_t i, int chain) {
        const float* row = from + i * stride;
        const F32x16 by = splat(k[i]);
        s0[chain] = fma(sixteen<F32, kState>(row, 0, n), by, s0[chain]);
        s1[chain] = fma(sixteen<F32, kState>(row, 16, n), by, s1[chain]);
      };
      int64_t i = 0;
      for (; i + 2 <= a.key; i += 2) known(i, 0), known(i + 1, 1);
      if (i < a.key) known(i, 0);
      u0 = x0 - (s0[0] + s0[1]) * decay;
      u1 = x1 - (s1[0] + s1[1]) * decay;
    }
    u0 *= beta;
    u1 *= beta;
    F32x16 o0[2] = {zero(), zero()}, o1[2] = {zero(), zero()};
    const auto renew = [&](int64_t j, int chain) {
      const float* row = from + j * stride;
      const F32x16 key = splat(k[j]), query = splat(q[j]);
      const F32x16 v0 = fma(key, u0, sixteen<F32, kState>(row, 0, n) * decay),
                   v1 = fma(key, u1, sixteen<F32, kState>(row, 16, n) * decay);
      if constexpr (kStream) {
        stream(to + j * stride, v0);
        stream(to + j * stride + 16, v1);
      } else {
        put<F32, kState>(to + j * stride, 0, n, v0);
        put<F32, kState>(to + j * stride, 16, n, v1);
      }
      o0[chain] = fma(v0, query, o0[chain]);
      o1[chain] = fma(v1, query, o1[chain]);
    };
    int64_t j = 0;
    for (; j + 2 <= a.key; j += 2) renew(j, 0), renew(j + 1, 1);
    if (j < a.key) renew(j, 0);
    if (!out) return;
    F32x16 y0 = o0[0] + o0[1], y1 = o1[0] + o1[1];
    if constexpr (!Rule::kFinds) {
      y0 = fma(x0, splat(rows.skip), y0);
      y1 = fma(x1, splat(rows.skip), y1);
    }
    put<E, kRow>(out, 0, n, y0);
    put<E, kRow>(out, 16, n, y1);
  }

  // Rows of a tile over n columns of a state. Where there are several, those columns are kept together meanwhile: rows
  // of a state lie far from each other, in the same few sets of the cache.
  template <bool kWhole>
  void steps(const float* from, float* to, int64_t rows, const T* value, T* out, int64_t n) const {
    const int64_t next = a.heads * a.value;
    if (kWhole && rows == 1 && streams && from != to)
      return step<kWhole, kWhole, E, kWhole>(tile, from, to, a.value, 0, value, out, n);
    if (rows == 1) return step<kWhole, kWhole, E>(tile, from, to, a.value, 0, value, out, n);
    take<kWhole>(from, n);
    for (int64_t t = 0; t < rows; ++t)
      step<true, kWhole, E>(tile, kept, kept, kDeltaColumns, t, value + t * rule.width, out + t * next, n);
    leave<kWhole>(to, n);
  }
  template <bool kWhole>
  void take(const float* from, int64_t n) const {
    for (int64_t i = 0; i < a.key; ++i) {
      store(kept + i * kDeltaColumns, sixteen<F32, kWhole>(from + i * a.value, 0, n));
      store(kept + i * kDeltaColumns + 16, sixteen<F32, kWhole>(from + i * a.value, 16, n));
    }
  }
  template <bool kWhole>
  void leave(float* to, int64_t n) const {
    for (int64_t i = 0; i < a.key; ++i) {
      put<F32, kWhole>(to + i * a.value, 0, n, load(kept + i * kDeltaColumns));
      put<F32, kWhole>(to + i * a.value, 16, n, load(kept + i * kDeltaColumns + 16));
    }
  }

  // The same where drafts take part: `before` changes of the slot that is read come first, and the tile's last rows are
  // drafts. `at`: the first of the columns.
  template <bool kWhole>
  void steps_with_drafts(const float* from, const StateChanges& known, int64_t before, float* to,
                         const StateChanges& changes, int64_t own, int64_t rows, const T* value, T* out, int64_t at,
                         int64_t n) const {
    const int64_t next = a.heads * a.value;
    take<kWhole>(from + at, n);
    const StateTile first{nullptr, known.keys, known.decay, known.beta, a.key, 0.0f};
    for (int64_t t = 0; t < before; ++t)
      step<true, kWhole, F32>(first, kept, kept, kDeltaColumns, t, known.values + t * a.value + at, nullptr, n);
    for (int64_t t = 0; t < rows; ++t) {
      step<true, kWhole, E>(tile, kept, kept, kDeltaColumns, t, value + t * rule.width, out + t * next, n);
      if (t + 1 == own) leave<kWhole>(to + at, n);
      if (t < own) continue;
      float* kept_value = changes.values + (t - own) * a.value + at;
      put<F32, kWhole>(kept_value, 0, n, sixteen<E, kWhole>(value + t * rule.width, 0, n));
      put<F32, kWhole>(kept_value, 16, n, sixteen<E, kWhole>(value + t * rule.width, 16, n));
    }
  }

  // Keys and gates of drafts, the tile's rows from `own` on.
  void note(const StateChanges& changes, int64_t own, int64_t rows) const {
    for (int64_t t = own; t < rows; ++t) {
      const size_t bytes = static_cast<size_t>(a.key) * sizeof(float);
      std::memcpy(changes.keys + (t - own) * a.key, tile.k + t * tile.pitch, bytes);
      changes.decay[t - own] = tile.decay[t];
      changes.beta[t - own] = tile.beta[t];
    }
  }

  // Blocks [first, last) of 32 columns of one head over the rows of one sequence.
  void run(int64_t sequence, int64_t head, int64_t first, int64_t last) {
    const int32_t *borders = a.cu_seqlens, *read = a.state_read, *write = a.state_write;
    const int64_t begin = borders[sequence], end = borders[sequence + 1];
    T* out = a.out;
    const int64_t left = first * kDeltaColumns, right = last * kDeltaColumns < a.value ? last * kDeltaColumns : a.value;
    if (write[sequence] < 0) {
      for (int64_t t = begin; t < end; ++t)
        std::memset(out + (t * a.heads + head) * a.value + left, 0, static_cast<size_t>(right - left) * sizeof(T));
      return;
    }
    float* states = a.state;
    const int64_t size = a.rows * a.value;
    if (const int32_t* drafts = a.drafts; drafts && (drafts[2 * sequence] > 0 || drafts[2 * sequence + 1] > 0))
      return run_with_drafts(sequence, head, first, last);
    const float* from = states + (read[sequence] * a.heads + head) * size;
    float* to = states + (write[sequence] * a.heads + head) * size;
    if (begin == end && from != to)
      for (int64_t i = 0; i < a.key; ++i)
        std::memcpy(to + i * a.value + left, from + i * a.value + left,
                    static_cast<size_t>(right - left) * sizeof(float));
    const T* values = rule.values(head);
    for (int64_t row = begin; row < end; row += kDeltaRows) {
      const int64_t rows = end - row < kDeltaRows ? end - row : kDeltaRows;
      rule.prepare(tile, head, row, rows);
      for (int64_t block = first; block < last; ++block) {
        const int64_t at = block * kDeltaColumns, n = a.value - at;
        const float* before = (row == begin ? from : to) + at;
        const T* value = values + row * rule.width + at;
        T* o = out + (row * a.heads + head) * a.value + at;
        n >= kDeltaColumns ? steps<true>(before, to + at, rows, value, o, kDeltaColumns)
                           : steps<false>(before, to + at, rows, value, o, n);
      }
    }
  }

  // A sequence that has drafts in this step, or whose drafts came true in the last one.
  void run_with_drafts(int64_t sequence, int64_t head, int64_t first, int64_t last) {
    const int32_t *borders = a.cu_seqlens, *read = a.state_read, *write = a.state_write, *drafts_of = a.drafts;
    const int64_t size = a.rows * a.value;
    float *states = a.state, *to = states + (write[sequence] * a.heads + head) * size;
    float* from = states + (read[sequence] * a.heads + head) * size;
    int64_t row = borders[sequence], before = drafts_of[2 * sequence];
    const int64_t end = borders[sequence + 1], drafts = drafts_of[2 * sequence + 1];
    while (row < end) {
      // All drafts are in one tile: the state in front of them is there, and no other.
      const int64_t left = end - drafts - row, own = left < kDeltaRows ? left : kDeltaRows;
      const int64_t rows = left + drafts <= kDeltaRows ? left + drafts : own > 0 ? own : drafts;
      rule.prepare(tile, head, row, rows);
      const StateChanges known(from, a), changes(to, a);
      if (first == 0 && rows > own) note(changes, own, rows);
      for (int64_t block = first; block < last; ++block) {
        const int64_t at = block * kDeltaColumns, n = a.value - at;
        const T* value = rule.values(head) + row * rule.width + at;
        T* o = static_cast<T*>(a.out) + (row * a.heads + head) * a.value + at;
        n >= kDeltaColumns
            ? steps_with_drafts<true>(from, known, before, to, changes, own, rows, value, o, at, kDeltaColumns)
            : steps_with_drafts<false>(from, known, before, to, changes, own, rows, value, o, at, n);
      }
      row += rows;
      from = to;
      before = 0;
    }
  }

  const Args& a;
  Rule rule;
  StateTile tile;
  float* kept;  // columns of a state
  // A step of one row reads a state from one slot and writes it to another, whose old lines nobody needs: stores past
  // the caches save reading them. Few states may be in a cache when the next step comes.
  bool streams;
  static constexpr int64_t kStreamedStates = int64_t{4} << 20, kLine = 64;
};

template <typename E, typename Rule>
void work_on_states(const typename Rule::Args& a, const Launch& l) {
  const FadeToZero fade;
  StateHead<E, Rule> work(a, l);
  const int64_t sequences = l.size(a.sequences), blocks = (a.value + kDeltaColumns - 1) / kDeltaColumns;
  const Range mine = l.share(sequences * a.heads * blocks);
  for (int64_t i = mine.begin; i < mine.end;) {
    const int64_t head = i / blocks, first = i % blocks;
    const int64_t last = blocks - first < mine.end - i ? blocks : first + (mine.end - i);
    work.run(head / a.heads, head % a.heads, first, last);
    i += last - first;
  }
  if (work.streams) stream_end();
  const int32_t* borders = a.cu_seqlens;
  typename E::Type* out = a.out;
  const int64_t used = borders[sequences], row = a.heads * a.value;
  const Range rest = l.share(l.size(a.tokens) - used);
  std::memset(out + (used + rest.begin) * row, 0, static_cast<size_t>((rest.end - rest.begin) * row) * sizeof(*out));
}

}  // namespace reprise::cpu::REPRISE_ISA
