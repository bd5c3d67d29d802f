// One tile of query rows against one page of keys and values, and the merging of pages.
//
// Per row and page: scores s_j = scale * (q . k_j); m = max over the visible keys; p_j = exp(s_j - m); l = sum of p_j,
// sixteen lanes and a tree; o = sum of p_j v_j in ascending order. Hidden keys have p = 0 exactly. Pages merge in
// ascending order by the usual rescaling. On sets with bf16 dot instructions p is rounded to bf16 for o (as HF rounds
// its probabilities), not for l. In an int8 cache k_j is c_j times integers and v_j is d_j times integers: then
// s_j = ((q . integers) * c_j) * scale, and o is the sum of (p_j * d_j) times integers.
#pragma once

#include "backends/cpu/kernels/attention_panel.h"
#include "backends/cpu/kernels/attention_plan.h"
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

// Turns 128 scores in place into weights for the value product. Key j is visible when low <= j < high; the others get
// weight zero, whatever their scores. All scores stay in registers, and every row takes the same way, because a row is
// short: what it waits for costs more than what it computes. The scales of keys and values are those of an int8 page;
// hidden ones may never have been written.
template <typename P, bool kMasked>
inline void weights_of_scores(float* scores, int64_t low, int64_t high, float scale,
                              [[maybe_unused]] const float* key_scales, [[maybe_unused]] const float* value_scales,
                              float& m, float& l) {
  constexpr int kVectors = kKvTokens / 16;
  const I32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int32_t from = static_cast<int32_t>(low), to = static_cast<int32_t>(high);
  const F32x16 hidden = splat(-__builtin_inff());
  F32x16 s[kVectors], top = hidden, sum = zero();
  auto visible = [&](int i) { return (lane + 16 * i >= from) & (lane + 16 * i < to); };
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    s[i] = load(scores + 16 * i);
    if constexpr (P::kScaled) s[i] *= load(key_scales + 16 * i);
    s[i] *= scale;
    if constexpr (kMasked) s[i] = select(visible(i), s[i], hidden);
    top = larger(s[i], top);
  }
  m = reduce_max(top);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    F32x16 p = exp(s[i] - m);
    if constexpr (kMasked) p = select(visible(i), p, zero());
    sum += p;
    if constexpr (P::kScaled) {
      p *= load(value_scales + 16 * i);
      if constexpr (kMasked) p = select(visible(i), p, zero());
    }
    store_weights<P>(scores, 16 * i, p);
  }
  l = reduce_add(sum);
}

// P: how the products are made (attention_panel.h).
template <typename E, typename P>
class Tile {
  using Factor = typename P::Factor;

 public:
  // Floats of scratch for `capacity` rows: queries, scores, one page's results, spans, a wide block.
  static int64_t scratch_floats(int64_t capacity, int64_t size) {
    return capacity * (2 * size + kKvTokens + 4) + AttentionSizes::wide_floats(size);
  }

  Tile(float* scratch, int64_t capacity, int64_t size, float scale) : size_(size), scale_(scale) {
    left_ = reinterpret_cast<Factor*>(scratch);
    scores_ = scratch + capacity * size;
    page_ = {scores_ + capacity * kKvTokens, nullptr, nullptr};
    page_.l = page_.m + capacity;
    page_.o = page_.l + capacity;
    low_ = reinterpret_cast<int32_t*>(page_.o + capacity * size);
    high_ = low_ + capacity;
    wide_ = reinterpret_cast<float*>(high_ + capacity);
    left_stride_ = size / P::kStep * P::kFactors;
  }

  void set_rows(int64_t rows) {
    rows_ = rows;
    flat_ = rows <= 4 * kFlatRows;
    group_rows_ = flat_ ? kFlatRows : kBlockRows;
  }

  // Query row r, which sees keys [low, high) of the sequence.
  void set_row(int64_t r, const typename E::Type* q, int64_t low, int64_t high) {
    Factor* left = left_ + r * left_stride_;
    if constexpr (sizeof(Factor) == 2 * sizeof(typename E::Type) && P::kFactors == 1 && P::kStep == 2)
      std::memcpy(left, q, static_cast<size_t>(size_) * sizeof(typename E::Type));
    else
      for (int64_t d = 0; d < size_; d += 16)
        store_n<F32>(reinterpret_cast<float*>(left) + d, in_order(load_n<E>(q + d, size_ - d)), size_ - d);
    low_[r] = static_cast<int32_t>(low);
    high_[r] = static_cast<int32_t>(high);
  }

  const Partial& page_scratch() const { return page_; }

  // Page number `page` of the sequence; the results go to `to`.
  // `next` is the block that will be read after these two, or null.
  void attend(const typename P::Cell* keys, const typename P::Cell* values, int64_t page, const Partial& to,
              const typename P::Cell* next) {
    const int64_t base = page * kKvTokens;
    for (int64_t g = 0; g < rows_; g += group_rows_) spans_[g / group_rows_] = span_of_group(g, base);
    score(keys, values);
    const float* key_scales = scales_of(keys);
    const float* value_scales = scales_of(values);
    for (int64_t g = 0; g < rows_; g += group_rows_) {
      const Span all = spans_[g / group_rows_];
      for (int64_t r = g; r < group_end(g); ++r) {
        const Span s = seen(r, base);
        to.m[r] = 0;
        to.l[r] = 0;
        if (s.low == 0 && s.high == kKvTokens)
          weights_of_scores<P, false>(scores_ + r * kKvTokens, s.low, s.high, scale_, key_scales, value_scales, to.m[r],
                                      to.l[r]);
        else if (all.low < all.high)
          weights_of_scores<P, true>(scores_ + r * kKvTokens, s.low, s.high, scale_, key_scales, value_scales, to.m[r],
                                     to.l[r]);
        if (s.low >= s.high) to.l[r] = 0;
      }
    }
    weigh(values, next, to.o);
    if constexpr (!P::kScaled)
      for (int64_t g = 0; g < rows_; g += group_rows_) correct(values, g, base, to);
  }

  void merge_page(const Partial& state) { merge_rows(state, page_, rows_, size_); }

 private:
  static constexpr int64_t kBlock = kBlockVecs * kLanes;
  static_assert(kBlock <= AttentionSizes::kWideColumns);
  struct Span {
    int64_t low, high;
  };

  static int64_t clamp(int64_t x) { return x < 0 ? 0 : x > kKvTokens ? kKvTokens : x; }
  static F32x16 in_order(F32x16 q) { return P::kFactors == 2 ? swap_pairs(q) : q; }
  const float* scales_of(const typename P::Cell* block) const {
    return P::kScaled ? reinterpret_cast<const float*>(block + kv_scales_offset(size_)) : nullptr;
  }
  int64_t group_end(int64_t g) const { return g + group_rows_ < rows_ ? g + group_rows_ : rows_; }
  // Keys of this page that row r sees.
  Span seen(int64_t r, int64_t base) const { return {clamp(low_[r] - base), clamp(high_[r] - base)}; }
  // The smallest span that holds those of all rows of the group.
  Span span_of_group(int64_t g, int64_t base) const {
    Span all{kKvTokens, 0};
    for (int64_t r = g; r < group_end(g); ++r) {
      const Span s = seen(r, base);
      if (s.low >= s.high) continue;
      all.low = s.low < all.low ? s.low : all.low;
      all.high = s.high > all.high ? s.high : all.high;
    }
    return all;
  }

  // Blocks of columns outside, groups of rows inside: a block of the panel stays in the first-level cache.
  void score(const typename P::Cell* keys, const typename P::Cell* ahead) {
    if (P::kWiden && !flat_) return score_wide(keys);
    const int64_t width = (flat_ ? kFlatVecs : kBlockVecs) * kLanes;
    for (int64_t c = 0; c < kKvTokens; c += width)
      for (int64_t g = 0; g < rows_; g += group_rows_) {
        const Span all = spans_[g / group_rows_];
        if (all.low >= all.high || all.high <= c || all.low >= c + width) continue;
        Product<P> p{left_ + g * left_stride_,    left_stride_, keys + c,        kKvTokens,
                     scores_ + g * kKvTokens + c, kKvTokens,    size_ / P::kStep};
        p.ahead = reinterpret_cast<const char*>(ahead + c * p.steps);
        if (flat_ && g == 0)
          product_rows<P, kFlatVecs, true>(p, group_end(g) - g);
        else if (flat_)
          product_rows<P, kFlatVecs>(p, group_end(g) - g);
        else if (all.high - c > width / 2)
          product_rows<P, kBlockVecs>(p, group_end(g) - g);
        else
          product_rows<P, kBlockVecs / 2>(p, group_end(g) - g);
      }
  }

  // The same on keys made floats, once for all groups of rows.
  void score_wide(const typename P::Cell* keys) {
    const Span seen = span_of_all();
    for (int64_t c = seen.low / kBlock * kBlock; c < seen.high; c += kBlock) {
      widen_panel<P>(keys + c, kKvTokens, size_ / P::kStep, wide_);
      for (int64_t g = 0; g < rows_; g += group_rows_) {
        const Span all = spans_[g / group_rows_];
        if (all.low >= all.high || all.high <= c || all.low >= c + kBlock) continue;
        const Product<PanelWide> p{wide_left(left_ + g * left_stride_), left_stride_, wide_, kBlock,
                                   scores_ + g * kKvTokens + c,         kKvTokens,    size_};
        if (all.high - c > kBlock / 2)
          product_rows<PanelWide, kBlockVecs>(p, group_end(g) - g);
        else
          product_rows<PanelWide, kBlockVecs / 2>(p, group_end(g) - g);
      }
    }
  }

  static const float* wide_left(const Factor* left) { return reinterpret_cast<const float*>(left); }
  Span span_of_all() const {
    Span seen{kKvTokens, 0};
    for (int64_t g = 0; g < rows_; g += group_rows_) {
      const Span all = spans_[g / group_rows_];
      if (all.low >= all.high) continue;
      seen.low = all.low < seen.low ? all.low : seen.low;
      seen.high = all.high > seen.high ? all.high : seen.high;
    }
    return seen;
  }

  const Factor* weights(int64_t r) const { return reinterpret_cast<const Factor*>(scores_) + r * kKvTokens; }

  // The product of the weights of rows from `r` on with the values of the keys [low, high).
  Product<P> value_product(const typename P::Cell* values, int64_t r, Span keys, int64_t column, float* o) const {
    const int64_t first = keys.low / P::kStep;
    Product<P> p{weights(r) + first * P::kFactors,
                 kKvTokens,
                 values + first * size_ + column,
                 size_,
                 o + r * size_ + column,
                 size_,
                 (keys.high + P::kStep - 1) / P::kStep - first};
    // A pair may hold a key that nobody wrote yet: zero times anything must be zero.
    if (keys.high % P::kStep != 0) p.last_mask = 0x0000ffffu;
    if (keys.low % P::kStep != 0) p.first_mask = 0xffff0000u;
    return p;
  }

  // One block of columns on values made floats, once for all groups of rows.
  void weigh_wide(const typename P::Cell* values, int64_t column, float* o) {
    const Span seen = span_of_all();
    if (seen.low >= seen.high) return;
    const int64_t from = seen.low / P::kStep;
    widen_panel<P>(values + from * size_ + column, size_, (seen.high + P::kStep - 1) / P::kStep - from, wide_);
    for (int64_t g = 0; g < rows_; g += group_rows_) {
      const Span all = spans_[g / group_rows_];
      if (all.low >= all.high) continue;
      const Product<P> pairs = value_product(values, g, all, column, o);
      const int64_t first = all.low / P::kStep;
      Product<PanelWide> p{
          wide_left(pairs.left), kKvTokens, wide_ + (first - from) * P::kStep * kBlock, kBlock, pairs.out, size_,
          pairs.steps * P::kStep};
      p.last_mask = pairs.last_mask;
      product_rows<PanelWide, kBlockVecs>(p, group_end(g) - g);
    }
  }

  void weigh(const typename P::Cell* values, const typename P::Cell* ahead, float* o) {
    for (int64_t c = 0; c < size_;) {
      if (P::kWiden && !flat_ && size_ - c >= kBlock) {
        weigh_wide(values, c, o);
        c += kBlock;
        continue;
      }
      const int64_t left = size_ - c;
      const int64_t width = flat_ && left >= kFlatVecs * kLanes ? kFlatVecs * kLanes
                            : left >= kBlockVecs * kLanes       ? kBlockVecs * kLanes
                            : left >= kLanes                    ? kLanes
                                                                : left;
      for (int64_t g = 0; g < rows_; g += group_rows_) {
        const Span all = spans_[g / group_rows_];
        if (all.low >= all.high) continue;
        const int64_t rows = group_end(g) - g;
        Product<P> p = value_product(values, g, all, c, o);
        p.ahead = reinterpret_cast<const char*>(ahead + c * p.steps);
        if (flat_ && g == 0 && ahead && width == kFlatVecs * kLanes)
          product_rows<P, kFlatVecs, true>(p, rows);
        else if (flat_ && g == 0 && ahead && width == kBlockVecs * kLanes)
          product_rows<P, kBlockVecs, true>(p, rows);
        else if (flat_ && width == kFlatVecs * kLanes)
          product_rows<P, kFlatVecs>(p, rows);
        else if (width == kBlockVecs * kLanes)
          product_rows<P, kBlockVecs>(p, rows);
        else if (width == kLanes)
          product_rows<P, 1>(p, rows);
        else
          for (int64_t r = 0; r < rows; ++r) product_tail<P>(value_product(values, g + r, all, c, o), width);
      }
      c += width;
    }
  }

  // A value of inf or NaN at a key that only other rows of the group see has made 0 * inf = NaN here. Such rows are
  // computed again over their own keys alone. Without such values this finds nothing. (Integers are finite, and their
  // scales are in the weights.)
  void correct(const typename P::Cell* values, int64_t g, int64_t base, const Partial& to) {
    const Span all = spans_[g / group_rows_];
    for (int64_t r = g; r < group_end(g); ++r) {
      const Span s = seen(r, base);
      if (s.low >= s.high || (s.low == all.low / P::kStep * P::kStep && s.high == all.high)) continue;
      float* o = to.o + r * size_;
      F32x16 bad = zero();  // stays zero but for NaN, and infinities, which may be computed again too
      for (int64_t d = 0; d < size_; d += 16) bad += load_n<F32>(o + d, size_ - d) * 0.0f;
      if (reduce_add(bad) == 0.0f) continue;
      for (int64_t c = 0; c < size_; c += kLanes)
        product_tail<P>(value_product(values, r, s, c, to.o), size_ - c < kLanes ? size_ - c : kLanes);
    }
  }

  int64_t size_;
  float scale_;
  int64_t rows_ = 0, group_rows_ = 1;
  bool flat_ = false;
  int64_t left_stride_;
  Factor* left_;
  float* scores_;
  Partial page_;
  int32_t* low_;
  int32_t* high_;
  float* wide_;
  Span spans_[AttentionSizes::kTileRows];  // of this page, per group of rows
};

}  // namespace reprise::cpu::REPRISE_ISA
