// A convolution of each column over the rows of its sequence, and SiLU. The rows before a sequence's first one of the
// step are in its state. One chain of multiply-adds for each number, from the bias or 0, the oldest row first. Rows of
// drafts stay behind those of the state, which the next step reads from as many rows further on as came true.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elementwise.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kMostTaps = 16;

// Sixteen columns, or fewer, over all sequences.
template <typename E, typename Args>
void conv_columns(const Args& a, int64_t sequences, int64_t at, int64_t n) {
  using T = typename E::Type;
  const int64_t taps = a.taps, columns = a.columns;
  const T *x = a.x, *weight = a.weight;
  T* out = a.out;
  float* states = a.state;
  const int32_t *borders = a.cu_seqlens, *read = a.state_read, *write = a.state_write;
  const int32_t* drafts_of = a.drafts;  // in the step before, and in this one
  const int64_t slot = (taps - 1 + a.most_drafts) * columns;
  F32x16 weights[kMostTaps];
  for (int64_t j = 0; j < taps; ++j) {
    T some[16] = {};
    for (int64_t c = 0; c < n; ++c) some[c] = weight[(at + c) * taps + j];
    weights[j] = E::load(some);
  }
  F32x16 bias = zero();
  if constexpr (requires { a.bias; }) bias = load_n<E>(static_cast<const T*>(a.bias) + at, n);
  for (int64_t r = 0; r < sequences; ++r) {
    const float* before = states + read[r] * slot + (drafts_of ? drafts_of[2 * r] : 0) * columns + at;
    float* after = write[r] < 0 ? nullptr : states + write[r] * slot + at;
    const int64_t drafts = drafts_of ? drafts_of[2 * r + 1] : 0, own = borders[r + 1] - drafts;
    F32x16 window[kMostTaps];  // the last taps - 1 rows
    for (int64_t j = 0; j + 1 < taps; ++j) window[j] = load_n<F32>(before + j * columns, n);
    const auto keep = [&] {
      if (!after) return;
      for (int64_t j = 0; j + 1 < taps; ++j) store_n<F32>(after + j * columns, window[j], n);
    };
    if (borders[r] == own) keep();
    for (int64_t t = borders[r]; t < borders[r + 1]; ++t) {
      const F32x16 row = load_n<E>(x + t * columns + at, n);
      F32x16 sum = bias;
      for (int64_t j = 0; j + 1 < taps; ++j) {
        sum = fma(weights[j], window[j], sum);
        if (j > 0) window[j - 1] = window[j];
      }
      if (taps > 1) window[taps - 2] = row;
      store_n<E>(out + t * columns + at, silu(fma(weights[taps - 1], row, sum)), n);
      if (t + 1 == own) keep();
      if (t >= own && after) store_n<F32>(after + (taps - 1 + t - own) * columns, row, n);
    }
  }
}

template <typename E, typename Args>
void causal_conv(const Args& a, const Launch& l) {
  const int64_t sequences = l.size(a.sequences);
  const Range mine = l.share(a.columns, 16);
  for (int64_t at = mine.begin; at < mine.end; at += 16)
    conv_columns<E>(a, sequences, at, mine.end - at < 16 ? mine.end - at : 16);
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
