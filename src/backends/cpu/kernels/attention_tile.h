// One tile of query rows against one page of keys and values, and the merging of pages.
//
// Per row and page: scores s_j = scale * (q . k_j), under a cap c then c * tanh(s_j / c); m = max over the visible
// keys; p_j = exp(s_j - m); l = sum of p_j, sixteen lanes and a tree; o = sum of p_j v_j in ascending order. Hidden
// keys have p = 0 exactly. Pages merge in ascending order by the usual rescaling. On sets with bf16 dot instructions p
// is rounded to bf16 for o (as HF rounds its probabilities), not for l. In an int8 cache k_j is c_j times integers and
// v_j is d_j times integers: then s_j = ((q . integers) * c_j) * scale, and o is the sum of (p_j * d_j) times integers.
#pragma once

#include "backends/cpu/kernels/attention_panel.h"
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/attention_softmax.h"
#ifdef REPRISE_TILES
#include "backends/cpu/kernels/attention_unit.h"
#endif

namespace reprise::cpu::REPRISE_ISA {

// P: how the products are made (attention_panel.h).
template <typename E, typename P>
class Tile {
  using Factor = typename P::Factor;

 public:
  // Floats of scratch for `capacity` rows: queries, scores, one page's results, spans, a wide block.
  static int64_t scratch_floats(int64_t capacity, int64_t key_size, int64_t size) {
    return capacity * (AttentionSizes::query_floats(key_size) + size + kKvTokens + 4) +
           AttentionSizes::wide_floats(key_size > size ? key_size : size);
  }

  // Keys have `key_size` numbers, values and results `size`.
  Tile(float* scratch, int64_t capacity, int64_t key_size, int64_t size, float scale, float cap = 0)
      : key_size_(key_size), size_(size), scale_(scale), cap_(cap) {
    left_ = reinterpret_cast<Factor*>(scratch);
    scores_ = scratch + capacity * AttentionSizes::query_floats(key_size);
    page_ = {scores_ + capacity * kKvTokens, nullptr, nullptr};
    page_.l = page_.m + capacity;
    page_.o = page_.l + capacity;
    low_ = reinterpret_cast<int32_t*>(page_.o + capacity * size);
    high_ = low_ + capacity;
    wide_ = reinterpret_cast<float*>(high_ + capacity);
    left_stride_ = P::kUnit ? (key_size + 31) / 32 * 16 : key_size / P::kStep * P::kFactors;
  }

  void set_rows(int64_t rows) {
    rows_ = rows;
    flat_ = rows <= 4 * kFlatRows;
    group_rows_ = P::kUnit ? 32 : flat_ ? kFlatRows : kPanelRows;
  }

  // Query row r, which sees keys [low, high) of the sequence.
  void set_row(int64_t r, const typename E::Type* q, int64_t low, int64_t high) {
    Factor* left = left_ + r * left_stride_;
    if constexpr (sizeof(Factor) == 2 * sizeof(typename E::Type) && P::kFactors == 1 && P::kStep == 2) {
      std::memcpy(left, q, static_cast<size_t>(key_size_) * sizeof(typename E::Type));
      if constexpr (P::kUnit)
        std::memset(left + key_size_ / 2, 0, static_cast<size_t>(left_stride_ - key_size_ / 2) * sizeof(Factor));
    } else {
      for (int64_t d = 0; d < key_size_; d += 16)
        store_n<F32>(reinterpret_cast<float*>(left) + d, in_order(load_n<E>(q + d, key_size_ - d)), key_size_ - d);
    }
    low_[r] = static_cast<int32_t>(low);
    high_[r] = static_cast<int32_t>(high);
  }

  const Partial& page_scratch() const { return page_; }
#ifdef REPRISE_TILES
  TileUnit& unit() { return unit_; }
#endif

  // The block of keys that will be read next, and how many tokens of it: they are brought into the cache meanwhile.
  struct Ahead {
    const typename P::Cell* block = nullptr;
    int64_t tokens = 0;
  };

  // Page number `page` of the sequence; the results go to `to`.
  void attend(const typename P::Cell* keys, const typename P::Cell* values, int64_t page, const Partial& to,
              const Ahead& next) {
    const int64_t base = page * kKvTokens;
    for (int64_t g = 0; g < rows_; g += group_rows_) spans_[g / group_rows_] = span_of_group(g, base);
    if constexpr (P::kUnit)
      score_on_unit(keys, values);
    else if (flat_)
      score_flat(keys, values);
    else if (P::kWiden)
      score_wide(keys);
    else
      score(keys);
    const PageScales scales{scales_of(keys), scales_of(values)};
    for (int64_t g = 0; g < rows_; g += group_rows_) {
      for (int64_t r = g; r < group_end(g); ++r)
        with_scores(
            r, g, base, scales, [&](auto row) { to.m[r] = row.scale(scale_, cap_); }, [&] { to.m[r] = 0; });
      for (int64_t r = g; r < group_end(g); ++r)
        with_scores(
            r, g, base, scales, [&](auto row) { to.l[r] = row.weigh(to.m[r]); }, [&] { to.l[r] = 0; });
    }
    if constexpr (P::kUnit)
      weigh_on_unit(values, next, to.o);
    else
      weigh(values, next, to.o);
    if constexpr (!P::kScaled)
      for (int64_t g = 0; g < rows_; g += group_rows_) correct(values, g, base, to);
  }

  void merge_page(const Partial& state) { merge_rows(state, page_, rows_, size_); }

 private:
  static constexpr int64_t kBlock = kBlockVecs * kLanes;
  static_assert(kBlock <= AttentionSizes::kWideColumns);

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

  // What of a page the value product reads: on tile registers blocks of 32 keys.
  static Span whole_blocks(Span keys) {
    if constexpr (P::kUnit) return {keys.low / 32 * 32, (keys.high + 31) / 32 * 32};
    return keys;
  }

  // Calls use(scores of row r) or, where it sees none of this page, hide(). Weights of a row that sees none still
  // become zeros where others of its group see some.
  template <typename Use, typename Hide>
  void with_scores(int64_t r, int64_t g, int64_t base, PageScales scales, const Use& use, const Hide& hide) {
    const Span s = seen(r, base), all = whole_blocks(spans_[g / group_rows_]);
    float* scores = scores_ + r * kKvTokens;
    if (s.low == 0 && s.high == kKvTokens) return use(RowScores<P, false>(scores, s, all, scales));
    if (all.low < all.high) use(RowScores<P, true>(scores, s, all, scales));
    if (s.low >= s.high) hide();
  }

  // The product of the rows from g on with the keys from c on.
  Product<P> key_product(const typename P::Cell* keys, int64_t g, int64_t c) const {
    const int64_t steps = key_size_ / P::kStep;
    return {left_ + g * left_stride_,
            left_stride_,
            keys + c * steps,
            kKeyRun,
            scores_ + g * kKvTokens + c,
            kKvTokens,
            steps};
  }

  // Few rows read no more keys than some row sees, in blocks as wide as possible, and bring the values along.
  void score_flat(const typename P::Cell* keys, const typename P::Cell* values) {
    const Span seen = span_of_all();
    const int64_t end = (seen.high + kKeyRun - 1) / kKeyRun * kKeyRun;
    for (int64_t c = seen.low / kKeyRun * kKeyRun; c < end;) {
      const int64_t left = (end - c) / kLanes;
      const int vecs = left >= kFlatVecs ? kFlatVecs : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      for (int64_t g = 0; g < rows_; g += group_rows_) {
        const Span all = spans_[g / group_rows_];
        if (all.low >= all.high || all.high <= c || all.low >= c + vecs * kLanes) continue;
        Product<P> p = key_product(keys, g, c);
        if (g > 0) {
          flat_rows<false>(p, vecs, group_end(g) - g);
          continue;
        }
        p.ahead = reinterpret_cast<const char*>(values + c * p.steps);
        p.ahead_end = reinterpret_cast<const char*>(values + (seen.high + 1) / P::kStep * size_);
        flat_rows<true>(p, vecs, group_end(g) - g);
      }
      c += vecs * kLanes;
    }
  }

  template <bool kAhead>
  static void flat_rows(const Product<P>& p, int vecs, int64_t rows) {
    constexpr int kRunVecs = static_cast<int>(kKeyRun) / kLanes;
    if (vecs == kFlatVecs) return product_rows<P, kFlatVecs, Columns::Runs, kAhead>(p, rows);
    if constexpr (kFlatVecs > 4)
      if (vecs == 4) return product_rows<P, 4, Columns::Runs, kAhead>(p, rows);
    if constexpr (kRunVecs <= 2)
      if (vecs == 2) return product_rows<P, 2, Columns::Runs, kAhead>(p, rows);
    if constexpr (kRunVecs == 1) product_rows<P, 1, Columns::Runs, kAhead>(p, rows);
  }

#ifdef REPRISE_TILES
  UnitPage unit_page(const typename P::Cell* cells, const typename P::Cell* ahead, int64_t ahead_tokens) {
    const auto* next = reinterpret_cast<const char*>(ahead);
    return {cells, size_, reinterpret_cast<uint32_t*>(wide_), next, next + ahead_tokens * size_ * 2};
  }

  // Few rows are limited by memory, and bring along what is read next.
  void score_on_unit(const typename P::Cell* keys, const typename P::Cell* values) {
    UnitPage page = unit_page(keys, values, flat_ ? span_of_all().high : 0);
    page.size = key_size_;
    for (int64_t g = 0; g < rows_; g += group_rows_) {
      const Span all = spans_[g / group_rows_];
      if (all.low >= all.high) continue;
      const int64_t from = all.low / kKeyRun * kKeyRun, to = (all.high + kKeyRun - 1) / kKeyRun * kKeyRun;
      unit_scores(unit_, left_ + g * left_stride_, left_stride_ * 4, static_cast<int>(group_end(g) - g), page, from, to,
                  scores_ + g * kKvTokens);
    }
  }

  void weigh_on_unit(const typename P::Cell* values, const Ahead& next, float* o) {
    const int64_t ahead_tokens = (clamp(next.tokens) + kKeyRun - 1) / kKeyRun * kKeyRun;
    const UnitPage page = unit_page(values, next.block, flat_ && next.block ? ahead_tokens : 0);
    for (int64_t g = 0; g < rows_; g += group_rows_) {
      const Span all = spans_[g / group_rows_];
      if (all.low < all.high)
        unit_values(unit_, scores_ + g * kKvTokens, static_cast<int>(group_end(g) - g), page, all.low, all.high, false,
                    o + g * size_);
    }
  }

  void weigh_alone(const typename P::Cell* values, int64_t r, Span keys, float* o) {
    unit_values(unit_, scores_ + r * kKvTokens, 1, unit_page(values, nullptr, 0), keys.low, keys.high, true, o);
  }
#endif

  // Blocks of columns outside, groups of rows inside: a block of the panel stays in the first-level cache.
  void score(const typename P::Cell* keys) {
    for (int64_t c = 0; c < kKvTokens; c += kBlock)
      for (int64_t g = 0; g < rows_; g += group_rows_) {
        const Span all = spans_[g / group_rows_];
        if (all.low >= all.high || all.high <= c || all.low >= c + kBlock) continue;
        const Product<P> p = key_product(keys, g, c);
        if (all.high - c > kBlock / 2)
          product_rows<P, kBlockVecs, Columns::Runs>(p, group_end(g) - g);
        else
          product_rows<P, kBlockVecs / 2, Columns::Runs>(p, group_end(g) - g);
      }
  }

  // The same on keys made floats, once for all groups of rows.
  void score_wide(const typename P::Cell* keys) {
    const Span seen = span_of_all();
    const int64_t steps = key_size_ / P::kStep;
    for (int64_t c = seen.low / kBlock * kBlock; c < seen.high; c += kBlock) {
      widen_panel<P, Columns::Runs>(keys + c * steps, kKeyRun, steps, wide_);
      for (int64_t g = 0; g < rows_; g += group_rows_) {
        const Span all = spans_[g / group_rows_];
        if (all.low >= all.high || all.high <= c || all.low >= c + kBlock) continue;
        const Product<PanelWide> p{wide_left(left_ + g * left_stride_), left_stride_, wide_,    kBlock,
                                   scores_ + g * kKvTokens + c,         kKvTokens,    key_size_};
        const int64_t quarters = (all.high - c + kBlock / 4 - 1) / (kBlock / 4), rows = group_end(g) - g;
        static_assert(kBlockVecs == 4);
        if (quarters == 1)
          product_rows<PanelWide, 1>(p, rows);
        else if (quarters == 2)
          product_rows<PanelWide, 2>(p, rows);
        else if (quarters == 3)
          product_rows<PanelWide, 3>(p, rows);
        else
          product_rows<PanelWide, 4>(p, rows);
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
    // A pair may hold a key that nothing wrote yet: zero times anything must be zero.
    if (keys.high % P::kStep != 0) p.last_mask = 0x0000ffffu;
    if (keys.low % P::kStep != 0) p.first_mask = 0xffff0000u;
    return p;
  }

  // One block of columns on values made floats, once for all groups of rows.
  void weigh_wide(const typename P::Cell* values, int64_t column, float* o) {
    const Span seen = span_of_all();
    if (seen.low >= seen.high) return;
    const int64_t from = seen.low / P::kStep;
    widen_panel<P, Columns::Together>(values + from * size_ + column, size_,
                                      (seen.high + P::kStep - 1) / P::kStep - from, wide_);
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

  void weigh(const typename P::Cell* values, const Ahead& next, float* o) {
    const typename P::Cell* ahead = next.block;
    const int64_t ahead_tokens = (clamp(next.tokens) + kKeyRun - 1) / kKeyRun * kKeyRun;
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
        p.ahead_end = reinterpret_cast<const char*>(ahead + ahead_tokens * size_ / P::kStep);
        if (flat_ && g == 0 && ahead && width == kFlatVecs * kLanes)
          product_rows<P, kFlatVecs, Columns::Together, true>(p, rows);
        else if (flat_ && g == 0 && ahead && width == kBlockVecs * kLanes)
          product_rows<P, kBlockVecs, Columns::Together, true>(p, rows);
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
      const int64_t first = P::kUnit ? whole_blocks(all).low : all.low / P::kStep * P::kStep;
      if (s.low >= s.high || (s.low == first && s.high == all.high)) continue;
      float* o = to.o + r * size_;
      F32x16 bad = zero();  // stays zero but for NaN, and infinities, which may be computed again too
      for (int64_t d = 0; d < size_; d += 16) bad += load_n<F32>(o + d, size_ - d) * 0.0f;
      if (reduce_add(bad) == 0.0f) continue;
      if constexpr (P::kUnit) {
        weigh_alone(values, r, s, o);
      } else {
        for (int64_t c = 0; c < size_; c += kLanes)
          product_tail<P>(value_product(values, r, s, c, to.o), size_ - c < kLanes ? size_ - c : kLanes);
      }
    }
  }

  int64_t key_size_, size_;
  float scale_, cap_;  // no cap: 0
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
#ifdef REPRISE_TILES
  TileUnit unit_;
#endif
};

}  // namespace reprise::cpu::REPRISE_ISA
