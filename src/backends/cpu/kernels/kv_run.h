// Writing neighbouring tokens of one head into the KV cache as they are or as int8, and finding them: shared by the
// plain and the fused kernels.
#pragma once

#include <type_traits>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/kv_layout.h"
#include "backends/cpu/kernels/quantize.h"

namespace reprise::cpu::REPRISE_ISA {

constexpr int64_t kMaxHeadSize = 256;  // of the cache: register_attention.cpp, register_fused.cpp

// A head's keys and values of one page, and the rows that go there.
template <typename Cell, typename T>
struct KvRun {
  Cell* keys;
  Cell* values;
  const T* k;
  const T* v;
  int64_t k_stride, v_stride;  // from token to token
  int64_t place, count;        // tokens of the page, all in one run of keys
  int64_t size;
};

typedef uint8_t U8x16 __attribute__((vector_size(16)));
typedef uint16_t U16x8 __attribute__((vector_size(16)));
typedef uint32_t U32x4 __attribute__((vector_size(16)));

// The low or the high halves of two registers, interleaved.
inline U8x16 low_halves(U8x16 a, U8x16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline U8x16 high_halves(U8x16 a, U8x16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline U16x8 low_halves(U16x8 a, U16x8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline U16x8 high_halves(U16x8 a, U16x8 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
inline U32x4 low_halves(U32x4 a, U32x4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline U32x4 high_halves(U32x4 a, U32x4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

// Sixteen bytes of cells that are `Cell` wide.
template <typename Cell>
using Cells = std::conditional_t<sizeof(Cell) == 1, U8x16, std::conditional_t<sizeof(Cell) == 2, U16x8, U32x4>>;

template <typename Vector>
inline Vector load_cells(const void* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A square of cells, sixteen bytes wide: rows `from` apart become rows `to` apart, in bytes. Every round deals the rows
// of both halves out like cards; after as many rounds as a row number has bits they are columns.
template <typename Cell>
inline void transpose(const char* in, int64_t from, char* out, int64_t to) {
  constexpr int kSide = 16 / static_cast<int>(sizeof(Cell));
  Cells<Cell> a[kSide], b[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) a[i] = load_cells<Cells<Cell>>(in + i * from);
#pragma GCC unroll 4
  for (int bit = 1; bit < kSide; bit *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      b[2 * i] = low_halves(a[i], a[i + kSide / 2]);
      b[2 * i + 1] = high_halves(a[i], a[i + kSide / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) std::memcpy(out + i * to, &a[i], 16);
}

// `count` rows of `cells` cells become columns of a run of keys, from token `place` of the page on. Strides are in
// bytes.
template <typename Cell>
inline void put_keys(const void* rows, int64_t stride, int64_t cells, int64_t place, int64_t count, void* keys) {
  constexpr int64_t kCell = sizeof(Cell), kSide = 16 / kCell, kRow = kKeyRun * kCell;
  const char* from = static_cast<const char*>(rows);
  char* run = static_cast<char*>(keys) + place / kKeyRun * cells * kRow + place % kKeyRun * kCell;
  int64_t j = 0;
  for (; j + kSide <= count; j += kSide, from += kSide * stride, run += kSide * kCell) {
    int64_t c = 0;
    for (; c + kSide <= cells; c += kSide) transpose<Cell>(from + c * kCell, stride, run + c * kRow, kRow);
    for (; c < cells; ++c)
      for (int64_t i = 0; i < kSide; ++i) std::memcpy(run + c * kRow + i * kCell, from + i * stride + c * kCell, kCell);
  }
  for (; j < count; ++j, from += stride, run += kCell)
    for (int64_t c = 0; c < cells; ++c) std::memcpy(run + c * kRow, from + c * kCell, kCell);
}

// Two tokens of a pair, interleaved.
inline void put_value_pair(const uint16_t* even, const uint16_t* odd, int64_t size, uint16_t* out) {
  int64_t d = 0;
  for (; d + 8 <= size; d += 8) {
    const U16x8 a = load_cells<U16x8>(even + d), b = load_cells<U16x8>(odd + d);
    const U16x8 pairs[2] = {low_halves(a, b), high_halves(a, b)};
    std::memcpy(out + 2 * d, pairs, 32);
  }
  for (; d < size; ++d) {
    out[2 * d] = even[d];
    out[2 * d + 1] = odd[d];
  }
}

// One token of a pair; the other's bytes are not written, because another thread may be writing them.
inline void put_value_of_pair(const uint16_t* v, int64_t size, bool odd, uint16_t* out) {
  int64_t d = 0;
#if defined(__AVX512BW__)
  const __m128i shift = _mm_cvtsi32_si128(odd ? 16 : 0);
  const __mmask32 mask = odd ? 0xaaaaaaaau : 0x55555555u;
  for (; d + 16 <= size; d += 16) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + d)));
    _mm512_mask_storeu_epi16(out + 2 * d, mask, _mm512_sll_epi32(wide, shift));
  }
#endif
  for (; d < size; ++d) out[2 * d + (odd ? 1 : 0)] = v[d];
}

// Numbers that are stored as they are; T has their width.
template <typename T, bool kPairs>
struct KvAsIs {
  using Cell = T;
  static constexpr bool kScaled = false;

  static void write(const KvRun<T, T>& r) {
    constexpr int64_t kBytes = sizeof(T);
    if constexpr (kPairs) {
      put_keys<uint32_t>(r.k, r.k_stride * kBytes, r.size / 2, r.place, r.count, r.keys);
      for (int64_t j = 0; j < r.count;) {
        const int64_t place = r.place + j;
        const T* v = r.v + j * r.v_stride;
        T* out = r.values + value_offset(place / 2 * 2, 0, r.size, true);
        const bool both = place % 2 == 0 && j + 1 < r.count;
        if (both)
          put_value_pair(v, v + r.v_stride, r.size, out);
        else
          put_value_of_pair(v, r.size, place % 2 != 0, out);
        j += both ? 2 : 1;
      }
    } else {
      put_keys<T>(r.k, r.k_stride * kBytes, r.size, r.place, r.count, r.keys);
      for (int64_t j = 0; j < r.count; ++j)
        std::memcpy(r.values + value_offset(r.place + j, 0, r.size, false), r.v + j * r.v_stride,
                    static_cast<size_t>(r.size * kBytes));
    }
  }
};

// Every row of E as int8 with its own scale, as quantize_dynamic makes them.
template <typename E>
struct KvAsInt8 {
  using Cell = int8_t;
  static constexpr bool kScaled = true;

  static void write(const KvRun<int8_t, typename E::Type>& r) {
    alignas(64) int8_t rows[kKeyRun * kMaxHeadSize];
    float scales[kKeyRun];
    for (int64_t j = 0; j < r.count; ++j) scales[j] = quantize_row<E>(r.k + j * r.k_stride, rows + j * r.size, r.size);
    std::memcpy(r.keys + kv_scales_offset(r.size) + r.place * 4, scales, static_cast<size_t>(r.count) * 4);
    put_keys<int8_t>(rows, r.size, r.size, r.place, r.count, r.keys);
    for (int64_t j = 0; j < r.count; ++j)
      scales[j] = quantize_row<E>(r.v + j * r.v_stride, r.values + value_offset(r.place + j, 0, r.size, false), r.size);
    std::memcpy(r.values + kv_scales_offset(r.size) + r.place * 4, scales, static_cast<size_t>(r.count) * 4);
  }
};

// Tokens of a step that go to neighbouring places of one run of keys, and the heads of which a thread writes them.
struct KvPlaces {
  int64_t token, count, page, place;
  int64_t first_head, last_head;
};

// Threads share (token, head) pairs, token by token: attention has the first sequences on the first thread too, and
// finds what that one wrote in its cache. Negative slots are skipped.
template <typename Body>
inline void for_each_kv_run(const int32_t* slots, int64_t tokens, int64_t heads, int thread, int threads,
                            const Body& body) {
  const Range range = share(heads * tokens, thread, threads);
  for (int64_t u = range.begin; u < range.end;) {
    const int64_t t = u / heads, first = u % heads;
    const int64_t last = range.end - t * heads < heads ? range.end - t * heads : heads;
    const int64_t slot = slots[t];
    // Tokens of which this thread has all heads go together.
    const int64_t limit = first == 0 && last == heads ? (range.end - u) / heads : 1;
    int64_t count = 1;
    if (slot >= 0) {
      const int64_t place = slot % kKvTokens;
      while (count < limit && (place + count) % kKeyRun != 0 && slots[t + count] == slot + count) ++count;
      body(KvPlaces{t, count, slot / kKvTokens, place, first, last});
    }
    u += last - first == heads ? count * heads : last - first;
  }
}

}  // namespace reprise::cpu::REPRISE_ISA
