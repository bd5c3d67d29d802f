// Layers with a state for each sequence: the convolution of columns over rows, and the gated delta rule. Both make the
// CPU's sums in its order, row after row, so the bits are the CPU's (but that it has zeros for subnormal numbers of a
// delta state), and do not depend on how a prompt is cut or on who else is in the step.
//
// States go from slot state_read[r] to slot state_write[r], which may be the same: who writes a number of a state is
// who has read it. Grids come from sizes of the capture; what they do, from the borders of the sequences.
//
// With drafts (ops/args/recurrent.h) the two slots differ, and what is written of either has one writer all the same.
#pragma once

#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/recurrent_sizes.h"
#include "ops/args/recurrent.h"

namespace reprise::cuda {

// Which rows are a sequence's, and its states.
struct StateStep {
  const int32_t* borders;
  const int32_t* read;
  const int32_t* write;
  const int32_t* drafts;  // null: none ever
  int64_t sequences, tokens;

  // Drafts of the step before that came true, and the rows of this step that are drafts, a sequence's last ones.
  DEV int64_t taken(int64_t r) const { return drafts ? drafts[2 * r] : 0; }
  DEV int64_t guessed(int64_t r) const { return drafts ? drafts[2 * r + 1] : 0; }
};

// A thread has a column of kConvRows rows of one sequence. Blocks behind those of the tiles, one a sequence, move the
// states of sequences without rows.
template <class E>
struct CausalConv {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  float* states;
  const typename E::Type* x;
  const typename E::Type* weight;
  typename E::Type* out;
  StateStep step;
  int64_t columns, taps, most_drafts;

  DEV Groups tiles() const { return {step.borders, step.sequences, step.tokens}; }
  DEV float* state_at(int64_t slot, int64_t row, int64_t column) const {
    return states + (slot * (taps - 1 + most_drafts) + row) * columns + column;
  }
  // Row t of a sequence that begins at row `begin`, which may lie before it: there `taken` drafts are its last rows.
  DEV float row_at(int64_t t, int64_t begin, int64_t slot, int64_t taken, int64_t column) const {
    if (t >= begin) return E::load(x[t * columns + column]);
    return *state_at(slot, taken + taps - 1 + t - begin, column);
  }

  // The last rows in front of the drafts of a sequence [begin, end), and those; what was before it where it is short.
  DEV void keep(int64_t sequence, int64_t begin, int64_t end, int64_t column) const {
    const int64_t from = step.read[sequence], to = step.write[sequence], taken = step.taken(sequence);
    if (to < 0 || (begin == end && from == to && taken == 0)) return;
    const int64_t own = end - step.guessed(sequence);
    for (int64_t i = 0; i + 1 < taps; ++i)
      *state_at(to, i, column) = row_at(own - (taps - 1) + i, begin, from, taken, column);
    for (int64_t t = own; t < end; ++t) *state_at(to, taps - 1 + t - own, column) = E::load(x[t * columns + column]);
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t column = static_cast<int64_t>(lane.block()) * kThreads + lane.thread();
    const int64_t most = tiles().most_tiles(kConvRows);
    if (lane.block_y() >= most) {
      const int64_t r = lane.block_y() - most, begin = step.borders[r];
      if (column < columns && begin == step.borders[r + 1]) keep(r, begin, begin, column);
      return;
    }
    const TileOfGroup of = tiles().tile(lane, kConvRows, lane.block_y());
    if (of.first >= of.last || column >= columns) return;
    const int64_t last = smaller<int64_t>(of.last, of.first + kConvRows);
    if (of.group >= step.sequences) {
      for (int64_t t = of.first; t < last; ++t) out[t * columns + column] = E::store(0.0f);
      return;
    }
    const int64_t begin = step.borders[of.group], slot = step.read[of.group], taken = step.taken(of.group);
    const typename E::Type* weights = weight + column * taps;
    for (int64_t t = of.first; t < last; ++t) {
      float sum = 0;
      for (int64_t j = 0; j < taps; ++j)
        sum = fma(E::load(weights[j]), row_at(t - (taps - 1) + j, begin, slot, taken, column), sum);
      out[t * columns + column] = E::store(silu_of(sum));
    }
    // No other tile of the sequence reads its state.
    if (of.first == begin) keep(of.group, begin, step.borders[of.group + 1], column);
  }
};
static_assert(kConvRows >= kMostTaps - 1);

// Sizes of the gated delta rule.
struct DeltaSizes {
  int64_t heads, key_heads, key, value;
  int64_t rows, most_drafts;  // of `value` numbers that a head has in a slot
  HOST_DEV int64_t width() const { return 2 * key_heads * key + heads * value; }
  HOST_DEV int64_t tiles() const { return (value + kDeltaColumns - 1) / kDeltaColumns; }
};

// What the drafts of a step would change of one head's state, as a slot has it behind the state.
struct DeltaChanges {
  float *values, *keys, *decay, *beta;
  DEV DeltaChanges(float* head, const DeltaSizes& z)
      : values(head + z.key * z.value),
        keys(values + z.most_drafts * z.value),
        decay(keys + z.most_drafts * z.key),
        beta(decay + z.most_drafts) {}
};

// A block has some columns of one head's state of one sequence. A column is two threads', sixteen lanes apart: one
// keeps numbers 0, 2, ... of it in registers, the other 1, 3, ..., and numbers behind the key's size are zeros. So each
// makes one of the two chains that a sum over the key is, and then the two are added. Keys, queries and gates of some
// rows at a time are made in shared memory; lengths as in the CPU's norms, sixteen partial sums folded by 8, 4, 2, 1.
// The last blocks clear rows of no sequence.
//
// The state that a slot keeps is that in front of the drafts. What these would change of it follows: each block has the
// values of its columns, and the first of a head's blocks the keys and gates.
template <class E, int kKey>
struct GatedDelta {
  static constexpr int kThreads = 2 * kDeltaColumns, kBlocks = 1;
  static constexpr int kRows = 16;
  static constexpr int kHalf = kKey / 2;
  static constexpr int kOdd = kHalf + 4;  // where a key's odd numbers begin: in other banks than the even ones
  static constexpr int kPitch = kOdd + kHalf;
  static constexpr size_t kSharedBytes =
      (size_t{2} * kRows * kPitch + kRows * kDeltaColumns + 2 * kRows) * sizeof(float);
  using T = typename E::Type;
  float* states;
  const T* qkv;
  const T* b;
  const T* a;
  const float* a_log;
  const float* dt_bias;
  T* out;
  StateStep step;
  DeltaSizes z;

  struct Shared {
    float *q, *k, *values, *decay, *beta;
    explicit DEV Shared(char* p) {
      q = reinterpret_cast<float*>(p);
      k = q + kRows * kPitch;
      values = k + kRows * kPitch;
      decay = values + kRows * kDeltaColumns;
      beta = decay + kRows;
    }
  };

  // Sixteen lanes a key or query: those of one row are neighbours, so that whole warps take part.
  template <class L>
  DEV void prepare(L& lane, const Shared& s, int64_t head, int64_t first_column, int64_t row, int rows) const {
    const int me = lane.thread() % 16;
    const int64_t key_head = head / (z.heads / z.key_heads);
    const float by = divide(1.0f, root(static_cast<float>(z.key)));
    for (int u = lane.thread() / 16; u < rows * 2; u += kThreads / 16) {
      const bool is_key = u % 2 == 1;
      const T* x = qkv + (row + u / 2) * z.width() + (key_head + (is_key ? z.key_heads : 0)) * z.key;
      float sum = 0;
      for (int64_t i = me; i < z.key; i += 16) {
        const float v = E::load(x[i]);
        sum = fma(v, v, sum);
      }
      UNROLL
      for (int mask = 8; mask > 0; mask >>= 1) sum = sum + lane.shuffle_xor(sum, mask);
      const float factor = divide(1.0f, root(sum + 1e-6f));
      float* to = (is_key ? s.k : s.q) + u / 2 * kPitch;
      for (int i = me; i < kKey; i += 16)
        to[i % 2 * kOdd + i / 2] = i < z.key ? E::load(x[i]) * factor * (is_key ? 1.0f : by) : 0.0f;
    }
    const T* values = qkv + 2 * z.key_heads * z.key + head * z.value;
    for (int i = lane.thread(); i < rows * kDeltaColumns; i += kThreads) {
      const int64_t column = first_column + i % kDeltaColumns;
      s.values[i] = column < z.value ? E::load(values[(row + i / kDeltaColumns) * z.width() + column]) : 0.0f;
    }
    if (lane.thread() < rows) {
      const int64_t at = (row + lane.thread()) * z.heads + head;
      const float time = softplus_of(E::load(a[at]) + dt_bias[head]);
      s.decay[lane.thread()] = exp_bounded(-(exp_of(a_log[head]) * time));
      s.beta[lane.thread()] = SigmoidOf::apply(E::load(b[at]));
    }
  }

  // As prepare(), of `rows` changes from `first` on that a slot has.
  template <class L>
  DEV void recall(L& lane, const Shared& s, const DeltaChanges& known, int64_t first_column, int64_t first,
                  int rows) const {
    for (int i = lane.thread(); i < rows * kKey; i += kThreads) {
      const int t = i / kKey, n = i % kKey;
      s.k[t * kPitch + n % 2 * kOdd + n / 2] = n < z.key ? known.keys[(first + t) * z.key + n] : 0.0f;
    }
    for (int i = lane.thread(); i < rows * kDeltaColumns; i += kThreads) {
      const int64_t column = first_column + i % kDeltaColumns;
      s.values[i] = column < z.value ? known.values[(first + i / kDeltaColumns) * z.value + column] : 0.0f;
    }
    if (lane.thread() < rows) {
      s.decay[lane.thread()] = known.decay[first + lane.thread()];
      s.beta[lane.thread()] = known.beta[first + lane.thread()];
    }
  }

  // Rows [from, rows) of those that prepare() made, from change `first` on.
  template <class L>
  DEV void note(L& lane, const Shared& s, const DeltaChanges& changes, int64_t first_column, int64_t first, int from,
                int rows) const {
    const int count = rows - from;
    for (int i = lane.thread(); i < count * kDeltaColumns; i += kThreads) {
      const int64_t column = first_column + i % kDeltaColumns, t = i / kDeltaColumns;
      if (column < z.value) changes.values[(first + t) * z.value + column] = s.values[from * kDeltaColumns + i];
    }
    if (first_column > 0) return;
    for (int i = lane.thread(); i < count * kKey; i += kThreads) {
      const int t = i / kKey, n = i % kKey;
      if (n < z.key) changes.keys[(first + t) * z.key + n] = s.k[(from + t) * kPitch + n % 2 * kOdd + n / 2];
    }
    if (lane.thread() < count) {
      changes.decay[first + lane.thread()] = s.decay[from + lane.thread()];
      changes.beta[first + lane.thread()] = s.beta[from + lane.thread()];
    }
  }

  // One row of the rule, of this lane's half of q and k; the column's output.
  template <class L>
  DEV static float renew(L& lane, float (&state)[kHalf], const float* q, const float* k, float value, float decay,
                         float beta) {
    float known = 0, o = 0;
    UNROLL
    for (int i = 0; i < kHalf; i += 4) {
      const Sixteen four = *reinterpret_cast<const Sixteen*>(k + i);
      UNROLL
      for (int j = 0; j < 4; ++j) known = fma(state[i + j], float_of(four.word[j]), known);
    }
    known = known + lane.shuffle_xor(known, 16);
    const float u = (value - known * decay) * beta;
    UNROLL
    for (int i = 0; i < kHalf; i += 4) {
      const Sixteen keys = *reinterpret_cast<const Sixteen*>(k + i), queries = *reinterpret_cast<const Sixteen*>(q + i);
      UNROLL
      for (int j = 0; j < 4; ++j) {
        state[i + j] = fma(float_of(keys.word[j]), u, state[i + j] * decay);
        o = fma(state[i + j], float_of(queries.word[j]), o);
      }
    }
    return o + lane.shuffle_xor(o, 16);
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t tile = lane.block() % z.tiles(), head = lane.block() / z.tiles() % z.heads;
    const int64_t r = lane.block() / z.tiles() / z.heads;
    const int place = lane.thread() / 32 * 16 + lane.thread() % 16, odd = lane.thread() / 16 % 2;
    const int64_t column = tile * kDeltaColumns + place;
    const bool exists = column < z.value;
    const int64_t begin = step.borders[r], end = r == step.sequences ? step.tokens : step.borders[r + 1];
    T* to_row = out + head * z.value + column;
    if (r == step.sequences || step.write[r] < 0) {
      for (int64_t t = begin + odd; t < end && exists; t += 2) to_row[t * z.heads * z.value] = E::store(0.0f);
      return;
    }
    const int64_t size = z.rows * z.value, taken = step.taken(r), own = end - step.guessed(r);
    float* slot = states + (step.read[r] * z.heads + head) * size;
    const float* from = slot + odd * z.value + column;
    float* next = states + (step.write[r] * z.heads + head) * size;
    float* to = next + odd * z.value + column;
    const int here = exists ? static_cast<int>(z.key + 1 - odd) / 2 : 0;  // numbers of this lane
    float state[kHalf];
    UNROLL
    for (int i = 0; i < kHalf; ++i) state[i] = i < here ? from[2 * i * z.value] : 0.0f;
    const auto leave = [&] {
      UNROLL
      for (int i = 0; i < kHalf; ++i)
        if (i < here) to[2 * i * z.value] = state[i];
    };
    const Shared s(lane.shared());
    for (int64_t first = 0; first < taken; first += kRows) {
      const int rows = static_cast<int>(smaller<int64_t>(kRows, taken - first));
      recall(lane, s, DeltaChanges(slot, z), tile * kDeltaColumns, first, rows);
      lane.sync();
      KEEP_LOOP
      for (int t = 0; t < rows; ++t) {
        const float* k = s.k + t * kPitch + odd * kOdd;
        (void)renew(lane, state, k, k, s.values[t * kDeltaColumns + place], s.decay[t], s.beta[t]);
      }
      lane.sync();
    }
    for (int64_t row = begin; row < end; row += kRows) {
      const int rows = static_cast<int>(smaller<int64_t>(kRows, end - row));
      prepare(lane, s, head, tile * kDeltaColumns, row, rows);
      lane.sync();
      if (row + rows > own) {
        const int first = static_cast<int>(own > row ? own - row : 0);
        note(lane, s, DeltaChanges(next, z), tile * kDeltaColumns, row + first - own, first, rows);
      }
      KEEP_LOOP
      for (int t = 0; t < rows; ++t) {
        if (row + t == own) leave();
        const float o = renew(lane, state, s.q + t * kPitch + odd * kOdd, s.k + t * kPitch + odd * kOdd,
                              s.values[t * kDeltaColumns + place], s.decay[t], s.beta[t]);
        if (exists && odd == 0) to_row[(row + t) * z.heads * z.value] = E::store(o);
      }
      lane.sync();
    }
    if (own == end) leave();
  }
};

template <class A, class L>
StateStep state_step(const A& a, const L& launch) {
  return {a.cu_seqlens, a.state_read, a.state_write, a.drafts, launch.size(a.sequences), launch.size(a.tokens)};
}

template <class E, class L>
void run_causal_conv(const CausalConvArgs& a, L& launch) {
  const CausalConv<E> k{a.state, a.x, a.weight, a.out, state_step(a, launch), a.columns, a.taps, a.most_drafts};
  const Groups tiles{a.cu_seqlens, k.step.sequences, k.step.tokens};
  launch.run(blocks_for(a.columns, k.kThreads), k.kThreads, sizeof(TileOfGroup), k,
             tiles.most_tiles(kConvRows) + k.step.sequences);
}

template <class E, int kKey, class L>
void launch_delta(const GatedDeltaArgs& a, L& launch) {
  using K = GatedDelta<E, kKey>;
  const DeltaSizes z{a.heads, a.key_heads, a.key, a.value, a.rows, a.most_drafts};
  const StateStep step = state_step(a, launch);
  launch.run((step.sequences + 1) * z.heads * z.tiles(), K::kThreads, K::kSharedBytes,
             K{a.state, a.qkv, a.b, a.a, a.a_log, a.dt_bias, a.out, step, z});
}

template <class E, class L>
void run_gated_delta(const GatedDeltaArgs& a, L& launch) {
  if (a.key <= 32)
    launch_delta<E, 32>(a, launch);
  else
    launch_delta<E, kMostDeltaKey>(a, launch);
}

template <class L>
void fill_recurrent_of(KernelTable& table) {
  table.causal_conv = REPRISE_CUDA_PER_TYPE(run_causal_conv, L);
  table.gated_delta = REPRISE_CUDA_PER_TYPE(run_gated_delta, L);
}

}  // namespace reprise::cuda
