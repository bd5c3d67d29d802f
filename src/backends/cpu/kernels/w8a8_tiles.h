// The machinery of ops around a product of int8 matrices: blocks of rows and panels of weights through register tiles,
// and what is done with the int32 sums of each tile left to the op.
//
// Sums of int8 products are exact in int32, so tiles, teams and instruction sets cannot differ. One design serves one
// row and many: a block of rows is prepared once and stays in the second-level cache while the weights stream past, a
// panel is used by all row tiles of the block while the next one is fetched.
//
// avx512 has an instruction for four products of bytes without a sign (x) and with one (weights). It gets x + 128, and
// the sums start at the panel's header (backends/cpu/layout.h), which takes the difference away. avx2 and baseline of
// x86-64 widen both sides to 16 bits: the instruction of theirs that takes bytes saturates. The sets of aarch64
// multiply bytes with a sign. On tile registers (unit_products.h) blocks of more than kTileRows rows go that way.
//
// Everything here has internal linkage, as in a source file of its own.
#pragma once

#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/parts.h"
#include "backends/cpu/kernels/tile.h"
#include "backends/cpu/kernels/w8a8_shape.h"
#ifdef REPRISE_TILES
#include "backends/cpu/kernels/unit_products.h"
#endif

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kWordBytes = 4 * kPanelColumns;    // four k of a panel
constexpr int64_t kHeaderBytes = 4 * kPanelColumns;  // its header
constexpr int64_t kW8A8Ahead = 8192;                 // how far ahead a single pass over the weights fetches
constexpr int kFewTiles = 8;  // so many share a panel block by block, while it is in the first-level cache

// Groups of four k that `tiles` row tiles go through before the next block, in blocks about equally long: 16 KiB, 32
// where there is more to compute while the next is fetched, all where loading and storing the sums costs more than a
// panel from the second-level cache.
constexpr int64_t block_groups(int tiles, int64_t groups) {
  const int64_t depth = tiles <= 4 ? 64 : 128;
  if (tiles == 1 || tiles > kFewTiles || groups < 2 * depth) return groups;
  const int64_t blocks = groups / depth;
  return (groups + blocks - 1) / blocks;
}

#if defined(__AVX512VNNI__)
constexpr int kXWords = 1;  // of a prepared row per group of four k
using IReg = __m512i;
inline IReg ireg_load(const void* p) { return _mm512_loadu_si512(p); }
inline void ireg_store(int32_t* p, IReg v) { _mm512_storeu_si512(p, v); }
inline IReg ireg_splat(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
// Assembly, because GCC 12 keeps accumulators of the intrinsic in memory.
inline void dot(IReg& sum, IReg x, IReg w) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w)); }
#elif defined(__AVX2__)
constexpr int kXWords = 2;
using IReg = __m256i;
inline IReg ireg_load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void ireg_store(int32_t* p, IReg v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline IReg ireg_zero() { return _mm256_setzero_si256(); }
inline IReg ireg_splat(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
inline IReg even_bytes(IReg w) { return _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8); }
inline IReg odd_bytes(IReg w) { return _mm256_srai_epi16(w, 8); }
inline void dot(IReg& sum, IReg x, IReg w) { sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }
// The same for tall tiles, in assembly that stays in order: GCC 12 loads the words of all rows before it multiplies
// with the first one, and keeps them in memory.
constexpr int kInOrder = 5;  // rows from which that is faster
inline IReg splat_in_order(const uint32_t& x) {
  IReg word;
  asm volatile("vpbroadcastd %1, %0" : "=x"(word) : "m"(x));
  return word;
}
inline void dot_in_order(IReg& sum, IReg x, IReg w) {
  IReg pairs;
  asm volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(pairs) : "x"(x), "x"(w));
}
// acc[m][j] += the words of MR rows times those of a group, for all columns one half of the words after the other.
template <int MR, int NV>
inline __attribute__((always_inline)) void add_in_order(IReg (&acc)[MR][NV], const RowsOfThree<uint32_t, MR>& x,
                                                        const int8_t* w) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    IReg b[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const IReg bytes = ireg_load(w + j * 4 * kLanes);
      b[j] = half == 0 ? even_bytes(bytes) : odd_bytes(bytes);
    }
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const IReg a = splat_in_order(x.of(m, half));
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) dot_in_order(acc[m][j], a, b[j]);
    }
  }
}
#elif defined(__x86_64__)
constexpr int kXWords = 2;
using IReg = __m128i;
inline IReg ireg_load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void ireg_store(int32_t* p, IReg v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
inline IReg ireg_zero() { return _mm_setzero_si128(); }
inline IReg ireg_splat(uint32_t x) { return _mm_set1_epi32(static_cast<int>(x)); }
inline IReg even_bytes(IReg w) { return _mm_srai_epi16(_mm_slli_epi16(w, 8), 8); }
inline IReg odd_bytes(IReg w) { return _mm_srai_epi16(w, 8); }
inline void dot(IReg& sum, IReg x, IReg w) { sum = _mm_add_epi32(sum, _mm_madd_epi16(x, w)); }
#elif defined(__aarch64__)
constexpr int kXWords = 1;
using IReg = int32x4_t;
inline IReg ireg_load(const void* p) { return vreinterpretq_s32_s8(vld1q_s8(static_cast<const int8_t*>(p))); }
inline void ireg_store(int32_t* p, IReg v) { vst1q_s32(p, v); }
inline IReg ireg_zero() { return vdupq_n_s32(0); }
inline IReg ireg_splat(uint32_t x) { return vdupq_n_s32(static_cast<int32_t>(x)); }
// Four products of bytes in each lane. Without the instruction a sum of two products in 16 bits would overflow for
// -128 * -128 twice, so that they are widened before they are added.
inline void dot(IReg& sum, IReg x, IReg w) {
  const int8x16_t a = vreinterpretq_s8_s32(x), b = vreinterpretq_s8_s32(w);
#if defined(__ARM_FEATURE_DOTPROD)
  sum = vdotq_s32(sum, a, b);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(a, b));
  sum = vaddq_s32(sum, vpaddq_s32(low, high));
#endif
}
#endif

// One row of x as the tiles want it. avx512: x + 128 as bytes, four to a word. aarch64: bytes, four to a word. Others:
// of four neighbours the first and third in one word, the second and fourth in the next, 16 bits each. What fills the
// last group up meets weights of zero.
inline void prepare_row(const int8_t* x, int64_t k, uint32_t* out) {
  for (int64_t i = 0; i < k; i += 64) {
    int8_t padded[64] = {};
    const int8_t* from = x + i;
    if (k - i < 64) {
      for (int64_t j = 0; j < k - i; ++j) padded[j] = from[j];
      from = padded;
    }
    uint32_t* to = out + i / 4 * kXWords;
#if defined(__AVX512VNNI__)
    _mm512_storeu_si512(to, _mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128)));
#elif defined(__aarch64__)
    std::memcpy(to, from, static_cast<size_t>(k - i < 64 ? (k - i + 3) / 4 * 4 : 64));
#else
    const int64_t groups = (k - i < 64 ? k - i + 3 : 64) / 4;
    for (int64_t g = 0; g < groups; ++g)
      for (int half = 0; half < 2; ++half)
        to[2 * g + half] = static_cast<uint16_t>(from[4 * g + half]) |
                           static_cast<uint32_t>(static_cast<uint16_t>(from[4 * g + 2 + half])) << 16;
#endif
  }
}

// What sums start from: the panel's header, the same for every row, or the sums of the k before.
struct Start {
  const int32_t* from;
  int64_t stride;  // from one row to the next: 0 for the header, kPanelColumns for sums
};

// c[m][0, NV * kLanes) = x[m] . w over `groups` groups of k, on top of `start`. Rows of c are kPanelColumns apart.
// Every loop over the accumulators is unrolled early, or GCC 12 keeps them in memory.
template <int MR, int NV>
void w8a8_tile(const uint32_t* x, int64_t ldx, const int8_t* w, int64_t groups, Start start, int32_t* c, Ahead ahead) {
  IReg acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
#if defined(__AVX512VNNI__)
      acc[m][j] = ireg_load(start.from + m * start.stride + j * kLanes);
#else
      acc[m][j] = start.stride == 0 ? ireg_zero() : ireg_load(start.from + m * start.stride + j * kLanes);
#endif
    }
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  RowsOfThree<uint32_t, MR> rows(x, ldx);
#endif
  for (int64_t g = 0; g < groups; ++g) {
    for (int i = 0; i < ahead.lines; ++i) fetch_second_level(ahead.next + 64 * i);
    ahead.next += ahead.stride;
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
    if constexpr (MR >= kInOrder) {
      add_in_order(acc, rows, w);
      rows.step(kXWords);
      w += kWordBytes;
      continue;
    }
#endif
#if defined(__AVX512VNNI__) || defined(__aarch64__)
    IReg b[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) b[j] = ireg_load(w + j * 4 * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const IReg a = ireg_splat(x[m * ldx]);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) dot(acc[m][j], a, b[j]);
    }
#else
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const IReg b = ireg_load(w + j * 4 * kLanes), even = even_bytes(b), odd = odd_bytes(b);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        dot(acc[m][j], ireg_splat(x[m * ldx]), even);
        dot(acc[m][j], ireg_splat(x[m * ldx + 1]), odd);
      }
    }
#endif
    x += kXWords;
    w += kWordBytes;
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) ireg_store(c + m * kPanelColumns + j * kLanes, acc[m][j]);
}

// The same for `columns` columns, a multiple of 16.
template <int MR, int NV = tile_registers(MR)>
inline void w8a8_columns(const uint32_t* x, int64_t ldx, const int8_t* w, int64_t groups, Start start, int32_t* c,
                         int columns, Ahead ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    w8a8_tile<MR, NV>(x, ldx, w, groups, start, c, ahead);
    w += 4 * kWidth;
    start.from += kWidth;
    c += kWidth;
    columns -= kWidth;
    ahead.lines = 0;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) w8a8_columns<MR, NV / 2>(x, ldx, w, groups, start, c, columns, ahead);
}

inline void w8a8_rows(int rows, const uint32_t* x, int64_t ldx, const int8_t* w, int64_t groups, Start start,
                      int32_t* c, int columns, Ahead ahead) {
  switch (rows) {
    case 1: return w8a8_columns<1>(x, ldx, w, groups, start, c, columns, ahead);
    case 2: return w8a8_columns<2>(x, ldx, w, groups, start, c, columns, ahead);
    case 3: return w8a8_columns<3>(x, ldx, w, groups, start, c, columns, ahead);
    case 4: return w8a8_columns<4>(x, ldx, w, groups, start, c, columns, ahead);
    case 5: return w8a8_columns<5>(x, ldx, w, groups, start, c, columns, ahead);
    case 6: return w8a8_columns<6>(x, ldx, w, groups, start, c, columns, ahead);
    default: return;
  }
}

inline I32x16 load_i32(const int32_t* p) { return load_lanes<I32x16>(p); }
inline I32x16 load_i32_n(const int32_t* p, int n) {
  if (n >= 16) return load_i32(p);
  int32_t part[16] = {};
  for (int i = 0; i < n; ++i) part[i] = p[i];
  return load_i32(part);
}
// An int32 addition wraps.
inline I32x16 wrapping_add(I32x16 a, I32x16 b) { return bits_as<I32x16>(bits_as<U32x16>(a) + bits_as<U32x16>(b)); }

// Columns [first, last) of one panel times a block of prepared rows: finish(sums, first row, rows) gets those of one
// tile after the other, kPanelColumns apart.
template <class Finish>
void w8a8_panel(const uint32_t* prepared, int64_t ldx, int64_t rows, const int8_t* panel, int first, int last,
                int64_t groups, int32_t* sums, const Finish& finish) {
  const int tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
  const int64_t depth = block_groups(tiles, groups);
  const int8_t* w = panel + kHeaderBytes + 4 * first;
  const int columns = (last - first + 15) / 16 * 16;
  const auto* header = reinterpret_cast<const int32_t*>(panel) + first;
  for (int64_t g = 0; g < groups; g += depth) {
    const int64_t now = groups - g < depth ? groups - g : depth;
    // One tile fetches a little ahead of itself, several fetch what comes next together, each a run of its own.
    const auto* next = reinterpret_cast<const char*>(w) + g * kWordBytes;
    Ahead ahead{next + kW8A8Ahead, columns / 16, static_cast<int>(kWordBytes)};
    if (tiles > 1) {
      ahead.stride = static_cast<int>((kWordBytes + tiles - 1) / tiles);
      ahead.lines = (ahead.stride + 63) / 64;
      ahead.next = next + now * kWordBytes;
    }
    for (int t = 0; t < tiles; ++t) {
      const Range r = share(rows, t, tiles);
      const int count = static_cast<int>(r.end - r.begin);
      int32_t* c = depth < groups ? sums + r.begin * kPanelColumns : sums;
      w8a8_rows(count, prepared + r.begin * ldx + g * kXWords, ldx, w + g * kWordBytes, now,
                g == 0 ? Start{header, 0} : Start{c, kPanelColumns}, c, columns, ahead);
      ahead.next += tiles > 1 ? ahead.stride * now : 0;
      if (g + now == groups) finish(c, r.begin, static_cast<int64_t>(count));
    }
  }
}

// The bytes of the workspace that each thread has for itself, and whether so many rows pay for whole tiles of 16: fewer
// are limited by memory however they are computed.
#ifdef REPRISE_TILES
inline size_t w8a8_bytes(int64_t rows, int64_t k) {
  return std::max(w8a8_thread_bytes(rows, k, kXWords), unit_thread_bytes(rows, k));
}
constexpr bool on_tiles(int64_t rows) { return rows > kTileRows; }
#else
inline size_t w8a8_bytes(int64_t rows, int64_t k) { return w8a8_thread_bytes(rows, k, kXWords); }
#endif

// The sums of a thread's rows and columns, part by part: finish(sums, first row, first column). Of the arguments x,
// weight and shape are read. Workspace: w8a8_shape.h.
template <class Finish>
void w8a8_products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
#ifdef REPRISE_TILES
  const LinearShare mine = linear_share(all_rows, n, l.thread, l.threads);
  if (on_tiles(mine.rows.end - mine.rows.begin))
    return unit_products<UnitI8>(a, l, l.scratch<uint8_t>(static_cast<int64_t>(w8a8_bytes(all_rows, k))), finish);
#endif
  const int8_t *x = a.x, *weight = a.weight;
  const int64_t groups = (k + 3) / 4, panel_size = kHeaderBytes + groups * kWordBytes;
  const int64_t ldx = w8a8_x_stride(k, kXWords);
  auto* prepared = l.scratch<uint32_t>(static_cast<int64_t>(w8a8_bytes(all_rows, k)));
  alignas(64) int32_t sums[kFewTiles * kTileRows * kPanelColumns];
  const auto prepare = [&](int64_t m, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) prepare_row(x + (m + i) * k, k, prepared + i * ldx);
  };
  linear_parts(l, all_rows, n, prepare, [&](const LinearParts::Part& p) {
    w8a8_panel(prepared, ldx, p.rows, weight + p.panel * panel_size, p.first, p.last, groups, sums,
               [&](int32_t* c, int64_t row, int64_t count) {
                 finish(Sums<int32_t>{c, count, kPanelColumns, p.last - p.first}, p.row + row,
                        p.panel * kPanelColumns + p.first);
               });
  });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
