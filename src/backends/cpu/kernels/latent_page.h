// A page of latents as the operands of both products: keys as rows of words (latent_score.h), values as panels
// (attention_panel.h), 64 columns at a time.
//
// Three forms. Floats: rows are widened once and serve both products. Pairs on processors whose bf16 dot instruction
// is fast: keys are multiplied where they lie in the cache, pairs of rows are interleaved for the values. Pairs as
// floats: the same products in the same order by two multiply-adds, odd number first: rows are widened with the odd
// numbers of every 32 before the even ones, and rows 2 i and 2 i + 1 change places.
#pragma once

#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/latent_score.h"

namespace reprise::cpu::REPRISE_ISA {

// E: how latents are stored. P: PanelF32 for floats, else which panel of pairs.
template <typename E, typename P>
class LatentPage {
  using T = typename E::Type;

 public:
  static constexpr bool kPairs = P::kStep == 2, kDot = kPairs && P::kFactors == 1;
  static constexpr int kSwap = kPairs && !kDot ? 1 : 0;
  static constexpr int64_t kColumns = kBlockVecs * kLanes;
#if defined(__AVX512BF16__)
  using Words = std::conditional_t<kDot, ScorePairs, ScoreFloats>;
#else
  using Words = ScoreFloats;
#endif
  using Word = typename Words::Word;
  using Panel = std::conditional_t<kDot, P, PanelWide>;
  static_assert(sizeof(Word) == sizeof(float));

  // `scratch` has AttentionSizes::latent_page_floats().
  LatentPage(float* scratch, const AttentionSizes& z)
      : latent_(z.size),
        rope_(z.key_size - z.size),
        latent_words_(AttentionSizes::whole_vectors(latent_) / Words::kNumbers),
        rope_words_(AttentionSizes::whole_vectors(rope_) / Words::kNumbers),
        row_(kDot ? latent_words_ + rope_words_ : z.key_row()),
        in_place_(kDot && latent_ % 32 == 0 && rope_ % 32 == 0),
        rows_(reinterpret_cast<Word*>(scratch)),
        panel_(reinterpret_cast<typename Panel::Cell*>(scratch) + kKvTokens * row_) {}

  // Words from one row of queries to the next.
  int64_t row_words() const { return row_; }
  // A row of queries or keys.
  void write_row(const T* latent, const T* rope, Word* out) const {
    write_part(latent, latent_, out);
    write_part(rope, rope_, out + latent_words_);
  }

  // Rows as they lie in the cache.
  struct Stored {
    const T* c_kv = nullptr;
    const T* k_pe = nullptr;
    int64_t tokens = 0;
  };

  // The page that is looked at from now on, and what will be read next: it comes into the cache meanwhile.
  void set(const Stored& page, const Stored& next) {
    const auto& [c_kv, k_pe, tokens] = page;
    tokens_ = tokens;
    next_ = next;
    if (in_place_) {
      parts_[0] = {reinterpret_cast<const Word*>(c_kv), latent_words_, latent_words_ / 16};
      parts_[1] = {reinterpret_cast<const Word*>(k_pe), rope_words_, rope_words_ / 16};
      return;
    }
    for (int64_t t = 0; t < tokens; ++t) write_row(c_kv + t * latent_, k_pe + t * rope_, rows_ + (t ^ kSwap) * row_);
    parts_[0] = {rows_, row_, latent_words_ / 16};
    parts_[1] = {rows_ + latent_words_, row_, rope_words_ / 16};
  }

  // Scores of `rows` queries and all keys before `seen`, which is rounded up to whole fours: what lies behind it, or
  // was never written, is the caller's to hide.
  void score(int64_t rows, const Word* q, int64_t seen, float* out) {
    for (int64_t j = 0; j < seen; j += kScoreKeys) {
      Coming coming = coming_at(j, (rows + kScoreRows - 1) / kScoreRows);
      for (int64_t r = 0; r < rows; r += kScoreRows) {
        coming.some();
        const KeyPart<Word> keys[2] = {{parts_[0].at + j * parts_[0].stride, parts_[0].stride, parts_[0].vectors},
                                       {parts_[1].at + j * parts_[1].stride, parts_[1].stride, parts_[1].vectors}};
        score_rows<Words, kSwap>(rows - r < kScoreRows ? rows - r : kScoreRows, q + r * row_, row_, keys,
                                 out + r * kKvTokens + j);
      }
    }
    next_.tokens = 0;  // once is enough
  }

  // Makes the values' columns [c, c + kColumns) ready for weigh().
  void set_columns(int64_t c) {
    column_ = c;
#if defined(__AVX512BF16__)
    if constexpr (kDot) interleave(c);
#endif
  }

  // Those columns times the weights (scores after RowScores<P>) of the first `seen` keys.
  void weigh(const float* weights, int64_t rows, int64_t seen, float* o) const {
    for (int64_t r = 0; r < rows; r += kPanelRows)
      weigh_block(weights + r * kKvTokens, rows - r < kPanelRows ? rows - r : kPanelRows, seen, o + r * latent_);
  }

 private:
  // What shall come into the cache meanwhile, in several steps: a processor has room for some twenty lines on their
  // way, and a burst of more holds up its loads.
  struct Coming {
    const char* at[2];
    int64_t lines[2];
    int64_t steps;
    void some() {
      for (int i = 0; i < 2; ++i) {
        const int64_t now = (lines[i] + steps - 1) / steps;
        for (int64_t l = 0; l < now; ++l) fetch_second_level(at[i] + 64 * l);
        at[i] += 64 * now;
        lines[i] -= now;
      }
      --steps;
    }
  };
  // Rows j to j + 3 of the next page.
  Coming coming_at(int64_t j, int64_t steps) const {
    const auto lines = [&](int64_t width) {
      return j < next_.tokens ? (kScoreKeys * width * static_cast<int64_t>(sizeof(T)) + 63) / 64 : 0;
    };
    return {{reinterpret_cast<const char*>(next_.c_kv + j * latent_),
             reinterpret_cast<const char*>(next_.k_pe + j * rope_)},
            {lines(latent_), lines(rope_)},
            steps};
  }

  void weigh_block(const float* weights, int64_t rows, int64_t seen, float* o) const {
    constexpr int64_t kBlockFloats = kPanelRows * kColumns;
    const int64_t columns = latent_ - column_ < kColumns ? latent_ - column_ : kColumns;
    const bool aside = kSwap != 0 || columns < kColumns;
    alignas(64) float block[kBlockFloats];
    Product<Panel> p{};
    p.left = reinterpret_cast<const typename Panel::Factor*>(weights);
    p.left_stride = kKvTokens;
    p.out = aside ? block : o + column_;
    p.out_stride = aside ? kColumns : latent_;
    if constexpr (kDot) {
      p.panel = panel_;
      p.panel_stride = kColumns;
      p.steps = (seen + 1) / 2;
    } else {
      p.panel = reinterpret_cast<const typename Panel::Cell*>(rows_) + column_;
      p.panel_stride = row_;
      p.steps = kSwap ? (seen + 1) / 2 * 2 : seen;
    }
    // A pair may hold a token that is not seen, or was never written: zero times anything must be zero.
    if (kPairs && seen % 2 != 0) p.last_mask = 0x0000ffffu;
    product_rows<Panel, kBlockVecs>(p, rows);
    if (!aside) return;
    for (int64_t r = 0; r < rows; ++r) copy_columns(block + r * kColumns, columns, o + r * latent_ + column_);
  }

  // `n` numbers as words, padded with zeros to whole vectors of pairs.
  static void write_part(const T* from, int64_t n, Word* out) {
    if constexpr (kDot) {
      const int64_t whole = AttentionSizes::whole_vectors(n);
      std::memcpy(out, from, static_cast<size_t>(n) * sizeof(T));
      std::memset(reinterpret_cast<T*>(out) + n, 0, static_cast<size_t>(whole - n) * sizeof(T));
    } else {
      for (int64_t d = 0; d < n; d += 32, out += 32) {
        const F32x16 a = load_n<E>(from + d, n - d), b = n - d > 16 ? load_n<E>(from + d + 16, n - d - 16) : zero();
        store(out, kSwap ? odd_lanes(a, b) : a);
        store(out + 16, kSwap ? even_lanes(a, b) : b);
      }
    }
  }

  static void copy_columns(const float* block, int64_t columns, float* o) {
    if constexpr (kSwap == 0) {
      for (int64_t d = 0; d < columns; d += 16) store_n<F32>(o + d, load(block + d), columns - d);
    } else {
      for (int64_t d = 0; d < columns; d += 32) {
        const F32x16 odd = load(block + d), even = load(block + d + 16);
        store_n<F32>(o + d, interleave_low(even, odd), columns - d);
        if (columns - d > 16) store_n<F32>(o + d + 16, interleave_high(even, odd), columns - d - 16);
      }
    }
  }

#if defined(__AVX512BF16__)
  // Cells of pairs of tokens from rows of pairs of numbers, for 64 columns: what is read and written stays in the
  // first-level cache.
  void interleave(int64_t c) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54,
                                          22, 53, 21, 52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
    const KeyPart<Word>& keys = parts_[0];
    const int64_t end = c / 2 + kColumns / 2 < latent_words_ ? c / 2 + kColumns / 2 : latent_words_;
    typename Panel::Cell* to = panel_;
    for (int64_t t = 0; t < tokens_; t += 2, to += kColumns) {
      const Word* a = keys.at + t * keys.stride;
      const bool two = t + 1 < tokens_;
      for (int64_t w = c / 2; w < end; w += 16) {
        const __m512i x = _mm512_loadu_si512(a + w);
        const __m512i y = two ? _mm512_loadu_si512(a + keys.stride + w) : _mm512_setzero_si512();
        _mm512_storeu_si512(to + 2 * w - c, _mm512_permutex2var_epi16(x, low, y));
        _mm512_storeu_si512(to + 2 * w - c + 16, _mm512_permutex2var_epi16(x, high, y));
      }
    }
  }
#endif

  int64_t latent_, rope_, latent_words_, rope_words_, row_;
  bool in_place_;
  Word* rows_;
  typename Panel::Cell* panel_;
  KeyPart<Word> parts_[2] = {};
  int64_t tokens_ = 0, column_ = 0;
  Stored next_;
};

}  // namespace reprise::cpu::REPRISE_ISA
