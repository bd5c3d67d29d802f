// One tile of query rows against one page of latents, which are keys as a whole and values in their first numbers.
//
// Per row and page the same as in attention_tile.h: scores s_j = scale * (q . k_j), sixteen lanes over the numbers of a
// key and a tree; m, p_j = exp(s_j - m) and l; o = sum of p_j v_j in ascending order. The page's rows are made floats
// once, row behind row, and serve both products. Rows of one token see the same keys; blocks of rows never hold two
// tokens', so nothing that a row may not see is ever multiplied.
#pragma once

#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/attention_softmax.h"

namespace reprise::cpu::REPRISE_ISA {

#if defined(__AVX512F__)
constexpr int kScoreRows = 6;
#else
constexpr int kScoreRows = 2;
#endif
constexpr int kScoreKeys = 4;

// The sums of four vectors, side by side. The order is that of a tree over a vector's lanes: 0 and 1 (and 2 and 3)
// first, fours last.
inline void sums_of_four(F32x16 a, F32x16 b, F32x16 c, F32x16 d, float* out) {
  const F32x16 ab = __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
                    __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  const F32x16 cd = __builtin_shufflevector(c, d, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
                    __builtin_shufflevector(c, d, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  const F32x16 fours = __builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                       __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  float parts[16];
  store(parts, fours);
  for (int i = 0; i < 4; ++i) out[i] = (parts[i] + parts[4 + i]) + (parts[8 + i] + parts[12 + i]);
}

// kRows rows of queries times four keys: out[r * 128 + key].
template <int kRows>
__attribute__((noinline)) void score_block(const float* q, const float* keys, int64_t stride, int64_t vectors,
                                           float* out) {
  F32x16 sum[kRows][kScoreKeys];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kScoreKeys; ++j) sum[r][j] = zero();
  for (int64_t v = 0; v < vectors; ++v, q += 16, keys += 16) {
    F32x16 k[kScoreKeys];
#pragma GCC unroll 4
    for (int j = 0; j < kScoreKeys; ++j) k[j] = load(keys + j * stride);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32x16 a = load(q + r * stride);
#pragma GCC unroll 4
      for (int j = 0; j < kScoreKeys; ++j) sum[r][j] = fma(a, k[j], sum[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums_of_four(sum[r][0], sum[r][1], sum[r][2], sum[r][3], out + r * kKvTokens);
}

inline void score_rows(int64_t rows, const float* q, const float* keys, int64_t stride, int64_t vectors, float* out) {
  switch (rows) {
    case 1: return score_block<1>(q, keys, stride, vectors, out);
    case 2: return score_block<2>(q, keys, stride, vectors, out);
  }
  if constexpr (kScoreRows > 2) switch (rows) {
      case 3: return score_block<3>(q, keys, stride, vectors, out);
      case 4: return score_block<4>(q, keys, stride, vectors, out);
      case 5: return score_block<5>(q, keys, stride, vectors, out);
      case 6: return score_block<6>(q, keys, stride, vectors, out);
    }
}

// E: how queries and latents are stored.
template <typename E>
class LatentTile {
  using T = typename E::Type;

 public:
  static constexpr int64_t kRows = AttentionSizes::kTileRows / 2;

  // `scratch` has scratch_floats() of the sizes.
  LatentTile(float* scratch, const AttentionSizes& z, float scale)
      : size_(z.size), rope_(z.key_size - z.size), row_(z.key_row()), per_token_(z.per_group()), scale_(scale) {
    queries_ = scratch;
    scores_ = queries_ + kRows * row_;
    page_ = partial(scores_ + kRows * kKvTokens);
    state_ = partial(page_.o + kRows * size_);
    wide_ = state_.o + kRows * size_;
    high_ = reinterpret_cast<int32_t*>(wide_ + kKvTokens * row_);
  }

  // `first` rows of the item's first token come before those of the tile.
  void set_rows(int64_t rows, int64_t first) {
    rows_ = rows;
    first_ = first;
  }
  // Query row r, which sees the first `high` keys of the sequence.
  void set_row(int64_t r, const T* latent, const T* rope, int64_t high) {
    widen(latent, rope, queries_ + r * row_);
    high_[r] = static_cast<int32_t>(high);
  }

  const Partial& page_scratch() const { return page_; }
  const Partial& state() const { return state_; }

  // Page number `page` of the sequence; the results go to `to`.
  void attend(const T* latents, const T* ropes, int64_t page, const Partial& to) {
    const int64_t base = page * kKvTokens;
    const int64_t tokens = clamp(high_[rows_ - 1] - base);  // the last row sees most
    for (int64_t t = 0; t < tokens; ++t) widen(latents + t * size_, ropes + t * rope_, wide_ + t * row_);
    for (int64_t g = 0; g < rows_; g = group_end(g)) {
      const int64_t seen = clamp(high_[g] - base), end = group_end(g);
      for (int64_t r = g; r < end; ++r) to.m[r] = to.l[r] = 0;
      if (seen == 0) continue;
      // Keys go in fours; those behind the last one are whatever was here before, and their weights become zero.
      for (int64_t j = 0; j < seen; j += kScoreKeys)
        for (int64_t r = g; r < end; r += kScoreRows)
          score_rows(end - r < kScoreRows ? end - r : kScoreRows, queries_ + r * row_, wide_ + j * row_, row_,
                     row_ / 16 - 1, scores_ + r * kKvTokens + j);
      if (seen == kKvTokens)
        weigh<false>(g, end, seen, to);
      else
        weigh<true>(g, end, seen, to);
      values(g, end, seen, to.o);
    }
  }

  void merge_page(const Partial& state) { merge_rows(state, page_, rows_, size_); }

 private:
  Partial partial(float* at) const { return {at, at + kRows, at + 2 * kRows}; }
  static int64_t clamp(int64_t x) { return x < 0 ? 0 : x > kKvTokens ? kKvTokens : x; }
  // Rows from g on that are computed together: of one token, as many as a block has.
  int64_t group_end(int64_t g) const {
    const int64_t token_end = (first_ + g) / per_token_ * per_token_ + per_token_ - first_;
    int64_t end = g + kBlockRows;
    if (end > token_end) end = token_end;
    return end < rows_ ? end : rows_;
  }

  void widen(const T* latent, const T* rope, float* out) const {
    for (int64_t d = 0; d < size_; d += 16) store_n<F32>(out + d, load_n<E>(latent + d, size_ - d), size_ - d);
    for (int64_t d = 0; d < rope_; d += 16) store_n<F32>(out + size_ + d, load_n<E>(rope + d, rope_ - d), rope_ - d);
    for (int64_t d = size_ + rope_; d < row_ - 16; ++d) out[d] = 0;
  }

  template <bool kMasked>
  void weigh(int64_t from, int64_t end, int64_t seen, const Partial& to) {
    const Span span{0, seen};
    for (int64_t r = from; r < end; ++r)
      to.m[r] = RowScores<PanelWide, kMasked>(scores_ + r * kKvTokens, span, span, {}).scale(scale_);
    for (int64_t r = from; r < end; ++r)
      to.l[r] = RowScores<PanelWide, kMasked>(scores_ + r * kKvTokens, span, span, {}).weigh(to.m[r]);
  }

  void values(int64_t from, int64_t end, int64_t seen, float* o) {
    constexpr int64_t kBlock = kBlockVecs * kLanes;
    for (int64_t c = 0; c < size_;) {
      const int64_t left = size_ - c;
      for (int64_t r = from; r < end;) {
        const Product<PanelWide> p{scores_ + r * kKvTokens, kKvTokens, wide_ + c, row_, o + r * size_ + c, size_, seen};
        if (left >= kBlock) {
          const int64_t rows = end - r < kBlockRows ? end - r : kBlockRows;
          product_rows<PanelWide, kBlockVecs>(p, rows);
          r += rows;
        } else {
          product_tail<PanelWide>(p, left < kLanes ? left : kLanes);
          ++r;
        }
      }
      c += left >= kBlock ? kBlock : left < kLanes ? left : kLanes;
    }
  }

  int64_t size_, rope_, row_, per_token_;
  float scale_;
  int64_t rows_ = 0, first_ = 0;
  float* queries_;
  float* scores_;
  Partial page_, state_;
  float* wide_;
  int32_t* high_;
};

}  // namespace reprise::cpu::REPRISE_ISA
