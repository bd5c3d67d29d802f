// Layers with a state for each sequence: the convolution of columns over rows, the gated delta rule, the state-space
// step of Mamba-2, and the norm behind that. All make the CPU's sums in its order, row after row, so the bits are the
// CPU's (but that it has zeros for subnormal numbers of a state), and do not depend on how a prompt is cut or on who
// else is in the step.
//
// States go from slot state_read[r] to slot state_write[r], which may be the same: who writes a number of a state is
// who has read it. Grids come from sizes of the capture; what they do, from the borders of the sequences.
//
// With drafts (ops/args/recurrent.h) the two slots differ, and what is written of either has one writer all the same.
#pragma once

#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/norm.h"
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
  const typename E::Type* bias;  // null: none
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
    const float none = bias ? E::load(bias[column]) : 0.0f;
    for (int64_t t = of.first; t < last; ++t) {
      float sum = none;
      for (int64_t j = 0; j < taps; ++j)
        sum = fma(E::load(weights[j]), row_at(t - (taps - 1) + j, begin, slot, taken, column), sum);
      out[t * columns + column] = E::store(silu_of(sum));
    }
    // No other tile of the sequence reads its state.
    if (of.first == begin) keep(of.group, begin, step.borders[of.group + 1], column);
  }
};
static_assert(kConvRows >= kMostTaps - 1);

// Sizes of a rule's step; of state_space key_heads are the groups.
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

// What each number of a row's key or query is multiplied with, one after the other.
struct Factors {
  float first, second;
};
// How much of the state stays at a row, and how much of the row's value is taken in.
struct Gates {
  float decay, beta;
};

// The gated delta rule: what is taken in is what a value differs by from that which its key finds in the state.
template <class E>
struct DeltaRule {
  static constexpr bool kFinds = true;
  using T = typename E::Type;
  const T* qkv;
  const T* b;
  const T* a;
  const float* a_log;
  const float* dt_bias;

  DEV const T* values(const DeltaSizes& z, int64_t row, int64_t head) const {
    return qkv + row * z.width() + 2 * z.key_heads * z.key + head * z.value;
  }
  DEV const T* vector(const DeltaSizes& z, int64_t row, int64_t key_head, bool is_key) const {
    return qkv + row * z.width() + (key_head + (is_key ? z.key_heads : 0)) * z.key;
  }
  // Sixteen lanes work on one row: each sums its part of the squares.
  template <class L>
  DEV Factors factors(L& lane, const DeltaSizes& z, const T* x, bool is_key) const {
    float sum = 0;
    for (int64_t i = lane.thread() % 16; i < z.key; i += 16) {
      const float v = E::load(x[i]);
      sum = fma(v, v, sum);
    }
    UNROLL
    for (int mask = 8; mask > 0; mask >>= 1) sum = sum + lane.shuffle_xor(sum, mask);
    return {divide(1.0f, root(sum + 1e-6f)), is_key ? 1.0f : divide(1.0f, root(static_cast<float>(z.key)))};
  }
  DEV Gates gates(const DeltaSizes& z, int64_t row, int64_t head) const {
    const int64_t at = row * z.heads + head;
    const float time = softplus_of(E::load(a[at]) + dt_bias[head]);
    return {exp_bounded(-(exp_of(a_log[head]) * time)), SigmoidOf::apply(E::load(b[at]))};
  }
  DEV float skip(int64_t) const { return 0.0f; }
};

// The state-space step: keys are B, queries are C, values are x.
template <class E>
struct SpaceRule {
  static constexpr bool kFinds = false;
  using T = typename E::Type;
  const T* xbc;
  const T* dt;
  const float* a_log;
  const float* dt_bias;
  const float* d;
  float least_step, most_step;  // 0: no limit

  DEV const T* values(const DeltaSizes& z, int64_t row, int64_t head) const {
    return xbc + row * z.width() + head * z.value;
  }
  DEV const T* vector(const DeltaSizes& z, int64_t row, int64_t group, bool is_key) const {
    return xbc + row * z.width() + z.heads * z.value + (group + (is_key ? 0 : z.key_heads)) * z.key;
  }
  template <class L>
  DEV Factors factors(L&, const DeltaSizes&, const T*, bool) const {
    return {1.0f, 1.0f};
  }
  DEV Gates gates(const DeltaSizes& z, int64_t row, int64_t head) const {
    float time = softplus_of(E::load(dt[row * z.heads + head]) + dt_bias[head]);
    if (least_step > time) time = least_step;
    if (most_step > 0 && time > most_step) time = most_step;
    return {exp_bounded(-(exp_of(a_log[head]) * time)), time};
  }
  DEV float skip(int64_t head) const { return d[head]; }
};

// A block has some columns of one head's state of one sequence. A column is two threads', sixteen lanes apart: one
// keeps numbers 0, 2, ... of it in registers, the other 1, 3, ..., and numbers behind the key's size are zeros. So each
// makes one of the two chains that a sum over the key is, and then the two are added. Keys, queries and gates of some
// rows at a time are made in shared memory; lengths as in the CPU's norms, sixteen partial sums folded by 8, 4, 2, 1.
// The last blocks clear rows of no sequence.
//
// The state that a slot keeps is that in front of the drafts. What these would change of it follows: each block has the
// values of its columns, and the first of a head's blocks the keys and gates.
template <class E, int kKey, class Rule>
struct StateHead {
  static constexpr int kThreads = 2 * kDeltaColumns, kBlocks = 1;
  static constexpr int kRows = 16;
  static constexpr int kHalf = kKey / 2;
  static constexpr int kOdd = kHalf + 4;  // where a key's odd numbers begin: in other banks than the even ones
  static constexpr int kPitch = kOdd + kHalf;
  static constexpr size_t kSharedBytes =
      (size_t{2} * kRows * kPitch + kRows * kDeltaColumns + 2 * kRows) * sizeof(float);
  using T = typename E::Type;
  float* states;
  Rule rule;
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
    for (int u = lane.thread() / 16; u < rows * 2; u += kThreads / 16) {
      const bool is_key = u % 2 == 1;
      const T* x = rule.vector(z, row + u / 2, key_head, is_key);
      const Factors by = rule.factors(lane, z, x, is_key);
      float* to = (is_key ? s.k : s.q) + u / 2 * kPitch;
      for (int i = me; i < kKey; i += 16)
        to[i % 2 * kOdd + i / 2] = i < z.key ? E::load(x[i]) * by.first * by.second : 0.0f;
    }
    const T* values = rule.values(z, row, head);
    for (int i = lane.thread(); i < rows * kDeltaColumns; i += kThreads) {
      const int64_t column = first_column + i % kDeltaColumns;
      s.values[i] = column < z.value ? E::load(values[i / kDeltaColumns * z.width() + column]) : 0.0f;
    }
    if (lane.thread() < rows) {
      const Gates gates = rule.gates(z, row + lane.thread(), head);
      s.decay[lane.thread()] = gates.decay;
      s.beta[lane.thread()] = gates.beta;
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
    float taken = value, o = 0;
    if constexpr (Rule::kFinds) {
      float known = 0;
      UNROLL
      for (int i = 0; i < kHalf; i += 4) {
        const Sixteen four = *reinterpret_cast<const Sixteen*>(k + i);
        UNROLL
        for (int j = 0; j < 4; ++j) known = fma(state[i + j], float_of(four.word[j]), known);
      }
      known = known + lane.shuffle_xor(known, 16);
      taken = value - known * decay;
    }
    const float u = taken * beta;
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
    const int here = exists ? static_cast<int>(z.key + 1 - odd) / 2 : 0;  // numbers of this lane
    float state[kHalf];
    UNROLL
    for (int i = 0; i < kHalf; ++i) state[i] = i < here ? from[2 * i * z.value] : 0.0f;
    const auto leave = [&] {
      const int64_t stride = read_here(2 * z.value);
      float* to = next + odd * z.value + column;
      UNROLL
      for (int i = 0; i < kHalf; ++i)
        if (i < here) to[i * stride] = state[i];
    };
    const Shared s(lane.shared());
    const float skip = rule.skip(head);
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
        float o = renew(lane, state, s.q + t * kPitch + odd * kOdd, s.k + t * kPitch + odd * kOdd,
                        s.values[t * kDeltaColumns + place], s.decay[t], s.beta[t]);
        if constexpr (!Rule::kFinds) o = fma(s.values[t * kDeltaColumns + place], skip, o);
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

template <class E, class A, class L>
void launch_conv(const A& a, const void* bias, L& launch) {
  const CausalConv<E> k{
      a.state,   a.x,    a.weight,     static_cast<const typename E::Type*>(bias), a.out, state_step(a, launch),
      a.columns, a.taps, a.most_drafts};
  const Groups tiles{a.cu_seqlens, k.step.sequences, k.step.tokens};
  launch.run(blocks_for(a.columns, k.kThreads), k.kThreads, sizeof(TileOfGroup), k,
             tiles.most_tiles(kConvRows) + k.step.sequences);
}

template <class E, class L>
void run_causal_conv(const CausalConvArgs& a, L& launch) {
  launch_conv<E>(a, nullptr, launch);
}
template <class E, class L>
void run_causal_conv_biased(const CausalConvBiasedArgs& a, L& launch) {
  launch_conv<E>(a, a.bias.data, launch);
}

template <class E, int kKey, class Rule, class A, class L>
void launch_states(const A& a, const Rule& rule, const DeltaSizes& z, L& launch) {
  using K = StateHead<E, kKey, Rule>;
  const StateStep step = state_step(a, launch);
  launch.run((step.sequences + 1) * z.heads * z.tiles(), K::kThreads, K::kSharedBytes,
             K{a.state, rule, a.out, step, z});
}

template <class E, class Rule, class A, class L>
void run_states(const A& a, const Rule& rule, int64_t key_heads, L& launch) {
  const DeltaSizes z{a.heads, key_heads, a.key, a.value, a.rows, a.most_drafts};
  if (a.key <= 32)
    launch_states<E, 32>(a, rule, z, launch);
  else
    launch_states<E, kMostDeltaKey>(a, rule, z, launch);
}

template <class E, class L>
void run_gated_delta(const GatedDeltaArgs& a, L& launch) {
  run_states<E>(a, DeltaRule<E>{a.qkv, a.b, a.a, a.a_log, a.dt_bias}, a.key_heads, launch);
}
template <class E, class L>
void run_state_space(const StateSpaceArgs& a, L& launch) {
  const auto least = static_cast<float>(a.least_step), most = static_cast<float>(a.most_step);
  run_states<E>(a, SpaceRule<E>{a.xbc, a.dt, a.a_log, a.dt_bias, a.d, least, most}, a.groups, launch);
}

// Sixteen lanes a group of a row, each with one of the sixteen partial sums; the products are made anew for the second
// pass.
template <class E>
struct GatedNorm {
  static constexpr int kThreads = 128, kBlocks = 1;
  using T = typename E::Type;
  const T* x;
  const T* gate;
  const T* weight;
  T* out;
  int64_t parts, groups, n;
  float eps;

  DEV float number(int64_t at) const { return E::load(x[at]) * silu_of(E::load(gate[at])); }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t part = static_cast<int64_t>(lane.block()) * (kThreads / 16) + lane.thread() / 16;
    const bool exists = part < parts;
    const int me = lane.thread() % 16;
    const int64_t from = (exists ? part : 0) * n;
    float squares = 0;
    for (int64_t i = me; i < n; i += 16) {
      const float v = number(from + i);
      squares = fma(v, v, squares);
    }
    UNROLL
    for (int mask = 8; mask > 0; mask >>= 1) squares = squares + lane.shuffle_xor(squares, mask);
    const float factor = rms_factor(squares, n, eps);
    const T* weights = weight + part % groups * n;
    for (int64_t i = me; i < n && exists; i += 16)
      out[from + i] = E::store(number(from + i) * factor * E::load(weights[i]));
  }
};

template <class E, class L>
void run_rms_norm_gated(const GatedNormArgs& a, L& launch) {
  using K = GatedNorm<E>;
  const int64_t parts = launch.size(a.rows) * a.groups;
  launch.run(blocks_for(parts, K::kThreads / 16), K::kThreads, 0,
             K{a.x, a.gate, a.weight, a.out, parts, a.groups, a.width / a.groups, static_cast<float>(a.eps)});
}

template <class L>
void fill_recurrent_of(KernelTable& table) {
  table.causal_conv = REPRISE_CUDA_PER_TYPE(run_causal_conv, L);
  table.causal_conv_biased = REPRISE_CUDA_PER_TYPE(run_causal_conv_biased, L);
  table.gated_delta = REPRISE_CUDA_PER_TYPE(run_gated_delta, L);
  table.state_space = REPRISE_CUDA_PER_TYPE(run_state_space, L);
  table.rms_norm_gated = REPRISE_CUDA_PER_TYPE(run_rms_norm_gated, L);
}

}  // namespace reprise::cuda
