// A page of latents as the operands of both products on tile registers (attention_unit.h), in place of latent_page.h.
//
// Keys are left operands as they lie in the cache, so queries are right ones: they are turned round once for all pages,
// and the sums of 16 keys and 16 queries are turned back. A product is the same either way round. Every score is one
// chain over blocks of 32 numbers, those of the latent before those of the rotated part. For the values, pairs of rows
// are interleaved once for all rows of the tile.
#pragma once

#include "backends/cpu/kernels/attention_unit.h"
#include "backends/cpu/kernels/kv_run.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

class LatentUnitPage {
  using T = uint16_t;

 public:
  using Word = uint32_t;  // two numbers
  static constexpr int64_t kColumns = 0;

  // `scratch` has AttentionSizes::latent_page_floats().
  LatentUnitPage(float* scratch, const AttentionSizes& z)
      : latent_(z.size),
        rope_(z.key_size - z.size),
        latent_words_(AttentionSizes::whole_vectors(latent_) / 2),
        rope_words_(AttentionSizes::whole_vectors(rope_) / 2),
        in_place_(latent_ % kUnitNumbers == 0 && rope_ % kUnitNumbers == 0),
        rows_(reinterpret_cast<Word*>(scratch)),
        pairs_(rows_ + kKvTokens * row_words()),
        spare_(pairs_ + kKvTokens / 2 * latent_) {}

  int64_t row_words() const { return latent_words_ + rope_words_; }
  // Query row r among `queries`, of which 16 lie side by side, word by word.
  void write_query(int64_t r, const T* latent, const T* rope, Word* queries) const {
    Word* to = queries + r / kUnitRows * kUnitRows * row_words() + r % kUnitRows;
    const auto put = [&](const T* from, int64_t n, int64_t words) {
      for (int64_t w = 0; w < words; ++w, to += kUnitRows)
        *to = (2 * w < n ? from[2 * w] : 0u) | (2 * w + 1 < n ? static_cast<Word>(from[2 * w + 1]) << 16 : 0u);
    };
    put(latent, latent_, latent_words_);
    put(rope, rope_, rope_words_);
  }

  // Rows as they lie in the cache.
  struct Stored {
    const T* c_kv = nullptr;
    const T* k_pe = nullptr;
    int64_t tokens = 0;
  };

  // The page that is looked at from now on, and what will be read next: it comes into the cache meanwhile.
  void set(const Stored& page, const Stored& next) {
    next_ = next;
    keys_ = page;
    if (!in_place_)
      for (int64_t t = 0; t < page.tokens; ++t) {
        pad(page.c_kv + t * latent_, latent_, rows_ + t * row_words(), latent_words_);
        pad(page.k_pe + t * rope_, rope_, rows_ + t * row_words() + latent_words_, rope_words_);
      }
    // The last pair's second token may never have been written: unit_values masks it.
    for (int64_t t = 0; t < page.tokens; t += 2)
      put_value_pair(page.c_kv + t * latent_, page.c_kv + std::min(t + 1, page.tokens - 1) * latent_, latent_,
                     reinterpret_cast<T*>(pairs_ + t / 2 * latent_));
  }

  // Scores of `rows` queries and all keys of the page, rounded up to whole runs of 16: what lies behind the last, and
  // what a row may not see, is the caller's to hide. out[r][key], kKvTokens apart, for rows up to a multiple of four.
  void score(TileUnit& unit, int64_t rows, const Word* queries, float* out) {
    unit.shape(kUnitRows, kUnitRows, kUnitRows);
    for (int64_t j = 0; j < keys_.tokens; j += 2 * kUnitRows) {
      come(j);
      const bool two = keys_.tokens - j > kUnitRows;
      for (int64_t r = 0; r < rows; r += 2 * kUnitRows) {
        const Word* q = queries + r * row_words();
        float* to = out + r * kKvTokens + j;
        if (two && rows - r > kUnitRows)
          score_tiles<2, 2>(unit, j, q, rows - r, to);
        else if (two)
          score_tiles<2, 1>(unit, j, q, rows - r, to);
        else if (rows - r > kUnitRows)
          score_tiles<1, 2>(unit, j, q, rows - r, to);
        else
          score_tiles<1, 1>(unit, j, q, rows - r, to);
      }
    }
  }

  // Outputs of the weights (bf16, zeros behind `seen` up to a multiple of 32) of the first `seen` keys.
  void weigh(TileUnit& unit, const float* weights, int64_t rows, int64_t seen, float* o) const {
    for (int64_t r = 0; r < rows; r += kUnitGroup)
      unit_values(unit, weights + r * kKvTokens, static_cast<int>(std::min<int64_t>(rows - r, kUnitGroup)),
                  {pairs_, latent_, spare_, nullptr, nullptr}, 0, seen, false, o + r * latent_);
  }

 private:
  static void pad(const T* from, int64_t n, Word* out, int64_t words) {
    std::memcpy(out, from, static_cast<size_t>(n) * sizeof(T));
    std::memset(reinterpret_cast<T*>(out) + n, 0, static_cast<size_t>(2 * words - n) * sizeof(T));
  }
  // Those rows of the next page that have the places of 32 keys from j on: what is long step by step, because a
  // processor has room for some twenty lines on their way.
  void come(int64_t j) {
    const int64_t rows = std::min<int64_t>(next_.tokens - j, 2 * kUnitRows);
    if (rows <= 0) return;
    ahead_ = reinterpret_cast<const char*>(next_.c_kv + j * latent_);
    ahead_end_ = ahead_ + rows * latent_ * 2;
    const auto* rope = reinterpret_cast<const char*>(next_.k_pe + j * rope_);
    for (int64_t b = 0; b < rows * rope_ * 2; b += 64) fetch_second_level(rope + b);
  }
  void some() {
    for (int i = 0; i < 2 * kUnitRows && ahead_ < ahead_end_; ++i, ahead_ += 64) fetch_second_level(ahead_);
  }

  // kKeys runs of 16 keys from j on and kRows tiles of 16 queries.
  template <int kKeys, int kRows>
  void score_tiles(TileUnit& unit, int64_t j, const Word* queries, int64_t rows, float* out) {
    alignas(64) float sums[kKeys * kRows][kUnitRows * kUnitRows];
    unit.clear<0>();
    if constexpr (kRows == 2) unit.clear<1>();
    if constexpr (kKeys == 2) unit.clear<2>();
    if constexpr (kKeys == 2 && kRows == 2) unit.clear<3>();
    const Word* q = queries;
    const auto part = [&](const void* from, int64_t stride, int64_t words) __attribute__((always_inline)) {
      const auto* keys = static_cast<const uint8_t*>(from);
      for (int64_t w = 0; w < words; w += kUnitPairs, keys += kUnitRowBytes, q += kUnitPairs * kUnitRows) {
        some();
        unit.load<4>(keys, stride);
        if constexpr (kKeys == 2) unit.load<5>(keys + kUnitRows * stride, stride);
        unit.load<6>(q, kUnitRowBytes);
        unit.dot_bf16<0, 4, 6>();
        if constexpr (kKeys == 2) unit.dot_bf16<2, 5, 6>();
        if constexpr (kRows == 2) {
          unit.load<7>(q + kUnitRows * row_words(), kUnitRowBytes);
          unit.dot_bf16<1, 4, 7>();
          if constexpr (kKeys == 2) unit.dot_bf16<3, 5, 7>();
        }
      }
    };
    if (in_place_) {
      part(keys_.c_kv + j * latent_, latent_ * 2, latent_words_);
      part(keys_.k_pe + j * rope_, rope_ * 2, rope_words_);
    } else {
      part(rows_ + j * row_words(), row_words() * 4, row_words());
    }
    unit.store<0>(sums[0], kUnitRowBytes);
    if constexpr (kRows == 2) unit.store<1>(sums[1], kUnitRowBytes);
    if constexpr (kKeys == 2) unit.store<2>(sums[kRows], kUnitRowBytes);
    if constexpr (kKeys == 2 && kRows == 2) unit.store<3>(sums[3], kUnitRowBytes);
    for (int key = 0; key < kKeys; ++key)
      for (int tile = 0; tile < kRows; ++tile)
        turn_back(sums[key * kRows + tile], rows - tile * kUnitRows,
                  out + tile * kUnitRows * kKvTokens + key * kUnitRows);
  }

  // Rows of 16 queries become columns, in squares of four.
  static void turn_back(const float* sums, int64_t rows, float* out) {
    for (int64_t r = 0; r < kUnitRows && r < rows; r += 4)
      for (int64_t key = 0; key < kUnitRows; key += 4)
        transpose<uint32_t>(reinterpret_cast<const char*>(sums + key * kUnitRows + r), kUnitRowBytes,
                            reinterpret_cast<char*>(out + r * kKvTokens + key), kKvTokens * 4);
  }

  int64_t latent_, rope_, latent_words_, rope_words_;
  bool in_place_;
  Word* rows_;
  Word* pairs_;
  Word* spare_;
  Stored keys_, next_;
  const char* ahead_ = nullptr;
  const char* ahead_end_ = nullptr;
};

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
