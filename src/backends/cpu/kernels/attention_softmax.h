// What attention does with the scores of a page, row by row: weights from scores, the merging of pages, the result.
// attention_tile.h says what is computed.
#pragma once

#include "backends/cpu/kernels/attention_panel.h"
#include "backends/cpu/kernels/curves.h"
#include "backends/cpu/kernels/exp.h"

namespace reprise::cpu::REPRISE_ISA {

// Maximum, sum and outputs of some rows, for one page or for all pages so far. A row that has seen no key has l = 0.
struct Partial {
  float* m;
  float* l;
  float* o;  // [rows][size]
};

// Merges one page into the state of `rows` rows. Rows go sixteen at a time, because the factors of one row alone would
// cost as much as those of sixteen.
inline void merge_rows(const Partial& state, const Partial& page, int64_t rows, int64_t size) {
  for (int64_t first = 0; first < rows; first += 16) {
    const int64_t count = rows - first < 16 ? rows - first : 16;
    const F32x16 old_m = load_n<F32>(state.m + first, count), m = load_n<F32>(page.m + first, count);
    const F32x16 top = select(greater(m, old_m), m, old_m);
    const F32x16 old_l = load_n<F32>(state.l + first, count), l = load_n<F32>(page.l + first, count);
    float old_factor[16], new_factor[16], tops[16], sums[16];
    const F32x16 old_factors = exp(old_m - top), new_factors = exp(m - top);
    store(old_factor, old_factors);
    store(new_factor, new_factors);
    store(tops, top);
    store(sums, fma(l, new_factors, old_l * old_factors));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t r = first + i;
      if (page.l[r] == 0.0f) continue;
      float* to = state.o + r * size;
      const float* o = page.o + r * size;
      if (state.l[r] == 0.0f) {
        state.m[r] = page.m[r];
        state.l[r] = page.l[r];
        // Adding zero makes +0 of -0: the sign of a vanished sum depends on how many hidden keys were multiplied by
        // zero.
        for (int64_t d = 0; d < size; d += 16) store_n<F32>(to + d, load_n<F32>(o + d, size - d) + 0.0f, size - d);
        continue;
      }
      state.m[r] = tops[i];
      state.l[r] = sums[i];
      const F32x16 old_weight = splat(old_factor[i]), weight = splat(new_factor[i]);
      for (int64_t d = 0; d < size; d += 16) {
        const F32x16 next = load_n<F32>(o + d, size - d) + 0.0f;
        store_n<F32>(to + d, fma(next, weight, load_n<F32>(to + d, size - d) * old_weight), size - d);
      }
    }
  }
}

// What the sums of a row are multiplied with to be its outputs, where its weights add up to l; 0 where it has seen no
// key.
inline float share_of(float l) { return l == 0.0f ? 0.0f : 1.0f / l; }
// The same where a sink takes part: beside the weights exp(s - m) there is exp(sink - m). Both are taken relative to
// the larger of m and the sink, so that none overflows.
inline float share_beside_sink(float m, float l, float sink) {
  const float top = sink > m ? sink : m;
  const float beside[16] = {m - top, sink - top};
  const F32x16 weights = exp(load(beside));
  return weights[0] / (l * weights[0] + weights[1]);
}

template <typename E>
inline void finish_row(float share, const float* o, typename E::Type* out, int64_t size) {
  if (share == 0.0f) return store_each<E>(out, size, [](int64_t, int64_t) { return zero(); });
  // Adding zero makes +0 of -0, as merging does.
  const F32x16 factor = splat(share);
  store_each<E>(out, size, [&](int64_t d, int64_t rest) { return (load_n<F32>(o + d, rest) + 0.0f) * factor; });
}

#if defined(__AVX512BF16__)
// Sixteen bf16 as floats, those of a pair swapped: one instruction, because the weights take as many as the
// exponentials.
inline F32x16 swapped_floats(__m256i v) {
  const __m512i from = _mm512_set_epi8(29, 28, 0, 0, 31, 30, 0, 0, 25, 24, 0, 0, 27, 26, 0, 0, 21, 20, 0, 0, 23, 22, 0,
                                       0, 17, 16, 0, 0, 19, 18, 0, 0, 13, 12, 0, 0, 15, 14, 0, 0, 9, 8, 0, 0, 11, 10, 0,
                                       0, 5, 4, 0, 0, 7, 6, 0, 0, 1, 0, 0, 0, 3, 2, 0, 0);
  const __mmask64 high = 0xccccccccccccccccull;
  return reinterpret_cast<F32x16>(_mm512_maskz_permutexvar_epi8(high, from, _mm512_castsi256_si512(v)));
}
#endif

// Sixteen weights over their scores, as the left side of the value product: bf16 where the panel multiplies those,
// floats of bf16 where it stands in for that, else floats.
template <typename P>
inline void store_weights(float* scores, int64_t j, F32x16 p) {
#if defined(REPRISE_TILES) && !defined(__AVX512BF16__)
  if constexpr (P::kUnit) return store_16bit(reinterpret_cast<uint16_t*>(scores) + j, narrow_bf16(p));
#endif
#if defined(__AVX512BF16__)
  if constexpr (P::kStep == 2) {
    const __m256i packed = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(p)));
    if constexpr (P::kFactors == 1) {
      // In place: the weights of key j lie at byte 2 j, behind which every score has been read.
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(scores) + j), packed);
      return;
    }
    store(scores + j, swapped_floats(packed));
    return;
  }
#endif
  store(scores + j, P::kFactors == 2 ? swap_pairs(p) : p);
}

// The scales of keys and values of an int8 page.
struct PageScales {
  const float* keys;
  const float* values;
};

// Tokens of a page, from the first to the one behind the last.
struct Span {
  int64_t low, high;
};

// The scores of a row become weights in two steps, each taken by all rows of a group before the next: a step is short,
// and a processor that waits for the end of one row's goes on with the next row's. The steps look at the sixteens of
// scores that hold those of the group; with kMasked the row sees `seen` of them only, and the others get weight zero
// whatever they are (their scales may never have been written). Without it, it sees the whole page.
template <typename P, bool kMasked>
class RowScores {
 public:
  RowScores(float* scores, Span seen, Span group, PageScales scales)
      : scores_(scores),
        scales_(scales),
        first_(kMasked ? group.low / 16 * 16 : 0),
        end_(kMasked ? group.high : kKvTokens),
        count_(static_cast<uint32_t>(seen.high - seen.low)) {
    place_ = bits_as<U32x16>(lane_numbers()) - static_cast<uint32_t>(seen.low);
  }

  // Scales the scores in place, and caps them where there is a cap; the largest of them.
  float scale(float by, float cap = 0) {
    return cap == 0 ? scale(by, [](F32x16 s) { return s; })
                    : scale(by, [=](F32x16 s) { return tanh(s / splat(cap)) * cap; });
  }

  // Weights for the value product in place of the scaled scores, of which `top` is the largest; their sum.
  float weigh(float top) {
    F32x16 sum = zero();
    each([&](int64_t j) {
      F32x16 p = exp_bounded(load(scores_ + j) - top);
      if constexpr (kMasked) p = select(visible(j), p, zero());
      sum += p;
      if constexpr (P::kScaled) {
        p *= load(scales_.values + j);
        if constexpr (kMasked) p = select(visible(j), p, zero());
      }
      store_weights<P>(scores_, j, p);
    });
    return reduce_add(sum);
  }

 private:
  template <typename Capped>
  float scale(float by, const Capped& capped) {
    const F32x16 hidden = splat(-__builtin_inff());
    F32x16 top = hidden;
    each([&](int64_t j) {
      F32x16 s = load(scores_ + j);
      if constexpr (P::kScaled) s *= load(scales_.keys + j);
      s = capped(s * by);
      if constexpr (kMasked) s = select(visible(j), s, hidden);
      store(scores_ + j, s);
      top = larger(s, top);
    });
    return reduce_max(top);
  }

  template <typename Body>
  void each(const Body& body) const {
    if constexpr (kMasked) {
      for (int64_t j = first_; j < end_; j += 16) body(j);
    } else {
#pragma GCC unroll 8
      for (int64_t j = 0; j < kKvTokens; j += 16) body(j);
    }
  }
  I32x16 visible(int64_t j) const { return below(place_ + static_cast<uint32_t>(j), U32x16{} + count_); }

  float* scores_;
  PageScales scales_;
  int64_t first_, end_;
  uint32_t count_;
  U32x16 place_;  // of sixteen tokens within those seen, less that of the first token
};

}  // namespace reprise::cpu::REPRISE_ISA
