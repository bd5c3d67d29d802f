// Rows of numbers in int8 with a factor for each 32 of them, as products with weights in GGUF blocks read them. A row
// in memory: its numbers in words of four, in the order of ByteWords (packed_bytes.h); then the factor of each block of
// the weights' format; then for each block what sums start from (minus the offset of the format's bytes times the
// block's sum of integers), or of a format with minima the block's sum in fp32; then the outliers.
//
// An outlier is a number that has more than five eighths of the sum of squares of its 32: beside it the others would be
// rounded to few integers. It stays as it is, and counts as zero among the 32 (docs/quantisation.md has what that
// gains). Internal linkage, as packed_formats.h.
#pragma once

#include <bit>
#include <utility>

#include "backends/cpu/kernels/byte_shape.h"
#include "backends/cpu/kernels/linear_blocks.h"
#include "backends/cpu/kernels/packed_bytes.h"
#include "backends/cpu/kernels/quantize.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// What rows depend on of a format.
struct ByteRowForm {
  int64_t block_k = kUnitK;
  int offset = 0;
  bool minimum = false;
};
inline ByteRowForm byte_row_form(BlockFormat format) {
  ByteRowForm form;
  with_format(format, [&](auto p) {
    using P = decltype(p);
    form = {P::kBlockK, kByteForm<P>.offset, P::kMinimum};
  });
  return form;
}

struct ByteRows {
  const uint32_t* words;
  const float* factors;    // then the starts or sums, `blocks` further on
  int64_t stride, blocks;  // from row to row, of all; blocks of a row
  const uint32_t* wholes() const { return reinterpret_cast<const uint32_t*>(factors + blocks); }
  ByteRows from(int64_t row) const { return {words + row * stride, factors + row * stride, stride, blocks}; }
};

// Where a row's outliers are: for each chunk of kByteChunk k a word with a bit for each 32 of them that has one; then
// for each 32 its place among them; then the bits of its number.
struct OutlierPlaces {
  uint32_t *chunks, *places, *numbers;
  OutlierPlaces(uint32_t* memory, int64_t k)
      : chunks(memory), places(memory + byte_chunks(k)), numbers(places + k / kUnitK) {}
};

// 32 numbers in the order of words: of each eight the even ones, then the odd ones.
#if defined(__AVX2__)
inline void arrange_bytes(__m256i from, uint32_t* to) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(from, order));
}
inline void arrange_bytes(const int8_t* from, uint32_t* to) {
  arrange_bytes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), to);
}
#else
inline void arrange_bytes(const int8_t* from, uint32_t* to) {
  auto* out = reinterpret_cast<int8_t*>(to);
  for (int g = 0; g < kUnitK; g += 8)
    for (int i = 0; i < 4; ++i) {
      out[g + i] = from[g + 2 * i];
      out[g + 4 + i] = from[g + 2 * i + 1];
    }
}
#endif

// Below this magnitude a block counts as zeros: the reciprocal of its factor would not be a number.
constexpr float kLeastByteTop = 0x1p-100f;
constexpr float kOutlierShare = 1.6f;  // by so much an outlier's square is more than the sum of squares

// The sums of integers of sixteen times 32 numbers, or of both halves of each, as they are stored.
class ByteUnitSums {
 public:
  // Numbers of unit i, rounded, in the order of words.
  void store_unit(int i, F32x16 low, F32x16 high, uint32_t* to) {
#if defined(__AVX512F__)
    low_[i] = integers_of(low);
    high_[i] = integers_of(high);
    const auto bytes = [](I32x16 v) { return _mm512_cvtsepi32_epi8(reinterpret_cast<__m512i>(v)); };
    arrange_bytes(_mm256_set_m128i(bytes(high_[i]), bytes(low_[i])), to);
#else
    alignas(64) int8_t bytes[kUnitK];
    store_i8(bytes, low);
    store_i8(bytes + 16, high);
    arrange_bytes(bytes, to);
    add_bytes_of(bytes, low_[i], high_[i]);
#endif
  }
  // Of the first 16 and the last 16 numbers of each unit.
  void take(int count, int32_t (&low)[16], int32_t (&high)[16]) {
#if defined(__AVX512F__)
    const auto add = [](I32x16 a, I32x16 b) { return a + b; };
    store_lanes(low, reduce_sixteen(low_, count, add));
    store_lanes(high, reduce_sixteen(high_, count, add));
#else
    std::memcpy(low, low_, sizeof low);
    std::memcpy(high, high_, sizeof high);
#endif
  }

 private:
#if defined(__AVX512F__)
  I32x16 low_[16], high_[16];
#else
  static void add_bytes_of(const int8_t* from, int32_t& low, int32_t& high) {
#if defined(__AVX2__)
    const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i twos = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    __m256i sums = _mm256_madd_epi16(twos, _mm256_set1_epi16(1));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
    low = _mm256_cvtsi256_si32(sums);
    high = _mm256_extract_epi32(sums, 4);
#else
    low = high = 0;
    for (int i = 0; i < 16; ++i) {
      low += from[i];
      high += from[i + 16];
    }
#endif
  }
  int32_t low_[16] = {}, high_[16] = {};
#endif
};

// Where the parts of a row begin.
struct ByteRowParts {
  uint32_t *words, *wholes;
  float* factors;
  OutlierPlaces outliers;
  ByteRowParts(uint32_t* row, int64_t k, int64_t blocks)
      : words(row),
        wholes(row + k / 4 + blocks),
        factors(reinterpret_cast<float*>(row + k / 4)),
        outliers(wholes + blocks, k) {}
};

// Takes the outlier of unit u out of its numbers, of which the largest magnitude is `top`; that of the others.
inline float take_outlier(float (&numbers)[kUnitK], float& top, int64_t u, const OutlierPlaces& places) {
  constexpr int64_t kUnits = kByteChunk / kUnitK;
  const auto below_top = [&](int from) {
    return lane_bits(greater(splat(top), larger_magnitude(zero(), load(numbers + from))));
  };
  const int place = std::countr_one(below_top(0) | below_top(16) << 16);
  const float outlier = numbers[place];
  numbers[place] = 0;
  top = reduce_max(larger_magnitude(larger_magnitude(zero(), load(numbers)), load(numbers + 16)));
  places.chunks[u / kUnits] |= 1u << u % kUnits;
  places.places[u] = static_cast<uint32_t>(place);
  places.numbers[u] = std::bit_cast<uint32_t>(outlier);
  return outlier;
}

// Units [first, first + count) of a row, 32 numbers each; at most 16 of them.
template <class In>
void write_byte_units(const typename In::Type* x, int64_t first, int count, const ByteRowForm& form,
                      const ByteRowParts& to) {
  alignas(64) float numbers[16][kUnitK];
  F32x16 tops_of[16], squares_of[16];
  for (int i = 0; i < count; ++i) {
    const F32x16 low = In::load(x + i * kUnitK), high = In::load(x + i * kUnitK + 16);
    store(numbers[i], low);
    store(numbers[i] + 16, high);
    tops_of[i] = larger_magnitude(larger_magnitude(zero(), low), high);
    squares_of[i] = low * low + high * high;
  }
  F32x16 top = reduce_sixteen(tops_of, count, [](auto a, auto b) { return a > b ? a : b; });
  const F32x16 squares = reduce_sixteen(squares_of, count, [](auto a, auto b) { return a + b; });
  float tops[16], outliers[16] = {};
  bool in_low[16] = {};
  store(tops, top);
  for (uint32_t left = lane_bits(greater(top * top * kOutlierShare, squares)); left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    outliers[i] = take_outlier(numbers[i], tops[i], first + i, to.outliers);
    in_low[i] = to.outliers.places[first + i] < 16;
  }
  top = load(tops);
  const I32x16 empty = greater(splat(kLeastByteTop), top);
  float factors[16], inverses[16];
  store(factors, select(empty, zero(), top / splat(127.0f)));
  store(inverses, select(empty, zero(), splat(127.0f) / top));
  ByteUnitSums all;
  for (int i = 0; i < count; ++i)
    all.store_unit(i, load(numbers[i]) * inverses[i], load(numbers[i] + 16) * inverses[i],
                   to.words + (first + i) * (kUnitK / 4));
  int32_t low[16], high[16];
  all.take(count, low, high);
  // The outlier meets the minimum with the others.
  const auto whole_of = [&](F32x16 factor, I32x16 sum, F32x16 outlier) {
    return form.minimum ? bits_as<I32x16>(factor * to_float(sum) + outlier) : sum * -form.offset;
  };
  const F32x16 factor = load(factors), outlier = load(outliers);
  const auto low_sums = load_lanes<I32x16>(low), high_sums = load_lanes<I32x16>(high);
  const auto size = static_cast<size_t>(count) * 4;
  int32_t wholes[16];
  if (form.block_k == kUnitK) {
    store_lanes(wholes, whole_of(factor, low_sums + high_sums, outlier));
    std::memcpy(to.factors + first, factors, size);
    std::memcpy(to.wholes + first, wholes, size);
    return;
  }
  float low_outliers[16];
  for (int i = 0; i < 16; ++i) low_outliers[i] = in_low[i] ? outliers[i] : 0.0f;
  const F32x16 of_low = load(low_outliers);
  int32_t high_wholes[16];
  store_lanes(wholes, whole_of(factor, low_sums, of_low));
  store_lanes(high_wholes, whole_of(factor, high_sums, outlier - of_low));
  for (int i = 0; i < count; ++i) {
    const int64_t block = 2 * (first + i);
    to.factors[block] = to.factors[block + 1] = factors[i];
    to.wholes[block] = static_cast<uint32_t>(wholes[i]);
    to.wholes[block + 1] = static_cast<uint32_t>(high_wholes[i]);
  }
}

// One row: each number times 127 over the block's largest magnitude, rounded to the nearest integer, ties to even.
template <class In>
void write_byte_row(const typename In::Type* x, int64_t k, const ByteRowForm& form, uint32_t* row) {
  const ByteRowParts to(row, k, k / form.block_k);
  for (int64_t c = 0; c < byte_chunks(k); ++c) to.outliers.chunks[c] = 0;
  const int64_t units = k / kUnitK;
  for (int64_t u = 0; u < units; u += 16)
    write_byte_units<In>(x + u * kUnitK, u, static_cast<int>(std::min<int64_t>(16, units - u)), form, to);
}

// Lists those of `count` rows that lie one behind the other, into memory of outlier_list_words().
inline OutlierList list_outliers(uint32_t* rows, int64_t count, int64_t k, const ByteRowForm& form, uint32_t* memory) {
  constexpr int kUnits = kByteChunk / kUnitK;
  const int64_t stride = byte_x_stride(k), chunks = byte_chunks(k);
  const OutlierPlaces of = ByteRowParts(rows, k, k / form.block_k).outliers;
  auto* list = reinterpret_cast<Outlier*>(memory + (chunks + 1) / 2 * 2);
  uint32_t listed = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    uint32_t bits[kBlockRows], units = 0;
    for (int64_t r = 0; r < count; ++r) units |= bits[r] = of.chunks[r * stride + c];
    for (; units != 0; units &= units - 1) {
      const int bit = std::countr_zero(units);
      const int64_t u = c * kUnits + bit;
      // Rows that have one, without a branch that nothing could predict; then sorted by counting how many each k has.
      uint16_t here[kBlockRows], next[kUnitK] = {}, before = 0;
      int64_t found = 0;
      for (int64_t r = 0; r < count; ++r) {
        here[found] = static_cast<uint16_t>(r);
        found += bits[r] >> bit & 1;
      }
      for (int64_t i = 0; i < found; ++i) ++next[of.places[here[i] * stride + u]];
      for (uint16_t& n : next) before = static_cast<uint16_t>(before + std::exchange(n, before));
      for (int64_t i = 0; i < found; ++i) {
        const int64_t at = here[i] * stride + u;
        const uint32_t place = of.places[at];
        list[listed + next[place]++] = {here[i], static_cast<uint16_t>(bit * kUnitK + place),
                                        std::bit_cast<float>(of.numbers[at])};
      }
      listed += static_cast<uint32_t>(found);
    }
    memory[c] = listed;
  }
  return {memory, list};
}

// Calls body(k, rows) for the outliers of each k of a chunk.
template <class Body>
inline __attribute__((always_inline)) void each_outlier_k(std::span<const Outlier> of, const Body& body) {
  for (size_t begin = 0, end; begin < of.size(); begin = end) {
    for (end = begin + 1; end < of.size() && of[end].k == of[begin].k;) ++end;
    body(of[begin].k, of.subspan(begin, end - begin));
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
