// Register tiles of a matrix product of int8 rows (byte_rows.h) with weights in GGUF blocks.
//
// The integers of a block are added up exactly; then, block by block from the first one on, sum = fma(s d, dx, sum)
// with the block's integer sum s as a float, the weight's factor d and the row's factor dx, s d rounded; and where the
// format has minima sum = fma(m, X, sum) with the row's sum X = dx times its integers, and its outliers. Behind every
// 256 k their outliers follow, sum = fma(x, q d, sum) with the weight's integer q, q d rounded. Nothing else is
// rounded, so the bits are those of every instruction set, tile and number of rows.
//
// Few rows unpack weights in registers; for more a strip of columns becomes words in scratch memory once per block of
// rows, and the tiles of all rows read it there. Internal linkage, as linear_tiles.h.
#pragma once

#include "backends/cpu/kernels/byte_rows.h"
#include "backends/cpu/kernels/linear_blocks.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Blocks of a strip at once: 8 KiB of words on AVX-512.
template <class P>
constexpr int64_t kByteBlocks = kByteChunk / P::kBlockK;
constexpr int64_t kMostByteBlocks = kByteChunk / 16;

struct ByteFactorStrip {
  alignas(64) float d[kMostByteBlocks * kStripColumns], m[kMostByteBlocks * kStripColumns];
};

// The weights of one k of a register of columns: their integers times the block's factors. `words` holds that k and
// three more; it is number `place` of its group of eight.
template <bool kSigned, int kOffset>
inline __attribute__((always_inline)) Reg weights_of(Words words, int64_t place, Reg d) {
  const auto up = static_cast<uint32_t>(24 - 8 * (place / 2));
  const Words first = words << up;
  const SignedWords signed_first = reinterpret_cast<SignedWords>(first);
  const Words integers = kSigned ? reinterpret_cast<Words>(signed_first >> 24) : first >> 24;
  return reg_mul(reg_of_integers(integers - static_cast<uint32_t>(kOffset)), d);
}

// s[m][j] += the products of one word of MR rows with those of NV registers of columns.
template <bool kSigned, bool kNarrow, int MR, int NV>
inline __attribute__((always_inline)) void add_words(Words (&s)[MR][NV], const RowsOfThree<uint32_t, MR>& x, int at,
                                                     const Words (&w)[NV]) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Words a = words_splat(x.of(m, at));
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j)
      if constexpr (kNarrow)
        add_narrow(s[m][j], w[j], a);
      else
        add_bytes<kSigned>(s[m][j], w[j], a);
  }
}

// The same in sums of 16 bits, for tiles of many rows.
template <int MR, int NV>
inline __attribute__((always_inline)) void add_narrow_words(Words (&s)[MR][NV], const RowsOfThree<uint32_t, MR>& x,
                                                            int at, const Words (&w)[NV]) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Words a = words_in_order(x.of(m, at));
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) add_narrow_in_order(s[m][j], w[j], a);
  }
}

template <int MR, int NV>
inline __attribute__((always_inline)) void clear_words(Words (&s)[MR][NV]) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) s[m][j] = Words{};
}
template <int MR, int NV>
inline __attribute__((always_inline)) void fold_words(Words (&s)[MR][NV], const Words (&narrow)[MR][NV]) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) add_widened(s[m][j], narrow[m][j]);
}

// What the sums of a block start from.
template <bool kOffset, int MR, int NV>
inline __attribute__((always_inline)) void start_words(Words (&s)[MR][NV], const ByteRows& rows, int64_t block) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Words start = !kOffset ? Words{} : words_splat(rows.wholes()[m * rows.stride + block]);
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) s[m][j] = start;
  }
}

// sum[m][j] with a block's integers, factors and minima.
template <bool kMinimum, int MR, int NV>
inline __attribute__((always_inline)) void add_block(Reg (&sum)[MR][NV], const Words (&s)[MR][NV], const Reg (&d)[NV],
                                                     const Reg (&least)[NV], const ByteRows& rows, int64_t block) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Reg factor = reg_splat(rows.factors[m * rows.stride + block]);
    const Reg whole = kMinimum ? reg_splat(std::bit_cast<float>(rows.wholes()[m * rows.stride + block])) : reg_zero();
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      sum[m][j] = reg_fma(reg_mul(reg_of_integers(s[m][j]), d[j]), factor, sum[m][j]);
      if constexpr (kMinimum) sum[m][j] = reg_fma(least[j], whole, sum[m][j]);
    }
  }
}

template <int MR, int NV>
inline __attribute__((always_inline)) void load_sums(Reg (&sum)[MR][NV], const float* c, bool resume) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) sum[m][j] = resume ? reg_load(c + m * kPanelColumns + j * kLanes) : reg_zero();
}
template <int MR, int NV>
inline __attribute__((always_inline)) void store_sums(const Reg (&sum)[MR][NV], float* c) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) reg_store(c + m * kPanelColumns + j * kLanes, sum[m][j]);
}

// s[m][j] += the products of the group, and on to the next one.
template <class P, bool kNarrow, int MR, int NV>
inline __attribute__((always_inline)) void add_group(Words (&s)[MR][NV], RowsOfThree<uint32_t, MR>& x, BytePlaces& at,
                                                     PackedAhead& ahead) {
  for (int64_t line = 0; line < ahead.stride; line += 64) fetch_first_level(ahead.next + line);
  ahead.next += ahead.stride;
  Words even[NV], odd[NV];
#pragma GCC unroll 8
  for (int j = 0; j < NV; ++j) {
    const ByteWords w = byte_words_of<P>(at, j * kLanes);
    even[j] = w.even;
    odd[j] = w.odd;
  }
  add_words<kByteForm<P>.is_signed, kNarrow>(s, x, 0, even);
  add_words<kByteForm<P>.is_signed, kNarrow>(s, x, 1, odd);
  x.step(2);
  at.step(kGroupBytes<P>);
}

// c[m][0, NV * kLanes) += x[m] . w over the blocks from `first` on, unpacked in registers; `first` 0: c holds nothing
// yet.
template <class P, int MR, int NV>
void byte_tile(const ByteRows& rows, BlockWalk<P> at, int64_t first, int64_t blocks, int column, float* c,
               PackedAhead ahead) {
  constexpr int kRun = narrow_products<P>(), kRunGroups = kRun == 0 ? 1 : kRun / 2,
                kGroups = static_cast<int>(P::kBlockK / kGroupK);
  RowsOfThree<uint32_t, MR> x(rows.words + first * (P::kBlockK / 4), rows.stride);
  Reg sum[MR][NV];
  load_sums(sum, c, first > 0);
  for (int64_t i = first; i < first + blocks; ++i, at.step()) {
    Words s[MR][NV];
    start_words<kByteForm<P>.offset != 0>(s, rows, i);
    BytePlaces group = byte_places_of(at, column);
    group.fix();
    const auto add_run = [&]() __attribute__((always_inline)) {
      if constexpr (kRun == 0) {
        add_group<P, false>(s, x, group, ahead);
      } else {
        Words narrow[MR][NV];
        clear_words(narrow);
        add_group<P, true>(narrow, x, group, ahead);
        if constexpr (kRunGroups > 1) add_group<P, true>(narrow, x, group, ahead);
        if constexpr (kRunGroups > 2 && kGroups > 2) {
          add_group<P, true>(narrow, x, group, ahead);
          add_group<P, true>(narrow, x, group, ahead);
        }
        fold_words(s, narrow);
      }
    };
    if constexpr (kRunGroups >= kGroups)
      add_run();
    else
#pragma GCC unroll 1
      for (int g = 0; g < kGroups; g += kRunGroups) add_run();
    const ByteFactors<P, NV> f(at, column);
    add_block<P::kMinimum>(sum, s, f.d, f.m, rows, i);
  }
  store_sums(sum, c);
}

// Rows up to which every tile unpacks for itself, and registers across.
constexpr int kFewByteRows = 4;
constexpr int byte_registers(int rows) {
  if (kRegisters == 32) return rows <= 2 ? 4 : 2;
  return rows <= 2 ? 2 : 1;
}

template <class P, int MR, int NV = byte_registers(MR)>
inline void byte_columns(const ByteRows& x, const BlockWalk<P>& at, int64_t first, int64_t blocks, int column, float* c,
                         int columns, SharedAhead& ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    byte_tile<P, MR, NV>(x, at, first, blocks, column, c, ahead.part(blocks * (P::kBlockK / kGroupK)));
    column += kWidth;
    c += kWidth;
    columns -= kWidth;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) byte_columns<P, MR, NV / 2>(x, at, first, blocks, column, c, columns, ahead);
}

// The weights of one k of NV registers of columns from `column` on, unpacked for them alone.
template <class P, int NV>
inline __attribute__((always_inline)) void unpack_one_k(const PackedPanel& a, int64_t k, int column,
                                                        Reg (&weights)[NV]) {
  const BlockWalk<P> at(a.panel, k / P::kBlockK);
  BytePlaces group = byte_places_of(at, column);
  group.step(k % P::kBlockK / kGroupK * kGroupBytes<P>);
  const int64_t place = k % kGroupK;
  const ByteFactors<P, NV> f(at, column);
  const auto each = [&](auto odd) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int j = 0; j < NV; ++j) {
      const ByteWords w = byte_words_of<P>(group, j * kLanes);
      weights[j] = weights_of<kByteForm<P>.is_signed, kByteForm<P>.offset>(odd ? w.odd : w.even, place, f.d[j]);
    }
  };
  if (place % 2)
    each(std::true_type());
  else
    each(std::false_type());
}

// c[row] += number * weights, for the rows that have an outlier where the weights are from.
template <int NV>
inline __attribute__((always_inline)) void add_outliers(std::span<const Outlier> rows, const Reg (&weights)[NV],
                                                        float* c) {
  for (const Outlier& o : rows) {
    const Reg by = reg_splat(o.number);
    float* to = c + o.row * kPanelColumns;
#pragma GCC unroll 16
    for (int j = 0; j < NV; ++j) reg_store(to + j * kLanes, reg_fma(by, weights[j], reg_load(to + j * kLanes)));
  }
}

// The outliers of a chunk of few rows, whose weights are unpacked for them.
template <class P>
__attribute__((noinline)) void add_few_outliers(const PackedPanel& a, int64_t chunk) {
  each_outlier_k(a.outliers.of_chunk(chunk), [&](int64_t k, std::span<const Outlier> rows) {
    const auto add = [&]<int NV>(int column) __attribute__((always_inline)) {
      Reg weights[NV];
      unpack_one_k<P, NV>(a, chunk * kByteChunk + k, a.first + column, weights);
      add_outliers(rows, weights, a.c + column);
    };
    int column = 0;
    for (; column + kStripColumns <= a.columns; column += kStripColumns)
      add.template operator()<kStripColumns / kLanes>(column);
    for (; column < a.columns; column += kLanes) add.template operator()<1>(column);
  });
}

// Blocks that all passes over the columns go through before the next ones: those of a chunk, or all where one pass is
// as wide as the panel and no outlier is added between two chunks.
template <class P, int MR = kFewByteRows>
inline void few_byte_rows(const ByteRows& x, const PackedPanel& a) {
  if constexpr (MR > 1)
    if (a.rows < MR) return few_byte_rows<P, MR - 1>(x, a);
  constexpr int kWidth = byte_registers(MR) * kLanes;
  const int64_t passes = (a.columns + kWidth - 1) / kWidth, chunk = kByteBlocks<P>;
  const bool outliers = !a.outliers.empty(byte_chunks(a.k));
  const int64_t at_once = passes == 1 && !outliers ? x.blocks : chunk;
  for (int64_t b = 0; b < x.blocks; b += at_once) {
    const int64_t n = std::min(at_once, x.blocks - b), bytes = n * P::kBlockBytes;
    const BlockWalk<P> at(a.panel, b);
    const char* next = reinterpret_cast<const char*>(at.block) + (passes == 1 ? kPackedAhead : bytes);
    SharedAhead ahead{next, bytes, passes};
    byte_columns<P, MR>(x, at, b, n, a.first, a.c, a.columns, ahead);
    if (outliers) add_few_outliers<P>(a, b / chunk);
  }
}

template <class P>
inline __attribute__((always_inline)) void write_byte_strip(BlockWalk<P> at, int64_t blocks, int column, int width,
                                                            uint32_t* words, ByteFactorStrip& factors) {
  for (int64_t i = 0; i < blocks; ++i, at.step())
    for (int j = 0; j < width; j += kLanes) {
      const ByteFactors<P, 1> f(at, column + j);
      reg_store(factors.d + i * kStripColumns + j, f.d[0]);
      if constexpr (P::kMinimum) reg_store(factors.m + i * kStripColumns + j, f.m[0]);
      uint32_t* to = words + i * (P::kBlockK / 4) * kStripColumns + j;
      BytePlaces group = byte_places_of(at, column + j);
#pragma GCC unroll 1
      for (int64_t g = 0; g < P::kBlockK / kGroupK; ++g, group.step(kGroupBytes<P>), to += 2 * kStripColumns) {
        const ByteWords w = byte_words_of<P>(group, 0);
        std::memcpy(to, &w.even, sizeof w.even);
        std::memcpy(to + kStripColumns, &w.odd, sizeof w.odd);
      }
    }
}

// Rows of a strip's tile: with 32 registers the sums over blocks stay in registers beside those of a block.
constexpr int kByteStripRows = 6;

// What the tiles of a strip know of a format: the words of a block, whether it has minima, bytes with a sign and an
// offset, and how many products sums of 16 bits may take.
template <int kOfBlock, bool kLeast, bool kSign, int kStarts, int kNarrow>
struct ByteStripForm {
  static constexpr int kWords = kOfBlock, kRun = kNarrow, kMinus = kStarts;
  static constexpr bool kMinimum = kLeast, kSigned = kSign, kOffset = kStarts != 0;
};
template <class P>
using ByteStripOf = ByteStripForm<static_cast<int>(P::kBlockK / 4), P::kMinimum, kByteForm<P>.is_signed,
                                  kByteForm<P>.offset, narrow_products<P>()>;

template <class F, int MR, int NV>
inline __attribute__((always_inline)) void add_strip_words(Words (&s)[MR][NV], RowsOfThree<uint32_t, MR>& x,
                                                           const uint32_t* strip) {
  constexpr int kStep = F::kRun == 0 ? 4 : F::kRun < F::kWords ? F::kRun : F::kWords;
  const auto add_step = [&]() __attribute__((always_inline)) {
    [[maybe_unused]] Words narrow[MR][NV];
    if constexpr (F::kRun != 0) clear_words(narrow);
#pragma GCC unroll 8
    for (int u = 0; u < kStep; ++u, strip += kStripColumns) {
      Words w[NV];
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) std::memcpy(&w[j], strip + j * kLanes, sizeof w[j]);
      if constexpr (F::kRun != 0)
        add_narrow_words(narrow, x, u, w);
      else
        add_words<F::kSigned, false>(s, x, u, w);
    }
    if constexpr (F::kRun != 0) fold_words(s, narrow);
    x.step(kStep);
  };
  if constexpr (kStep == F::kWords)
    add_step();
  else
#pragma GCC unroll 1
    for (int k = 0; k < F::kWords; k += kStep) add_step();
}

// c[m][0, NV * kLanes) += x[m] . strip over the blocks from `first` on; `first` 0: c holds nothing yet.
template <class F, int MR, int NV>
void byte_strip_tile(const ByteRows& rows, const uint32_t* strip, const ByteFactorStrip& factors, int64_t first,
                     int64_t blocks, float* c, Ahead ahead) {
  RowsOfThree<uint32_t, MR> x(rows.words + first * F::kWords, rows.stride);
  constexpr bool kStay = kRegisters == 32;
  Reg sum[MR][NV];
  if constexpr (kStay) load_sums(sum, c, first > 0);
  for (int64_t i = 0; i < blocks; ++i, strip += F::kWords * kStripColumns) {
    Words s[MR][NV];
    start_words<F::kOffset>(s, rows, first + i);
    for (int line = 0; line < ahead.lines; ++line) fetch_second_level(ahead.next + 64 * line);
    ahead.next += ahead.stride;
    add_strip_words<F>(s, x, strip);
    Reg d[NV], least[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      d[j] = reg_load(factors.d + i * kStripColumns + j * kLanes);
      least[j] = F::kMinimum ? reg_load(factors.m + i * kStripColumns + j * kLanes) : d[j];
    }
    if constexpr (!kStay) load_sums(sum, c, first + i > 0);
    add_block<F::kMinimum>(sum, s, d, least, rows, first + i);
    if constexpr (!kStay) store_sums(sum, c);
  }
  if constexpr (kStay) store_sums(sum, c);
}

template <class F, int MR = kByteStripRows>
inline void byte_strip_rows(int64_t count, const ByteRows& x, const uint32_t* strip, const ByteFactorStrip& factors,
                            int64_t first, int64_t blocks, float* c, int width, Ahead ahead) {
  if (count != MR) {
    if constexpr (MR > 1) byte_strip_rows<F, MR - 1>(count, x, strip, factors, first, blocks, c, width, ahead);
  } else if (width == kStripColumns) {
    byte_strip_tile<F, MR, 2>(x, strip, factors, first, blocks, c, ahead);
  } else if constexpr (kLanes == 16) {
    byte_strip_tile<F, MR, 1>(x, strip, factors, first, blocks, c, ahead);
  }
}

// c[m][0, width) += the outliers of the strip's chunk.
template <class F>
__attribute__((noinline)) void add_strip_outliers(std::span<const Outlier> outliers, const uint32_t* strip,
                                                  const ByteFactorStrip& factors, float* c, int width) {
  each_outlier_k(outliers, [&](int64_t k, std::span<const Outlier> rows) {
    const int64_t group = k / kGroupK, place = k % kGroupK;
    const uint32_t* words = strip + (2 * group + place % 2) * kStripColumns;
    const float* d = factors.d + k / (4 * F::kWords) * kStripColumns;
    const auto add = [&]<int NV>(int column) __attribute__((always_inline)) {
      Reg weights[NV];
#pragma GCC unroll 16
      for (int j = 0; j < NV; ++j) {
        Words w;
        std::memcpy(&w, words + column + j * kLanes, sizeof w);
        weights[j] = weights_of<F::kSigned, F::kMinus>(w, place, reg_load(d + column + j * kLanes));
      }
      add_outliers(rows, weights, c + column);
    };
    if (width == kStripColumns) return add.template operator()<kStripColumns / kLanes>(0);
    for (int column = 0; column < width; column += kLanes) add.template operator()<1>(column);
  });
}

// All tiles of one strip; `bytes` from `next` on are fetched meanwhile, evenly.
template <class F>
__attribute__((noinline)) void byte_strip(const ByteRows& x, int64_t rows, const uint32_t* strip,
                                          const ByteFactorStrip& factors, int64_t first, int64_t blocks, float* c,
                                          int width, const char* next, int64_t bytes) {
  const int tiles = static_cast<int>((rows + kByteStripRows - 1) / kByteStripRows);
  const int64_t tile_bytes = bytes / tiles, stride = (tile_bytes + blocks - 1) / blocks;
  const Ahead ahead{next, static_cast<int>((stride + 63) / 64), static_cast<int>(stride)};
  for (int t = 0; t < tiles; ++t) {
    const Range r = share(rows, t, tiles);
    Ahead mine = ahead;
    mine.next += t * tile_bytes;
    byte_strip_rows<F>(r.end - r.begin, x.from(r.begin), strip, factors, first, blocks, c + r.begin * kPanelColumns,
                       width, mine);
  }
}

// All rows of a panel.
template <class P>
__attribute__((noinline)) void byte_product(const PackedPanel& a) {
  const int64_t blocks = a.k / P::kBlockK;
  const ByteRows x{static_cast<const uint32_t*>(a.x), a.whole, a.stride, blocks};
  if (a.rows <= kFewByteRows) return few_byte_rows<P>(x, a);
  auto* strip = reinterpret_cast<uint32_t*>(a.strip);
  ByteFactorStrip factors;
  for (int64_t b = 0; b < blocks; b += kByteBlocks<P>) {
    const int64_t n = std::min(kByteBlocks<P>, blocks - b), bytes = n * P::kBlockBytes;
    const BlockWalk<P> at(a.panel, b);
    const char* next = reinterpret_cast<const char*>(at.block) + bytes;
    for (int j = 0; j < a.columns; j += kStripColumns) {
      const int width = std::min(kStripColumns, a.columns - j);
      write_byte_strip<P>(at, n, a.first + j, width, strip, factors);
      byte_strip<ByteStripOf<P>>(x, a.rows, strip, factors, b, n, a.c + j, width, next + bytes * j / a.columns,
                                 bytes * width / a.columns);
      add_strip_outliers<ByteStripOf<P>>(a.outliers.of_chunk(b / kByteBlocks<P>), strip, factors, a.c + j, width);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
