// Weights in GGUF blocks as right operands of the tile registers (tile_unit.h): 32 k of 16 columns are a tile of 16
// rows of 64 bytes, a pair of k a row.
//
// A weight is what the reader of checkpoints makes of it: factor * number + minimum in fp32, where the product is exact
// (packed_tiles.h), rounded to the nearest bf16, ties to even. Numbers below 2^-126 are zeros as soon as a tile
// register reads them, so it does not matter that the instruction which rounds makes them zeros before; of all formats
// mxfp4 alone has such. Its smallest factor is one too, and must count here: those who call flush subnormals.
// Internal linkage, as packed_formats.h.
#pragma once

#include "backends/cpu/kernels/packed_formats.h"
#include "backends/cpu/kernels/tile_unit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Writes `tiles` tiles, one behind the other, of step `step` of 32 k and of the columns from `column` on.
using UnpackStep = void (*)(const uint8_t* panel, int64_t step, int column, int tiles, uint8_t* out);

#if defined(__AVX512BF16__)
inline __attribute__((always_inline)) void store_pairs(Reg even, Reg odd, uint8_t* out) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, both));
}
#endif

// The pairs of a group from kPart on.
template <class P, int kPart = 0>
inline __attribute__((always_inline)) void unpack_group(const uint8_t* group, int column,
                                                        const Factors<P, 16 / kLanes>& f, uint8_t* out) {
#if defined(__AVX512BF16__)
  const EachNumber<P> numbers(group, column);
  store_pairs(packed_weight<P>(numbers.template at<kPart>(), f.d[0], f.m[0]),
              packed_weight<P>(numbers.template at<kPart + 1>(), f.d[0], f.m[0]), out);
#else
  float even[16], odd[16];
  for (int i = 0; i < 16 / kLanes; ++i) {
    const EachNumber<P> numbers(group, column + i * kLanes);
    reg_store(even + i * kLanes, packed_weight<P>(numbers.template at<kPart>(), f.d[i], f.m[i]));
    reg_store(odd + i * kLanes, packed_weight<P>(numbers.template at<kPart + 1>(), f.d[i], f.m[i]));
  }
  const U32x16 pairs = bf16_bits(load(even)) | bf16_bits(load(odd)) << 16;
  std::memcpy(out, &pairs, sizeof pairs);
#endif
  if constexpr (kPart + 2 < kGroupK) unpack_group<P, kPart + 2>(group, column, f, out + kUnitRowBytes);
}

template <class P>
__attribute__((noinline)) void unpack_tiles(const uint8_t* panel, int64_t step, int column, int tiles, uint8_t* out) {
  constexpr int64_t kBlocks = kUnitK / P::kBlockK, kGroups = P::kBlockK / kGroupK;
  const BlockWalk<P> first(panel, step * kBlocks);
  for (int t = 0; t < tiles; ++t, column += 16) {
    BlockWalk<P> at = first;
    for (int64_t b = 0; b < kBlocks; ++b, at.step()) {
      const Factors<P, 16 / kLanes> f(at, column);
      const uint8_t* group = at.block + P::kFactorBytes;
      for (int64_t g = 0; g < kGroups; ++g, group += kGroupBytes<P>, out += 4 * kUnitRowBytes)
        unpack_group<P>(group, column, f, out);
    }
  }
}

// Where a factor may be subnormal. The product in a function of its own, so that nothing moves across the change of
// mode.
template <class P>
void unpack_with_subnormals(const uint8_t* panel, int64_t step, int column, int tiles, uint8_t* out) {
  const FloatMode mode = float_mode();
  set_float_mode(mode & ~kFlushAll);
  unpack_tiles<P>(panel, step, column, tiles, out);
  set_float_mode(mode);
}

struct Unpacking {
  UnpackStep step = nullptr;
  int64_t panel_bytes = 0;
};
inline Unpacking unpacking_of(BlockFormat format, int64_t k) {
  Unpacking of;
  with_format(format, [&](auto p) {
    using P = decltype(p);
    of.step = std::is_same_v<P, PackedMxfp4> ? unpack_with_subnormals<P> : unpack_tiles<P>;
    of.panel_bytes = BlockWalk<P>::bytes(k);
  });
  return of;
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
