// One tile of query rows against one page of latents, which are keys as a whole and values in their first numbers.
//
// Per row and page the same as in attention_tile.h: scores s_j = scale * (q . k_j), sixteen lanes over the words of a
// key and a tree; m, p_j = exp(s_j - m) and l; o = sum of p_j v_j in ascending order. In bf16 on sets with the dot
// instruction, words are pairs and p is rounded for o; on tile registers both products are in their order. Rows of one
// token see the same keys; blocks of rows never hold two tokens', so no value that a row may not see is ever
// multiplied.
#pragma once

#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/attention_softmax.h"
#include "backends/cpu/kernels/latent_page.h"
#ifdef REPRISE_TILES
#include "backends/cpu/kernels/latent_unit.h"
#endif

namespace reprise::cpu::REPRISE_ISA {

template <typename E, typename P>
struct PageOf {
  using Type = LatentPage<E, P>;
};
#ifdef REPRISE_TILES
template <typename E>
struct PageOf<E, PanelUnit> {
  using Type = LatentUnitPage;
};
#endif

// E, P: how latents are stored and multiplied (latent_page.h).
template <typename E, typename P>
class LatentTile {
  using T = typename E::Type;
  using Page = typename PageOf<E, P>::Type;
  using Word = typename Page::Word;

 public:
  static constexpr int64_t kRows = AttentionSizes::kTileRows / 2;

  // `scratch` has scratch_floats() of the sizes.
  LatentTile(float* scratch, const AttentionSizes& z, float scale)
      : page_(scratch, z), size_(z.size), per_token_(z.per_group()), scale_(scale) {
    queries_ = reinterpret_cast<Word*>(scratch + z.latent_page_floats());
    scores_ = reinterpret_cast<float*>(queries_) + kRows * z.key_row();
    result_ = partial(scores_ + kRows * kKvTokens);
    state_ = partial(result_.o + kRows * size_);
    high_ = reinterpret_cast<int32_t*>(state_.o + kRows * size_);
  }

  // `first` rows of the item's first token come before those of the tile.
  void set_rows(int64_t rows, int64_t first) {
    rows_ = rows;
    first_ = first;
  }
  // Query row r, which sees the first `high` keys of the sequence.
  void set_row(int64_t r, const T* latent, const T* rope, int64_t high) {
    if constexpr (P::kUnit)
      page_.write_query(r, latent, rope, queries_);
    else
      page_.write_row(latent, rope, queries_ + r * page_.row_words());
    high_[r] = static_cast<int32_t>(high);
  }

  const Partial& page_scratch() const { return result_; }
  const Partial& state() const { return state_; }

  using Stored = typename Page::Stored;

  // Page number `page` of the sequence; the results go to `to`. `next` will be read next.
  void attend(const T* c_kv, const T* k_pe, int64_t page, const Partial& to, const Stored& next) {
    const int64_t base = page * kKvTokens;
    page_.set({c_kv, k_pe, clamp(high_[rows_ - 1] - base)}, next);  // the last row sees most
    if constexpr (P::kUnit) page_.score(this->unit_, rows_, queries_, scores_);
    each_token(base, [&](int64_t first, int64_t end, int64_t seen) {
      for (int64_t r = first; r < end; ++r) to.m[r] = to.l[r] = 0;
      if (seen == 0) return;
      if constexpr (!P::kUnit)
        page_.score(end - first, queries_ + first * page_.row_words(), seen, scores_ + first * kKvTokens);
      for (int64_t r = first; r < end; r += kPanelRows) {
        const int64_t block_end = r + kPanelRows < end ? r + kPanelRows : end;
        if (seen == kKvTokens)
          weigh<false>(r, block_end, seen, to);
        else
          weigh<true>(r, block_end, seen, to);
      }
    });
    if constexpr (P::kUnit) {
      each_token(base, [&](int64_t first, int64_t end, int64_t seen) {
        if (seen > 0) page_.weigh(this->unit_, scores_ + first * kKvTokens, end - first, seen, to.o + first * size_);
      });
    } else {
      for (int64_t c = 0; c < size_; c += Page::kColumns) {
        page_.set_columns(c);
        each_token(base, [&](int64_t first, int64_t end, int64_t seen) {
          if (seen > 0) page_.weigh(scores_ + first * kKvTokens, end - first, seen, to.o + first * size_);
        });
      }
    }
  }

  void merge_page(const Partial& state) { merge_rows(state, result_, rows_, size_); }

 private:
  Partial partial(float* at) const { return {at, at + kRows, at + 2 * kRows}; }
  static int64_t clamp(int64_t x) { return x < 0 ? 0 : x > kKvTokens ? kKvTokens : x; }
  // Rows of one token see the same keys. Calls use(first, end, keys seen).
  template <typename Use>
  void each_token(int64_t base, const Use& use) const {
    for (int64_t first = 0, end; first < rows_; first = end) {
      end = (first_ + first) / per_token_ * per_token_ + per_token_ - first_;
      if (end > rows_) end = rows_;
      use(first, end, clamp(high_[first] - base));
    }
  }

  template <bool kMasked>
  void weigh(int64_t from, int64_t end, int64_t seen, const Partial& to) {
    const Span span{0, seen}, weights{0, P::kUnit ? (seen + 31) / 32 * 32 : seen};
    for (int64_t r = from; r < end; ++r)
      to.m[r] = RowScores<P, kMasked>(scores_ + r * kKvTokens, span, weights, {}).scale(scale_);
    for (int64_t r = from; r < end; ++r)
      to.l[r] = RowScores<P, kMasked>(scores_ + r * kKvTokens, span, weights, {}).weigh(to.m[r]);
  }

#ifdef REPRISE_TILES
  TileUnit unit_;
#endif
  Page page_;
  int64_t size_, per_token_;
  float scale_;
  int64_t rows_ = 0, first_ = 0;
  Word* queries_;
  float* scores_;
  Partial result_, state_;
  int32_t* high_;
};

}  // namespace reprise::cpu::REPRISE_ISA
