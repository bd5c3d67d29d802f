// A convolution of each column over the rows of its sequence, and SiLU. The rows before a sequence's first one of the
// step are in its state. One chain of multiply-adds for each number, from the bias or 0, the oldest row first. Rows of
// drafts stay behind those of the state, which the next step reads from as many rows further on as came true.
//
// Columns are independent. A thread goes through a block of them at a time, and there through a few rows at a time, so
// that it reads and writes lines side by side: rows are so far apart that lines of one column evict each other.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int kMostTaps = 16, kUsualTaps = 4;
constexpr int64_t kConvColumns = 256;
constexpr int64_t kConvRows = 16;  // rows before those of such a part are of the part before it, or of the state
static_assert(kConvRows >= kMostTaps - 1);
// Registers across: what does not fit goes through memory.
#if defined(__AVX512F__)
constexpr int kConvAcross = 2;
#else
constexpr int kConvAcross = 1;
#endif

// The rows of a sequence, of which those from `own` on are drafts, and its two slots. A sequence that writes none has
// no `after`.
struct ConvRows {
  int64_t begin, own, end;
  const float* before;
  float* after;
};

// Sixty-four numbers in order, of which each fourth goes to the same vector: four perfect shuffles.
inline void part_by_four(F32x16 (&v)[4]) {
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step) {
    const F32x16 next[4] = {interleave_low(v[0], v[2]), interleave_high(v[0], v[2]), interleave_low(v[1], v[3]),
                            interleave_high(v[1], v[3])};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v[i] = next[i];
  }
}

// Weights [n, taps] become [taps, kConvColumns], with zeros behind n up to whole vectors.
template <typename E>
void turn_weights(const typename E::Type* weight, int64_t taps, int64_t n, float* out) {
  using T = typename E::Type;
  int64_t c = 0;
  if (taps == kUsualTaps)
    for (; c + 16 <= n; c += 16) {
      F32x16 v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) v[i] = E::load(weight + (c + 4 * i) * 4);
      part_by_four(v);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(out + i * kConvColumns + c, v[i]);
    }
  for (; c < n; c += 16)
    for (int64_t j = 0; j < taps; ++j) {
      T some[16] = {};
      for (int64_t i = 0; i < 16 && c + i < n; ++i) some[i] = weight[(c + i) * taps + j];
      store(out + j * kConvColumns + c, E::load(some));
    }
}

// Rows [first, last) of a sequence, of the columns in kAcross vectors from `at` on, or of n < 16 in one. kTaps: as
// many, or 0 where only the arguments say how many.
template <typename E, int kTaps, int kAcross, typename Args>
[[gnu::always_inline]] inline void conv_strip(const Args& a, const ConvRows& s, int64_t first, int64_t last,
                                              const float* weights, int64_t at, int64_t n) {
  using T = typename E::Type;
  constexpr int kMost = kTaps > 0 ? kTaps : kMostTaps;
  const int taps = kTaps > 0 ? kTaps : static_cast<int>(a.taps);
  const int64_t columns = a.columns;
  const T* x = a.x;
  T* out = a.out;
  F32x16 weight[kMost][kAcross], window[kMost][kAcross], bias[kAcross];  // the window: the last taps - 1 rows
#pragma GCC unroll 4
  for (int j = 0; j < taps; ++j)
#pragma GCC unroll 2
    for (int c = 0; c < kAcross; ++c) {
      const int64_t column = at + 16 * c, row = first - (taps - 1) + j;
      weight[j][c] = load(weights + j * kConvColumns + 16 * c);
      if (j + 1 == taps) continue;
      window[j][c] = row < s.begin ? load_n<F32>(s.before + (row - s.begin + taps - 1) * columns + column, n)
                                   : load_n<E>(x + row * columns + column, n);
    }
#pragma GCC unroll 2
  for (int c = 0; c < kAcross; ++c) {
    bias[c] = zero();
    if constexpr (requires { a.bias; }) bias[c] = load_n<E>(static_cast<const T*>(a.bias) + at + 16 * c, n);
  }
  const auto keep = [&] {
    if (!s.after) return;
    for (int j = 0; j + 1 < taps; ++j)
      for (int c = 0; c < kAcross; ++c) store_n<F32>(s.after + j * columns + at + 16 * c, window[j][c], n);
  };
  if (first == s.begin && s.begin == s.own) keep();
  for (int64_t t = first; t < last; ++t) {
    F32x16 row[kAcross], sum[kAcross];
#pragma GCC unroll 2
    for (int c = 0; c < kAcross; ++c) {
      row[c] = load_n<E>(x + t * columns + at + 16 * c, n);
      sum[c] = bias[c];
#pragma GCC unroll 4
      for (int j = 0; j + 1 < taps; ++j) {
        sum[c] = fma(weight[j][c], window[j][c], sum[c]);
        if (j > 0) window[j - 1][c] = window[j][c];
      }
      if (taps > 1) window[taps - 2][c] = row[c];
      sum[c] = silu(fma(weight[taps - 1][c], row[c], sum[c]));
    }
    if constexpr (kAcross == 2)
      E::store_two(out + t * columns + at, sum[0], sum[1]);
    else
      store_n<E>(out + t * columns + at, sum[0], n);
    if (t + 1 == s.own) keep();
    if (t >= s.own && s.after)
      for (int c = 0; c < kAcross; ++c)
        store_n<F32>(s.after + (taps - 1 + t - s.own) * columns + at + 16 * c, row[c], n);
  }
}

// Columns [at, at + n) of all sequences.
template <typename E, int kTaps, typename Args>
void conv_block(const Args& a, int64_t sequences, int64_t at, int64_t n) {
  using T = typename E::Type;
  constexpr int kMost = kTaps > 0 ? kTaps : kMostTaps;
  alignas(64) float weights[kMost * kConvColumns];
  turn_weights<E>(static_cast<const T*>(a.weight) + at * a.taps, a.taps, n, weights);
  float* states = a.state;
  const int32_t *borders = a.cu_seqlens, *read = a.state_read, *write = a.state_write;
  const int32_t* drafts = a.drafts;  // in the step before, and in this one
  const int64_t slot = (a.taps - 1 + a.most_drafts) * a.columns;
  for (int64_t r = 0; r < sequences; ++r) {
    const ConvRows s{borders[r], borders[r + 1] - (drafts ? drafts[2 * r + 1] : 0), borders[r + 1],
                     states + read[r] * slot + (drafts ? drafts[2 * r] : 0) * a.columns,
                     write[r] < 0 ? nullptr : states + write[r] * slot};
    // A sequence without rows has a state all the same.
    for (int64_t first = s.begin; first == s.begin || first < s.end; first += kConvRows) {
      const int64_t last = s.end - first < kConvRows ? s.end : first + kConvRows;
      int64_t c = 0;
      for (; c + 16 * kConvAcross <= n; c += 16 * kConvAcross)
        conv_strip<E, kTaps, kConvAcross>(a, s, first, last, weights + c, at + c, 16);
      for (; c < n; c += 16) conv_strip<E, kTaps, 1>(a, s, first, last, weights + c, at + c, n - c < 16 ? n - c : 16);
    }
  }
}

template <typename E, typename Args>
void causal_conv(const Args& a, const Launch& l) {
  const int64_t sequences = l.size(a.sequences);
  const Range mine = l.share(a.columns, 16);
  for (int64_t at = mine.begin; at < mine.end; at += kConvColumns) {
    const int64_t n = mine.end - at < kConvColumns ? mine.end - at : kConvColumns;
    if (a.taps == kUsualTaps)
      conv_block<E, kUsualTaps>(a, sequences, at, n);
    else
      conv_block<E, 0>(a, sequences, at, n);
  }
  const int32_t* borders = a.cu_seqlens;
  typename E::Type* out = a.out;
  const int64_t used = borders[sequences];
  const Range rest = l.share(l.size(a.tokens) - used);
  std::memset(out + (used + rest.begin) * a.columns, 0,
              static_cast<size_t>((rest.end - rest.begin) * a.columns) * sizeof(*out));
}

}  // namespace

REPRISE_KERNELS(causal_conv, causal_conv, CausalConvArgs)
REPRISE_KERNELS(causal_conv_biased, causal_conv, CausalConvBiasedArgs)

}  // namespace reprise::cpu::REPRISE_ISA
