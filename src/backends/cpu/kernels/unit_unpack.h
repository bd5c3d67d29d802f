// Weights in GGUF blocks as right operands of the tile registers (tile_unit.h): 32 k of 16 columns are a tile of 16
// rows of 64 bytes, a pair of k a row.
//
// A weight is what the reader of checkpoints makes of it: factor * number + minimum in fp32, where the product is exact
// (packed_tiles.h), rounded to the nearest bf16, ties to even. Numbers below 2^-126 are zeros as soon as a tile
// register reads them, so it does not matter that the instruction which rounds makes them zeros before; of all formats
// mxfp4 alone has such. Callers may flush subnormals.
// Internal linkage, as packed_formats.h.
#pragma once

#include "backends/cpu/kernels/packed_formats.h"
#include "backends/cpu/kernels/tile_unit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Writes `tiles` tiles, one behind the other, of step `step` of 32 k and of the columns from `column` on.
using UnpackStep = void (*)(const uint8_t* panel, int64_t step, int column, int tiles, uint8_t* out);

#if defined(__AVX512BF16__)
// Pairs of 16 columns from the even and the odd k of each, rounded.
inline __attribute__((always_inline)) void store_pairs(Reg even, Reg odd, uint8_t* out) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, both));
}
inline Reg low_number(__m512i pair) { return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)); }
inline Reg high_number(__m512i pair) {
  return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
#endif

// What a number becomes a weight by: its factor and minimum of 16 columns.
template <class P>
struct UnitFactors {
  static constexpr int kRegs = 16 / kLanes;
  Factors<P, kRegs> f;
  UnitFactors(const BlockWalk<P>& at, int column) : f(at, column) {}
  Reg weight(Reg number, int i) const { return packed_weight<P>(number, f.d[i], f.m[i]); }
};
// The smallest factor is subnormal, which would be a zero here: in its place stand twice the factor and half the
// number. Both products are exact.
template <>
struct UnitFactors<PackedMxfp4> {
  static constexpr int kRegs = 16 / kLanes;
  Reg d[kRegs], part[kRegs];
  UnitFactors(const BlockWalk<PackedMxfp4>& at, int column) {
    alignas(64) uint32_t power[16];
    alignas(64) float of_number[16];
    for (int i = 0; i < 16; ++i) {
      const uint32_t e = at.block[column + i];
      power[i] = e == 0 ? 1u << 23 : e << 23;
      of_number[i] = e == 0 ? 0.5f : 1.0f;
    }
    for (int i = 0; i < kRegs; ++i) {
      std::memcpy(&d[i], power + i * kLanes, sizeof d[i]);
      part[i] = reg_load(of_number + i * kLanes);
    }
  }
  Reg weight(Reg number, int i) const { return reg_mul(reg_mul(number, part[i]), d[i]); }
};

// The four pairs of a group, a row of the tile each.
template <class P>
inline __attribute__((always_inline)) void unpack_group(const uint8_t* group, int column, const UnitFactors<P>& f,
                                                        uint8_t* out) {
  const auto each = [](const auto& row) __attribute__((always_inline)) {
    [&]<int... kI>(std::integer_sequence<int, kI...>) __attribute__((always_inline)) {
      (row(std::integral_constant<int, kI>{}), ...);
    }
    (std::make_integer_sequence<int, 4>{});
  };
#if defined(__AVX512BF16__)
  if constexpr (P::kTwoParts) {
    // A register has number i of a group and number i + 4.
    __m512i pairs[4];
    each([&](auto i) __attribute__((always_inline)) { pairs[i.value] = P::template pair<i.value>(group, column); });
    each([&](auto i) __attribute__((always_inline)) {
      const __m512i even = pairs[i.value % 2 * 2], odd = pairs[i.value % 2 * 2 + 1];
      if constexpr (i.value < 2)
        store_pairs(f.weight(low_number(even), 0), f.weight(low_number(odd), 0), out + i.value * kUnitRowBytes);
      else
        store_pairs(f.weight(high_number(even), 0), f.weight(high_number(odd), 0), out + i.value * kUnitRowBytes);
    });
    return;
  }
  each([&](auto i) __attribute__((always_inline)) {
    const EachNumber<P> numbers(group, column);
    store_pairs(f.weight(numbers.template at<2 * i.value>(), 0), f.weight(numbers.template at<2 * i.value + 1>(), 0),
                out + i.value * kUnitRowBytes);
  });
#else
  each([&](auto i) __attribute__((always_inline)) {
    float even[16], odd[16];
    for (int r = 0; r < f.kRegs; ++r) {
      const EachNumber<P> numbers(group, column + r * kLanes);
      reg_store(even + r * kLanes, f.weight(numbers.template at<2 * i.value>(), r));
      reg_store(odd + r * kLanes, f.weight(numbers.template at<2 * i.value + 1>(), r));
    }
    const U32x16 pairs = bf16_bits(load(even)) | bf16_bits(load(odd)) << 16;
    std::memcpy(out + i.value * kUnitRowBytes, &pairs, sizeof pairs);
  });
#endif
}

// The tile of one step, whose blocks begin at `at`.
template <class P>
inline __attribute__((always_inline)) void unpack_tile(BlockWalk<P> at, int column, uint8_t* out) {
  constexpr int64_t kBlocks = kUnitK / P::kBlockK, kGroups = P::kBlockK / kGroupK;
  for (int64_t b = 0; b < kBlocks; ++b, at.step()) {
    const UnitFactors<P> f(at, column);
    const uint8_t* group = at.block + P::kFactorBytes;
    for (int64_t g = 0; g < kGroups; ++g, group += kGroupBytes<P>, out += 4 * kUnitRowBytes)
      unpack_group<P>(group, column, f, out);
  }
}
template <class P>
__attribute__((noinline)) void unpack_tiles(const uint8_t* panel, int64_t step, int column, int tiles, uint8_t* out) {
  const BlockWalk<P> at(panel, step * (kUnitK / P::kBlockK));
  for (int t = 0; t < tiles; ++t) unpack_tile<P>(at, column + 16 * t, out + t * kUnitBytes);
}

#if defined(__AVX512BF16__)
// mxfp4: a factor is a power of two, so it is added to the exponents of the numbers, and nothing is rounded; but where
// an exponent could leave its range.
template <>
__attribute__((noinline)) void unpack_tiles<PackedMxfp4>(const uint8_t* panel, int64_t step, int column, int tiles,
                                                         uint8_t* out) {
  using P = PackedMxfp4;
  const BlockWalk<P> at(panel, step);
  const __mmask32 upper = 0xaaaaaaaau;  // the second number of each lane
  for (int t = 0; t < tiles; ++t, column += 16, out += kUnitBytes) {
    const __m128i e = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at.block + column));
    if (_mm_cmple_epu8_mask(_mm_sub_epi8(e, _mm_set1_epi8(3)), _mm_set1_epi8(-9)) != 0xffff) {
      unpack_tile<P>(at, column, out);
      continue;
    }
    const __m512i more = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_cvtepu8_epi32(e), _mm512_set1_epi32(127)), 23);
    const __m512i exponents = _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(more, 16), more);
    const auto numbers = [&](__m512i pair) __attribute__((always_inline)) {
      return _mm512_mask_add_epi16(pair, _mm512_test_epi16_mask(pair, _mm512_set1_epi16(0x7fff)), pair, exponents);
    };
    const uint8_t* group = at.block + P::kFactorBytes;
    for (int64_t g = 0; g < kUnitK / kGroupK; ++g, group += kGroupBytes<P>) {
      uint8_t* to = out + g * 4 * kUnitRowBytes;
      // Numbers i and i + 4 of the group in each.
      const __m512i pairs[] = {numbers(P::pair<0>(group, column)), numbers(P::pair<1>(group, column)),
                               numbers(P::pair<2>(group, column)), numbers(P::pair<3>(group, column))};
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m512i even = pairs[2 * i], odd = pairs[2 * i + 1];
        _mm512_storeu_si512(to + i * kUnitRowBytes, _mm512_mask_blend_epi16(upper, even, _mm512_slli_epi32(odd, 16)));
        _mm512_storeu_si512(to + (2 + i) * kUnitRowBytes,
                            _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(even, 16), odd));
      }
    }
  }
}
#endif

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)
// q8_0 with fewer instructions on the one port that moves lanes. A byte q with its sign changed, in the mantissa of
// 2^15, makes the float 2^15 + 128 + q, and multiply-add takes the rest away with the product: every part is exact. The
// numbers of a pair become neighbours on their way there, so none is moved when rounded.
struct BytePlaces {
  alignas(64) uint8_t of[2][64] = {};
  constexpr BytePlaces() {
    for (int half = 0; half < 2; ++half)
      for (int lane = 0; lane < 16; ++lane)
        of[half][4 * lane + 1] = static_cast<uint8_t>(half * 8 + lane / 2 + lane % 2 * 32);
  }
};
// All tiles of a pair before the next one, so that lines of the panel are read one after the other.
template <int kTiles>
inline __attribute__((always_inline)) void unpack_bytes(const BlockWalk<PackedQ8_0>& at, int column, uint8_t* out) {
  static constexpr BytePlaces kPlaces;
  constexpr float kBase = 32768.0f + 128.0f;
  const __mmask64 second = 0x2222222222222222u;  // the byte of each lane above the lowest
  const __m512i base = _mm512_set1_epi32(0x47000000), signs = _mm512_set1_epi8(-128);
  const __m512i places[] = {_mm512_load_si512(kPlaces.of[0]), _mm512_load_si512(kPlaces.of[1])};
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  Reg d[kTiles][2], less[kTiles][2];
#pragma GCC unroll 4
  for (int t = 0; t < kTiles; ++t) {
    const Reg all = PackedQ8_0::factor(at.head, at.block, column + 16 * t);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      d[t][half] = _mm512_permutexvar_ps(_mm512_add_epi32(twice, _mm512_set1_epi32(8 * half)), all);
      less[t][half] = reg_mul(d[t][half], reg_splat(-kBase));
    }
  }
  const uint8_t* from = at.block + PackedQ8_0::kFactorBytes + column;
  for (int64_t i = 0; i < kUnitRows; ++i, from += 2 * kPanelColumns, out += kUnitRowBytes) {
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      const __m128i even = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * t));
      const __m128i odd = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + kPanelColumns + 16 * t));
      const __m512i bytes = _mm512_xor_si512(_mm512_inserti32x4(_mm512_castsi128_si512(even), odd, 2), signs);
      const auto weights = [&](int half) __attribute__((always_inline)) {
        const __m512i number = _mm512_mask_permutexvar_epi8(base, second, places[half], bytes);
        return reg_fma(_mm512_castsi512_ps(number), d[t][half], less[t][half]);
      };
      const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weights(1), weights(0)));
      _mm512_storeu_si512(out + t * kUnitBytes, both);
    }
  }
}
template <>
__attribute__((noinline)) void unpack_tiles<PackedQ8_0>(const uint8_t* panel, int64_t step, int column, int tiles,
                                                        uint8_t* out) {
  const BlockWalk<PackedQ8_0> at(panel, step);
  if (tiles == 4) return unpack_bytes<4>(at, column, out);
  tiles == 2 ? unpack_bytes<2>(at, column, out) : unpack_bytes<1>(at, column, out);
}
#endif

struct Unpacking {
  UnpackStep step = nullptr;
  int64_t panel_bytes = 0;
};
inline Unpacking unpacking_of(BlockFormat format, int64_t k) {
  Unpacking of;
  with_format(format, [&](auto p) {
    using P = decltype(p);
    of.step = unpack_tiles<P>;
    of.panel_bytes = BlockWalk<P>::bytes(k);
  });
  return of;
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
