// Register tiles of a matrix product on weights that stay in GGUF blocks: the layouts <format>_panel64 of
// backends/cpu/layout.h.
//
// A weight becomes the fp32 number that the checkpoint's reader would make of it, and an output element is one chain of
// fused multiply-adds over k from 0, as in tile.h for fp32 weights: packed or not, unpacked in registers or through
// scratch memory, the bits are the same. (The product of an f16 factor and a number of 8 bits is exact in fp32, so one
// fused multiply-add gives factor * number + minimum with its one rounding.)
#pragma once

#include "backends/cpu/kernels/linear_tiles.h"
#include "base/block_format.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int64_t kBlockK = 32;         // k of a block
constexpr int64_t kGroupK = 8;          // k that lie side by side in a group
constexpr int64_t kPackedAhead = 4096;  // how far ahead a single pass over the weights fetches

// Nibble kPart of each word, minus kMinus.
#if defined(__AVX512F__)
// The permutation looks at the low 4 bits of a lane only, so nothing need be masked.
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const __m512 table = _mm512_setr_ps(0 - kMinus, 1 - kMinus, 2 - kMinus, 3 - kMinus, 4 - kMinus, 5 - kMinus,
                                      6 - kMinus, 7 - kMinus, 8 - kMinus, 9 - kMinus, 10 - kMinus, 11 - kMinus,
                                      12 - kMinus, 13 - kMinus, 14 - kMinus, 15 - kMinus);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(words), 4 * kPart), table);
}
#elif defined(__AVX2__)
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const __m256i w = _mm256_srli_epi32(reg_words(words), 4 * kPart);
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(w, _mm256_set1_epi32(15)), _mm256_set1_epi32(kMinus)));
}
#elif defined(__x86_64__)
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const __m128i w = _mm_srli_epi32(reg_words(words), 4 * kPart);
  return _mm_cvtepi32_ps(_mm_sub_epi32(_mm_and_si128(w, _mm_set1_epi32(15)), _mm_set1_epi32(kMinus)));
}
#elif defined(__aarch64__)
template <int kPart, int kMinus>
inline Reg reg_nibble(const uint8_t* words) {
  const int32x4_t w = vreinterpretq_s32_u32(vandq_u32(reg_words(words) >> (4 * kPart), vdupq_n_u32(15)));
  return vcvtq_f32_s32(vsubq_s32(w, vdupq_n_s32(kMinus)));
}
#endif

// Powers of two from their exponents with 127 added, a byte each; the smallest is subnormal.
#if defined(__AVX512F__)
inline Reg reg_power(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(0x00400000)));
}
#elif defined(__AVX2__)
inline Reg reg_power(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(0x00400000)));
}
#elif defined(__x86_64__)
inline Reg reg_power(const uint8_t* p) {
  int32_t bytes;
  std::memcpy(&bytes, p, 4);
  const __m128i none = _mm_setzero_si128();
  const __m128i e = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), none), none);
  const __m128i smallest = _mm_and_si128(_mm_cmpeq_epi32(e, none), _mm_set1_epi32(0x00400000));
  return _mm_castsi128_ps(_mm_or_si128(_mm_slli_epi32(e, 23), smallest));
}
#elif defined(__aarch64__)
inline Reg reg_power(const uint8_t* p) {
  uint32_t bytes;
  std::memcpy(&bytes, p, 4);
  const uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)))));
  return vreinterpretq_f32_u32(vmaxq_u32(vshlq_n_u32(e, 23), vdupq_n_u32(0x00400000)));
}
#endif

// Nibble kPart of each word as a number of 4 bits (E2M1): a sign, and 0, 0.5, 1, 1.5, 2, 3, 4 or 6.
#if defined(__AVX512F__)
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                      -3.0f, -4.0f, -6.0f);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(words), 4 * kPart), table);
}
#elif defined(__AVX2__)
// The permutation looks at the low 3 bits of a lane only.
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i w = _mm256_srli_epi32(reg_words(words), 4 * kPart);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(w, _mm256_set1_epi32(8)), 28);
  return _mm256_or_ps(_mm256_permutevar8x32_ps(table, w), _mm256_castsi256_ps(sign));
}
#elif defined(__x86_64__)
// A float's exponent and first bit of mantissa are those of the number, but for 0 and 0.5, which have no leading bit.
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const __m128i w = _mm_srli_epi32(reg_words(words), 4 * kPart), size = _mm_and_si128(w, _mm_set1_epi32(7));
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(w, _mm_set1_epi32(8)), 28);
  const __m128i small = _mm_cmplt_epi32(size, _mm_set1_epi32(2));
  const __m128i halves = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(size), _mm_set1_ps(0.5f)));
  const __m128i others = _mm_add_epi32(_mm_slli_epi32(size, 22), _mm_set1_epi32(126 << 23));
  const __m128i value = _mm_or_si128(_mm_and_si128(small, halves), _mm_andnot_si128(small, others));
  return _mm_castsi128_ps(_mm_or_si128(value, sign));
}
#elif defined(__aarch64__)
template <int kPart>
inline Reg reg_fp4(const uint8_t* words) {
  const uint32x4_t w = reg_words(words) >> (4 * kPart), size = vandq_u32(w, vdupq_n_u32(7));
  const uint32x4_t sign = vshlq_n_u32(vandq_u32(w, vdupq_n_u32(8)), 28);
  const uint32x4_t halves = vreinterpretq_u32_f32(vmulq_n_f32(vcvtq_f32_u32(size), 0.5f));
  const uint32x4_t others = vaddq_u32(vshlq_n_u32(size, 22), vdupq_n_u32(126u << 23));
  return vreinterpretq_f32_u32(vorrq_u32(vbslq_u32(vcltq_u32(size, vdupq_n_u32(2)), halves, others), sign));
}
#endif

// The formats: bytes of a panel's block of 32 k (all factors, all minima, four groups), and weight kPart of a group.
struct PackedQ8_0 {
  static constexpr int64_t kBlockBytes = kPanelColumns * 34, kFactorBytes = kPanelColumns * 2;
  static constexpr bool kMinimum = false, kPower = false;
  template <int kPart>
  static Reg weight(const uint8_t* group, int column, Reg d, Reg) {
    return reg_mul(d, reg_i8(group + kPart * kPanelColumns + column));
  }
};
struct PackedQ4_0 {
  static constexpr int64_t kBlockBytes = kPanelColumns * 18, kFactorBytes = kPanelColumns * 2;
  static constexpr bool kMinimum = false, kPower = false;
  template <int kPart>
  static Reg weight(const uint8_t* group, int column, Reg d, Reg) {
    return reg_mul(d, reg_nibble<kPart, 8>(group + 4 * column));
  }
};
struct PackedQ4_1 {
  static constexpr int64_t kBlockBytes = kPanelColumns * 20, kFactorBytes = kPanelColumns * 4;
  static constexpr bool kMinimum = true, kPower = false;
  template <int kPart>
  static Reg weight(const uint8_t* group, int column, Reg d, Reg m) {
    return reg_fma(d, reg_nibble<kPart, 0>(group + 4 * column), m);
  }
};
struct PackedMxfp4 {
  static constexpr int64_t kBlockBytes = kPanelColumns * 17, kFactorBytes = kPanelColumns;
  static constexpr bool kMinimum = false, kPower = true;
  template <int kPart>
  static Reg weight(const uint8_t* group, int column, Reg d, Reg) {
    return reg_mul(d, reg_fp4<kPart>(group + 4 * column));
  }
};

template <class P>
constexpr int64_t kGroupBytes = (P::kBlockBytes - P::kFactorBytes) * kGroupK / kBlockK;

// The factors of a block for columns [column, column + NV * kLanes) of a panel.
template <class P, int NV>
struct Factors {
  Reg d[NV], m[NV];
  Factors(const uint8_t* block, int column) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const uint8_t* at = block + (P::kPower ? 1 : 2) * (column + j * kLanes);
      if constexpr (P::kPower)
        d[j] = reg_power(at);
      else
        d[j] = reg_f16(reinterpret_cast<const uint16_t*>(at));
      if constexpr (P::kMinimum)
        m[j] = reg_f16(reinterpret_cast<const uint16_t*>(at) + kPanelColumns);
      else
        m[j] = d[j];
    }
  }
};

template <class P, int MR, int NV, int kPart = 0>
inline void packed_group(Reg (&acc)[MR][NV], const float* x, int64_t ldx, const uint8_t* group, int column,
                         const Factors<P, NV>& f) {
  Reg b[NV];
#pragma GCC unroll 8
  for (int j = 0; j < NV; ++j) b[j] = P::template weight<kPart>(group, column + j * kLanes, f.d[j], f.m[j]);
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Reg a = reg_splat(x[m * ldx + kPart]);
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[m][j] = reg_fma(a, b[j], acc[m][j]);
  }
  if constexpr (kPart + 1 < kGroupK) packed_group<P, MR, NV, kPart + 1>(acc, x, ldx, group, column, f);
}

// c[m][0, NV * kLanes) = x[m] . w over all blocks.
template <class P, int MR, int NV>
void packed_tile(const float* x, int64_t ldx, const uint8_t* block, int64_t blocks, int column, float* c, bool ahead) {
  Reg acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[m][j] = reg_zero();
  for (int64_t i = 0; i < blocks; ++i, block += P::kBlockBytes, x += kBlockK) {
    const Factors<P, NV> f(block, column);
    const uint8_t* group = block + P::kFactorBytes;
#pragma GCC unroll 1
    for (int g = 0; g < kBlockK / kGroupK; ++g, group += kGroupBytes<P>) {
      if (ahead)
        for (int64_t line = 0; line < P::kBlockBytes / 4; line += 64)
          fetch_first_level(reinterpret_cast<const char*>(group) + kPackedAhead + line);
      packed_group<P, MR, NV>(acc, x + g * kGroupK, ldx, group, column, f);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) reg_store(c + m * kPanelColumns + j * kLanes, acc[m][j]);
}

// Registers across for MR rows: factors and minima take registers too.
constexpr int packed_registers(int rows) {
  return kLanes == 16 ? (rows <= 3 ? 4 : 2) : rows == 1 ? 4 : rows <= 4 ? 2 : 1;
}

template <class P, int MR, int NV = packed_registers(MR)>
inline void packed_columns(const float* x, int64_t ldx, const uint8_t* panel, int64_t blocks, int column, float* c,
                           int columns, bool ahead) {
  constexpr int kWidth = NV * kLanes;
  while (columns >= kWidth) {
    packed_tile<P, MR, NV>(x, ldx, panel, blocks, column, c, ahead);
    column += kWidth;
    c += kWidth;
    columns -= kWidth;
    ahead = false;
  }
  if constexpr (kWidth > 16)
    if (columns > 0) packed_columns<P, MR, NV / 2>(x, ldx, panel, blocks, column, c, columns, ahead);
}

template <class P>
inline void packed_rows(int rows, const float* x, int64_t ldx, const uint8_t* panel, int64_t blocks, int column,
                        float* c, int columns, bool ahead) {
  switch (rows) {
    case 1: return packed_columns<P, 1>(x, ldx, panel, blocks, column, c, columns, ahead);
    case 2: return packed_columns<P, 2>(x, ldx, panel, blocks, column, c, columns, ahead);
    case 3: return packed_columns<P, 3>(x, ldx, panel, blocks, column, c, columns, ahead);
    case 4: return packed_columns<P, 4>(x, ldx, panel, blocks, column, c, columns, ahead);
    case 5: return packed_columns<P, 5>(x, ldx, panel, blocks, column, c, columns, ahead);
    case 6: return packed_columns<P, 6>(x, ldx, panel, blocks, column, c, columns, ahead);
    default: return;
  }
}

template <class P, int kPart = 0>
inline void widen_group(const uint8_t* group, int column, Reg d, Reg m, float* out) {
  reg_store(out + kPart * kStripColumns, P::template weight<kPart>(group, column, d, m));
  if constexpr (kPart + 1 < kGroupK) widen_group<P, kPart + 1>(group, column, d, m, out);
}

// `width` columns of one block as a strip. Inlined by force: at -O3 GCC 12 takes it for a function without effects
// (ipa-modref and ipa-pure-const each do so alone) and drops the calls.
template <class P>
inline __attribute__((always_inline)) void widen_block(const uint8_t* block, int column, int width, float* out) {
  for (int j = 0; j < width; j += kLanes) {
    const Factors<P, 1> f(block, column + j);
    for (int g = 0; g < kBlockK / kGroupK; ++g)
      widen_group<P>(block + P::kFactorBytes + g * kGroupBytes<P>, column + j, f.d[0], f.m[0],
                     out + g * kGroupK * kStripColumns + j);
  }
}

// `columns` (a multiple of 16) of one panel for one block of rows: sums in scratch.c.
template <class P>
__attribute__((noinline)) void packed_product(const float* x, int64_t ldx, int64_t rows, const uint8_t* panel,
                                              int first, int64_t k, int columns, int direct, Scratch& scratch) {
  const int tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
  const int64_t blocks = k / kBlockK;
  if (rows <= direct) {
    for (int t = 0; t < tiles; ++t) {
      const Range r = share(rows, t, tiles);
      packed_rows<P>(static_cast<int>(r.end - r.begin), x + r.begin * ldx, ldx, panel, blocks, first,
                     scratch.c + r.begin * kPanelColumns, columns, t == 0);
    }
    return;
  }
  constexpr int64_t kAtOnce = kBlockDepth / kBlockK;
  for (int64_t b = 0; b < blocks; b += kAtOnce) {
    const int64_t n = std::min(kAtOnce, blocks - b), bytes = n * P::kBlockBytes;
    const uint8_t* block = panel + b * P::kBlockBytes;
    for (int j = 0; j < columns; j += kStripColumns) {
      const int width = std::min(kStripColumns, columns - j);
      for (int64_t i = 0; i < n; ++i)
        widen_block<P>(block + i * P::kBlockBytes, first + j, width, scratch.strip + i * kBlockK * kStripColumns);
      strip_of_tiles<WeightStrip>(x + b * kBlockK, ldx, rows, scratch.strip, n * kBlockK, scratch.c + j, width, b > 0,
                                  reinterpret_cast<const char*>(block) + bytes + bytes * j / columns,
                                  bytes * width / columns, nullptr);
    }
  }
}

// Rows of x as fp32: as they lie, or widened into scratch.
template <class In>
const float* wide_rows(const typename In::Type* x, int64_t rows, int64_t k, float* scratch, int64_t& ldx) {
  if constexpr (sizeof(typename In::Type) == 4) {
    ldx = k;
    return x;
  } else {
    ldx = linear_x_stride(k);
    for (int64_t i = 0; i < rows; ++i)  // K is a multiple of 32
      for (int64_t j = 0; j < k; j += 16) store(scratch + i * ldx + j, In::load(x + i * k + j));
    return scratch;
  }
}

// As products() of linear_tiles.h. The launch's way is the number of rows up to which weights are unpacked in
// registers.
template <class In, class P, class Finish>
void packed_products(const auto& a, const Launch& l, const Finish& finish) {
  const int64_t all_rows = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns;
  const LinearShare mine = linear_share(all_rows, n, l.thread, l.threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const typename In::Type* x = a.x;
  const uint8_t* weight = a.weight;
  const int64_t panel_bytes = k / kBlockK * P::kBlockBytes;
  auto* wide_x = l.scratch<float>(static_cast<int64_t>(linear_thread_bytes(all_rows, k)));
  const int64_t block = linear_row_block(mine.rows.end - mine.rows.begin);
  Scratch scratch;
  for (int64_t m = mine.rows.begin; m < mine.rows.end; m += block) {
    const int64_t rows = std::min(mine.rows.end - m, block);
    int64_t ldx = 0;
    const float* xt = wide_rows<In>(x + m * k, rows, k, wide_x, ldx);
    for (int64_t p = mine.columns.begin / kPanelColumns; p * kPanelColumns < mine.columns.end; ++p) {
      const int64_t base = p * kPanelColumns;
      const int first = static_cast<int>(std::max(mine.columns.begin, base) - base);
      const int last = static_cast<int>(std::min<int64_t>(mine.columns.end - base, kPanelColumns));
      packed_product<P>(xt, ldx, rows, weight + p * panel_bytes, first, k, (last - first + 15) / 16 * 16,
                        static_cast<int>(l.way), scratch);
      finish(scratch.c, m, rows, base + first, last - first);
    }
  }
}

// Calls body(P{}) with the format's type.
template <class Body>
void with_format(BlockFormat format, const Body& body) {
  switch (format) {
    case BlockFormat::Q8_0: return body(PackedQ8_0{});
    case BlockFormat::Q4_0: return body(PackedQ4_0{});
    case BlockFormat::Q4_1: return body(PackedQ4_1{});
    case BlockFormat::Mxfp4: return body(PackedMxfp4{});
  }
}

template <class In, class Finish>
void packed_products_of(const auto& a, const Launch& l, const Finish& finish) {
  with_format(a.format, [&](auto p) { packed_products<In, decltype(p)>(a, l, finish); });
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
