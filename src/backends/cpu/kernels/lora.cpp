// lora_shrink and lora_expand: the two thin products of a LoRA adapter, row by row by the slot that the row names.
// Threads share rows where there are enough, else columns; a number of a result has one chain of sums either way, which
// no other row has part in.
#include "ops/args/lora.h"
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/elements.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// What a thread computes: rows and columns.
struct Tile {
  Range rows, columns;
};

Tile tile_of(int64_t rows, int64_t columns, int64_t unit, const Launch& l) {
  constexpr int64_t kRowsOfThread = 4;
  if (rows >= kRowsOfThread * l.threads) return {l.share(rows), {0, columns}};
  return {{0, rows}, l.share(columns, unit)};
}

// x times kCount rows of a.
template <class E, int kCount>
[[gnu::always_inline]] inline void dots(const typename E::Type* x, const typename E::Type* a, int64_t width,
                                        float scale, float* h) {
  F32x16 sums[kCount] = {};
  each_sixteen(
      width, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const F32x16 v = load_n<E>(x + i, n);
        for (int c = 0; c < kCount; ++c) sums[c] = fma(v, load_n<E>(a + c * width + i, n), sums[c]);
      });
  for (int c = 0; c < kCount; ++c) h[c] = reduce_add(sums[c]) * scale;
}

template <class E>
void shrink(const LoraShrinkArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T *x = a.x, *weight = a.a;
  const int32_t *ids = a.ids, *ranks = a.ranks;
  const float* scales = a.scales;
  float* h = a.h;
  const Tile mine = tile_of(l.size(a.rows), a.rank, 1, l);
  for (int64_t r = mine.rows.begin; r < mine.rows.end; ++r) {
    const int64_t slot = ids[r] - 1;
    const int64_t rank = slot < 0 ? 0 : ranks[slot];
    const T* from = x + r * a.width;
    float* to = h + r * a.rank;
    int64_t k = mine.columns.begin;
    const int64_t end = rank < mine.columns.end ? rank : mine.columns.end;
    for (; k + 4 <= end; k += 4)
      dots<E, 4>(from, weight + (slot * a.rank + k) * a.width, a.width, scales[slot], to + k);
    for (; k < end; ++k) dots<E, 1>(from, weight + (slot * a.rank + k) * a.width, a.width, scales[slot], to + k);
    for (; k < mine.columns.end; ++k) to[k] = 0;
  }
}

// y[0, 16 kCount) += h b, for rows of b that lie `ldb` apart; `n` < 16 of one vector.
template <class E, int kCount>
[[gnu::always_inline]] inline void add_product(const float* h, int64_t rank, const typename E::Type* b, int64_t ldb,
                                               typename E::Type* y, int64_t n = 16) {
  F32x16 sums[kCount] = {};
  for (int64_t k = 0; k < rank; ++k) {
    const F32x16 v = splat(h[k]);
    for (int c = 0; c < kCount; ++c) sums[c] = fma(v, load_n<E>(b + k * ldb + 16 * c, n), sums[c]);
  }
  for (int c = 0; c < kCount; ++c) store_n<E>(y + 16 * c, load_n<E>(y + 16 * c, n) + sums[c], n);
}

template <class E>
void expand(const LoraExpandArgs& a, const Launch& l) {
  using T = typename E::Type;
  const T* weight = a.b;
  const int32_t *ids = a.ids, *ranks = a.ranks;
  const float* h = a.h;
  T* y = a.y;
  const Tile mine = tile_of(l.size(a.rows), a.columns, 16, l);
  for (int64_t r = mine.rows.begin; r < mine.rows.end; ++r) {
    const int64_t slot = ids[r] - 1;
    const int64_t rank = slot < 0 ? 0 : ranks[slot];
    if (rank == 0) continue;
    const float* from = h + r * a.rank;
    const T* b = weight + slot * a.rank * a.columns;
    T* to = y + r * a.width + a.begin;
    int64_t c = mine.columns.begin;
    for (; c + 64 <= mine.columns.end; c += 64) add_product<E, 4>(from, rank, b + c, a.columns, to + c);
    for (; c + 16 <= mine.columns.end; c += 16) add_product<E, 1>(from, rank, b + c, a.columns, to + c);
    if (c < mine.columns.end) add_product<E, 1>(from, rank, b + c, a.columns, to + c, mine.columns.end - c);
  }
}

}  // namespace

REPRISE_KERNELS(lora_shrink, shrink)
REPRISE_KERNELS(lora_expand, expand)

}  // namespace reprise::cpu::REPRISE_ISA
