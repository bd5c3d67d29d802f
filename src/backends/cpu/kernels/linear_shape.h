// How a linear kernel divides its work and its scratch memory: shared by the kernels and by the entries that reserve
// the workspace. Small constexpr-like functions with internal linkage, because kernel sources may not share inline code
// across instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/cpu_kernel.h"

namespace reprise::cpu {

constexpr int64_t kBlockRows = 96;  // rows of x that stay close while the weights stream past: 16 tiles of 6

// Rows per block for `rows` rows: as few blocks as possible, about equally long, whole tiles of 6.
static inline int64_t linear_row_block(int64_t rows) {
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  return blocks <= 1 ? rows : ((rows + blocks - 1) / blocks + 5) / 6 * 6;
}

// Floats from one widened row of x to the next; the extra line keeps rows off each other's cache sets.
static inline int64_t linear_x_stride(int64_t k) { return (k + 15) / 16 * 16 + 16; }

// Workspace bytes of one thread for 16-bit x.
static inline size_t linear_thread_bytes(int64_t rows, int64_t k) {
  return static_cast<size_t>((rows < kBlockRows ? rows : kBlockRows) * linear_x_stride(k)) * sizeof(float);
}

// The same where weights lie in blocks of 16 or 32 k: a row's sum of each block goes behind the row.
static inline int64_t packed_x_stride(int64_t k) { return linear_x_stride(k + (k + 15) / 16); }
static inline size_t packed_thread_bytes(int64_t rows, int64_t k) {
  return static_cast<size_t>((rows < kBlockRows ? rows : kBlockRows) * packed_x_stride(k)) * sizeof(float);
}

struct LinearShare {
  Range rows;
  Range columns;
};

// Columns are dealt out in whole panels where that is even or hardly matters, else in units of 16; rows where neither
// columns balance and there are enough rows.
static inline LinearShare linear_share(int64_t rows, int64_t n, int thread, int threads) {
  const int64_t panels = (n + 63) / 64;
  const int64_t unit = panels % threads == 0 || panels >= 32 * threads ? 64 : 16;
  const int64_t units = (n + unit - 1) / unit;
  const int64_t busiest = (units + threads - 1) / threads;
  if (rows >= 24 * threads && units * 10 < busiest * threads * 9) return {share(rows, 6, thread, threads), {0, n}};
  return {{0, rows}, share(n, unit, thread, threads)};
}

// A thread's share in parts that any thread can compute: blocks of rows, and of each the panels of its columns.
struct LinearParts {
  struct Part {
    int64_t row, rows, panel;
    int first, last;  // columns of the panel
  };
  LinearShare share;
  int64_t block, panels;  // rows of a block; panels of the columns
  LinearParts(int64_t rows, int64_t n, int thread, int threads)
      : share(linear_share(rows, n, thread, threads)),
        block(linear_row_block(share.rows.end - share.rows.begin)),
        panels(share.columns.begin < share.columns.end ? (share.columns.end + 63) / 64 - share.columns.begin / 64 : 0) {
  }
  int64_t count() const {
    const int64_t rows = share.rows.end - share.rows.begin;
    return rows > 0 ? (rows + block - 1) / block * panels : 0;
  }
  Part at(int64_t i) const {
    const int64_t row = share.rows.begin + i / panels * block, panel = share.columns.begin / 64 + i % panels;
    const int64_t left = share.rows.end - row, first = share.columns.begin - panel * 64,
                  last = share.columns.end - panel * 64;
    return {row, left < block ? left : block, panel, static_cast<int>(first > 0 ? first : 0),
            static_cast<int>(last < 64 ? last : 64)};
  }
};

// The same on tile registers, which take rows by 32: rows go first where every thread gets enough of them to hide the
// way of the weights, because a thread then packs its own rows alone and they stay closer; columns among those threads
// that share rows.
[[maybe_unused]] static inline LinearShare unit_share(int64_t rows, int64_t n, int thread, int threads) {
  constexpr int64_t kEnough = 128;
  int parts = threads;
  while (parts > 1 && (threads % parts != 0 || rows < kEnough * parts)) --parts;
  if (parts == 1) return linear_share(rows, n, thread, threads);
  const int across = threads / parts;
  return {share(rows, 32, thread / across, parts), share(n, 64, thread % across, across)};
}

}  // namespace reprise::cpu
