// How the work of one attention call is divided, without looking at a single key.
//
// An item is (sequence, key/value head, tile of query rows); a row is one query head of one token, and all query heads
// that share a key/value head are rows of one tile, so a page is read once for them. Items lie on a line in the order
// sequence, head, tile; each is as long as its cost, and every thread takes an equal stretch of the line. A small item
// (a decoding sequence) that a border cuts is divided at pages: the thread that has its first page leaves the merged
// state, the others leave each page's partial result, and the second part merges them in page order. That is the same
// arithmetic in the same order as a single thread's, so the cut does not show in the bits. Large items belong whole to
// the thread that has their middle, or to one that helps it (attention_walk.h).
//
// Kernel sources of every instruction set and the registration use this: nothing here may become a function with
// external linkage.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/kv_layout.h"
#include "device/thunk.h"

namespace reprise::cpu {

struct AttentionSizes {
  static constexpr int64_t kTileRows = 144;
  static constexpr int64_t kMaxSplitRows = 32;
  static constexpr int64_t kMaxSplitPages = 2048;
  // Reading a run of keys and its values costs about as much as computing this many rows with it; so does, for a page,
  // what has to be done once.
  static constexpr int64_t kReadCost = 8;

  int64_t heads = 0, kv_heads = 0, size = 0, sequences = 0, columns = 0, window = 0, chunk = 0;
  int64_t key_size = 0;  // of latents, which are keys as a whole and values in their first `size` numbers; else 0

  // The first key that the row of a position sees: of its window, or of its chunk; 0: all.
  [[gnu::always_inline]] int64_t oldest(int64_t position) const {
    if (chunk > 0) return position / chunk * chunk;
    return window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
  }
  [[gnu::always_inline]] int64_t per_group() const { return heads / kv_heads; }
  // Rows of the tiles of a head that has `rows` in all. Large tiles make the most of a block of floats; short prompts
  // need some to share out. Of latents, rows and a page as floats should stay in the second-level cache.
  [[gnu::always_inline]] int64_t tile_rows(int64_t rows) const {
    return key_size == 0 && rows >= 4 * kTileRows ? kTileRows : kTileRows / 2;
  }
  // Rows of an item that may be cut at pages: what decoding one token has.
  [[gnu::always_inline]] int64_t split_rows() const { return per_group() <= kMaxSplitRows ? per_group() : 0; }
  [[gnu::always_inline]] int64_t split_pages() const { return columns < kMaxSplitPages ? columns : kMaxSplitPages; }

  // A block of keys (head size x columns) or values (tokens x columns) as floats.
  static constexpr int64_t kWideColumns = 64;
  [[gnu::always_inline]] static int64_t wide_floats(int64_t size) {
    return kWideColumns * (size > kKvTokens ? size : kKvTokens);
  }
  // Room for a query: as floats, or in bf16 up to a multiple of 32 numbers.
  [[gnu::always_inline]] static int64_t query_floats(int64_t size) { return size > 16 ? size : 16; }
  // Floats of one thread's scratch: queries, scores, a page's outputs, the state's outputs, six numbers per row, a wide
  // block.
  [[gnu::always_inline]] int64_t scratch_floats() const {
    if (key_size > 0) return latent_page_floats() + kTileRows / 2 * (key_row() + 2 * size + kKvTokens + 6);
    return kTileRows * (query_floats(size) + 2 * size + kKvTokens + 6) + wide_floats(size);
  }
  // Numbers of the latent or of the rotated part, padded to whole vectors of pairs.
  [[gnu::always_inline]] static int64_t whole_vectors(int64_t numbers) { return (numbers + 31) / 32 * 32; }
  // Floats from one latent to the next: whole vectors, and rows off each other's cache sets.
  [[gnu::always_inline]] int64_t key_row() const { return whole_vectors(size) + whole_vectors(key_size - size) + 16; }
  // A page as operands: its rows, and behind them a block of columns, which is also how far the last row is read.
  // On tile registers: rows of pairs, pairs of rows, and a block of the latter.
  [[gnu::always_inline]] int64_t latent_page_floats() const {
    return kKvTokens * (key_row() + kWideColumns / 2) + kWideColumns / 4 * size;
  }
  // One state or partial: maximum, sum and outputs of every row.
  [[gnu::always_inline]] int64_t slot_floats() const { return split_rows() * (2 + size); }
  // A thread leaves at most one state, and partials of at most one item. Whole cache lines, so that the vectors of
  // every thread's scratch lie within lines.
  [[gnu::always_inline]] int64_t thread_floats(int threads) const {
    return (scratch_floats() + (threads > 1 ? (1 + split_pages()) * slot_floats() : 0) + 15) / 16 * 16;
  }
};

struct AttentionItem {
  int64_t sequence = 0, kv_head = 0;
  int64_t first_row = 0, rows = 0;    // counted over (token of this step, head of the group)
  int64_t first_page = 0, pages = 0;  // columns of the page table
  int64_t tokens = 0, context = 0;    // of the sequence
  // Place on the line. The last page may be filled in part.
  int64_t start = 0, page_cost = 0, last_cost = 0;
  bool divisible = false;

  [[gnu::always_inline]] int64_t cost() const { return pages > 0 ? page_cost * (pages - 1) + last_cost : last_cost; }
};

// Fills what depends on the tile alone.
[[maybe_unused]] static inline void set_tile(const AttentionSizes& z, int64_t tile, AttentionItem& item) {
  const int64_t all = item.tokens * z.per_group();
  const int64_t tile_rows = z.tile_rows(all);
  item.first_row = tile * tile_rows;
  item.rows = all - item.first_row < tile_rows ? all - item.first_row : tile_rows;
  const int64_t before = item.context - item.tokens;  // position of the first token
  const int64_t first = before + item.first_row / z.per_group();
  const int64_t last = before + (item.first_row + item.rows - 1) / z.per_group();
  const int64_t low = z.oldest(first);
  item.first_page = low / kKvTokens;
  item.pages = last < low ? 0 : last / kKvTokens + 1 - item.first_page;
  const int64_t run_cost = AttentionSizes::kReadCost + item.rows, last_runs = last % kKvTokens / kKeyRun + 1;
  item.page_cost = run_cost * (1 + kKvTokens / kKeyRun);
  item.last_cost = run_cost * (1 + (item.pages > 0 ? last_runs : 0));
  item.divisible = item.rows <= z.split_rows() && item.pages > 1 && item.pages <= z.split_pages();
}

// Calls visit(item) for the items that touch [from, to) of the line; returns the length of the whole line.
template <typename Visit>
[[maybe_unused]] static inline int64_t walk_items(const AttentionSizes& z, const int32_t* context_lens,
                                                  const int32_t* cu_seqlens, int64_t from, int64_t to, Visit visit) {
  int64_t at = 0;
  for (int64_t r = 0; r < z.sequences; ++r) {
    AttentionItem item;
    item.sequence = r;
    item.tokens = cu_seqlens[r + 1] - cu_seqlens[r];
    item.context = context_lens[r];
    if (item.tokens <= 0) continue;
    const int64_t all = item.tokens * z.per_group(), tile_rows = z.tile_rows(all);
    const int64_t tiles = (all + tile_rows - 1) / tile_rows;
    int64_t head_cost = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      set_tile(z, tile, item);
      head_cost += item.cost();
    }
    for (item.kv_head = 0; item.kv_head < z.kv_heads; ++item.kv_head, at += head_cost) {
      if (at >= to || at + head_cost <= from) continue;
      item.start = at;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        set_tile(z, tile, item);
        if (item.start < to && item.start + item.cost() > from) visit(item);
        item.start += item.cost();
      }
    }
  }
  return at;
}

struct PageRange {
  int64_t begin = 0, end = 0;  // relative to the item's first page
};

// The pages of an item that belong to the stretch [from, to) of the line.
[[maybe_unused]] static inline PageRange pages_of(const AttentionItem& item, int64_t from, int64_t to) {
  if (!item.divisible) {
    const int64_t middle = item.start + item.cost() / 2;
    return {0, middle >= from && middle < to ? item.pages : -1};
  }
  auto first_at = [&](int64_t border) {
    const int64_t page = border <= item.start ? 0 : (border - item.start + item.page_cost - 1) / item.page_cost;
    return page < item.pages ? page : item.pages;
  };
  return {first_at(from), first_at(to)};
}

}  // namespace reprise::cpu
