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
#include <cmath>

#include "backends/cpu/kernels/byte_shape.h"
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
  const float* factors;      // then the starts or sums, `blocks` further on
  const uint32_t* outliers;  // OutlierPlaces of the row
  int64_t stride, blocks;    // from row to row, of all; blocks of a row
  const uint32_t* wholes() const { return reinterpret_cast<const uint32_t*>(factors + blocks); }
  ByteRows from(int64_t row) const {
    return {words + row * stride, factors + row * stride, outliers + row * stride, stride, blocks};
  }
};

// Where a row's outliers are: for each chunk of kByteChunk k a word with a bit for each 32 of them that has one; then
// for each 32 its place among them; then the bits of its number.
template <class Word>
struct OutlierPlaces {
  Word *chunks, *places, *numbers;
  OutlierPlaces(Word* memory, int64_t k)
      : chunks(memory), places(memory + byte_chunks(k)), numbers(places + k / kUnitK) {}
};

// 32 numbers in the order of words: of each eight the even ones, then the odd ones.
inline void arrange_bytes(const int8_t* from, uint32_t* to) {
#if defined(__AVX2__)
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), order));
#else
  auto* out = reinterpret_cast<int8_t*>(to);
  for (int g = 0; g < kUnitK; g += 8)
    for (int i = 0; i < 4; ++i) {
      out[g + i] = from[g + 2 * i];
      out[g + 4 + i] = from[g + 2 * i + 1];
    }
#endif
}
inline int sum_of_bytes(const int8_t* from, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += from[i];
  return sum;
}

// Below this magnitude a block counts as zeros: the reciprocal of its factor would not be a number.
constexpr float kLeastByteTop = 0x1p-100f;

constexpr float kOutlierShare = 1.6f;  // by so much its square is more than that sum
// The place of an outlier among 32 numbers, of which the largest magnitude is `top`; -1: there is none.
inline int outlier_of(F32x16 low, F32x16 high, float top, const float* numbers) {
  if (!(top * top * kOutlierShare > reduce_add(low * low + high * high))) return -1;
  int place = 0;
  while (place < kUnitK - 1 && std::fabs(numbers[place]) != top) ++place;
  return place;
}

// One row: each number times 127 over the block's largest magnitude, rounded to the nearest integer, ties to even.
template <class In>
void write_byte_row(const typename In::Type* x, int64_t k, const ByteRowForm& form, uint32_t* row) {
  const int64_t blocks = k / form.block_k;
  auto* factors = reinterpret_cast<float*>(row + k / 4);
  uint32_t* wholes = row + k / 4 + blocks;
  const OutlierPlaces outliers(wholes + blocks, k);
  for (int64_t c = 0; c < byte_chunks(k); ++c) outliers.chunks[c] = 0;
  for (int64_t u = 0; u < k / kUnitK; ++u) {
    F32x16 low = In::load(x + u * kUnitK), high = In::load(x + u * kUnitK + 16);
    float top = reduce_max(larger_magnitude(larger_magnitude(zero(), low), high));
    alignas(64) float numbers[kUnitK];
    store(numbers, low);
    store(numbers + 16, high);
    const int place = outlier_of(low, high, top, numbers);
    float outlier = 0;
    if (place >= 0) {
      constexpr int64_t kUnits = kByteChunk / kUnitK;
      outlier = numbers[place];
      outliers.chunks[u / kUnits] |= 1u << u % kUnits;
      outliers.places[u] = static_cast<uint32_t>(place);
      outliers.numbers[u] = std::bit_cast<uint32_t>(outlier);
      numbers[place] = 0;
      low = load(numbers);
      high = load(numbers + 16);
      top = reduce_max(larger_magnitude(larger_magnitude(zero(), low), high));
    }
    const bool empty = top < kLeastByteTop;
    const float factor = empty ? 0.0f : top / 127.0f;
    const F32x16 inverse = splat(empty ? 0.0f : 127.0f / top);
    alignas(64) int8_t bytes[kUnitK];
    store_i8(bytes, low * inverse);
    store_i8(bytes + 16, high * inverse);
    arrange_bytes(bytes, row + u * (kUnitK / 4));
    const int64_t parts = kUnitK / form.block_k;
    for (int64_t p = 0; p < parts; ++p) {
      factors[u * parts + p] = factor;
      const int sum = sum_of_bytes(bytes + p * form.block_k, static_cast<int>(form.block_k));
      // The outlier meets the minimum with the others.
      const float beside = place >= 0 && place / form.block_k == p ? outlier : 0.0f;
      wholes[u * parts + p] = form.minimum ? std::bit_cast<uint32_t>(factor * static_cast<float>(sum) + beside)
                                           : static_cast<uint32_t>(-form.offset * sum);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
