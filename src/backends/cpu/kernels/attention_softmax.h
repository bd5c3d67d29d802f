// What attention does with the scores of a page, row by row: weights from scores, the merging of pages, the result.
// attention_tile.h says what is computed.
#pragma once

#include "backends/cpu/kernels/attention_panel.h"
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
    const F32x16 top = select(m > old_m, m, old_m);
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

template <typename E>
inline void finish_row(float l, const float* o, typename E::Type* out, int64_t size) {
  const F32x16 factor = splat(l == 0.0f ? 0.0f : 1.0f / l);
  for (int64_t d = 0; d < size; d += 16) {
    const F32x16 v = l == 0.0f ? zero() : load_n<F32>(o + d, size - d) * factor;
    store_n<E>(out + d, v, size - d);
  }
}

// Sixteen weights over their scores, as the left side of the value product: bf16 where the panel multiplies those,
// floats of bf16 where it stands in for that, else floats.
template <typename P>
inline void store_weights(float* scores, int64_t j, F32x16 p) {
#if defined(__AVX512BF16__)
  if constexpr (P::kStep == 2) {
    const __m256i packed = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(p)));
    if constexpr (P::kFactors == 1) {
      // In place: the weights of key j lie at byte 2 j, behind which every score has been read.
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(scores) + j), packed);
      return;
    }
    p = reinterpret_cast<F32x16>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(packed), 16));
  }
#endif
  store(scores + j, P::kFactors == 2 ? swap_pairs(p) : p);
}

// The scales of keys and values of an int8 page.
struct PageScales {
  const float* keys;
  const float* values;
};

// Turns the 128 scores of a row that sees all of them in place into weights for the value product. They stay in
// registers, because a row is short: what it waits for costs more than what it computes.
template <typename P>
inline void weights_of_all(float* scores, float scale, [[maybe_unused]] PageScales scales, float& m, float& l) {
  constexpr int kVectors = kKvTokens / 16;
  F32x16 s[kVectors], top = splat(-__builtin_inff()), sum = zero();
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    s[i] = load(scores + 16 * i);
    if constexpr (P::kScaled) s[i] *= load(scales.keys + 16 * i);
    s[i] *= scale;
    top = larger(s[i], top);
  }
  m = reduce_max(top);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    F32x16 p = exp(s[i] - m);
    sum += p;
    if constexpr (P::kScaled) p *= load(scales.values + 16 * i);
    store_weights<P>(scores, 16 * i, p);
  }
  l = reduce_add(sum);
}

struct Span {
  int64_t low, high;
};

// The same, bit by bit, of a row that sees the scores `seen` only: the others of the sixteens that hold those of its
// group get weight zero, whatever they are. Their scales may never have been written.
template <typename P>
inline void weights_of_some(float* scores, Span seen, Span group, float scale, [[maybe_unused]] PageScales scales,
                            float& m, float& l) {
  const I32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F32x16 hidden = splat(-__builtin_inff());
  F32x16 top = hidden, sum = zero();
  auto visible = [&](int64_t j) {
    return (lane >= static_cast<int32_t>(seen.low - j)) & (lane < static_cast<int32_t>(seen.high - j));
  };
  const int64_t first = group.low / 16 * 16;
  for (int64_t j = first; j < group.high; j += 16) {
    F32x16 s = load(scores + j);
    if constexpr (P::kScaled) s *= load(scales.keys + j);
    s = select(visible(j), s * scale, hidden);
    store(scores + j, s);
    top = larger(s, top);
  }
  m = reduce_max(top);
  for (int64_t j = first; j < group.high; j += 16) {
    F32x16 p = select(visible(j), exp(load(scores + j) - m), zero());
    sum += p;
    if constexpr (P::kScaled) p = select(visible(j), p * load(scales.values + j), zero());
    store_weights<P>(scores, j, p);
  }
  l = reduce_add(sum);
}

}  // namespace reprise::cpu::REPRISE_ISA
