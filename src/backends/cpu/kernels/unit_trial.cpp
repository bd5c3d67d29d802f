// unit_works: whether the tile registers compute here what they are documented to, by one product of each kind against
// the same in plain C++. It runs before the set is offered: virtual machines that hide half of AMX exist.
#include <cmath>

#include "backends/cpu/kernels/tile.h"
#include "backends/cpu/kernels/tile_unit.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// Bytes of every sign and size, and bf16 numbers of both signs from 2^-7 to 2: no sum is subnormal.
struct Operands {
  alignas(64) uint8_t a[kUnitBytes], b[kUnitBytes], sums[kUnitBytes];
  Operands(bool floats, uint32_t seed) {
    const auto next = [&seed] { return seed = seed * 1664525u + 1013904223u; };
    const auto fill = [&](uint8_t* out) {
      for (int i = 0; i < kUnitBytes / 2; ++i) {
        auto v = static_cast<uint16_t>(next() >> 16);
        if (floats) v = static_cast<uint16_t>((v & 0x83ffu) | 0x3c00u);
        std::memcpy(out + 2 * i, &v, 2);
      }
    };
    fill(a);
    fill(b);
    for (int i = 0; i < kUnitBytes / 4; ++i) {
      const float f = static_cast<float>(static_cast<int32_t>(next()) >> 16) / 256;
      const auto whole = static_cast<int32_t>(next());
      if (floats)
        std::memcpy(sums + 4 * i, &f, 4);
      else
        std::memcpy(sums + 4 * i, &whole, 4);
    }
  }
};

uint32_t word(const uint8_t* tile, int row, int group) {
  uint32_t w;
  std::memcpy(&w, tile + row * kUnitRowBytes + 4 * group, 4);
  return w;
}
float half(uint32_t w, bool odd) {
  const uint32_t bits = odd ? w & 0xffff0000u : w << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

uint32_t sum_of_bytes(const Operands& in, int row, int column) {
  uint32_t sum = word(in.sums, row, column);
  for (int g = 0; g < kUnitRows; ++g)
    for (int i = 0; i < 4; ++i)
      sum += static_cast<uint32_t>(static_cast<int8_t>(word(in.a, row, g) >> 8 * i) *
                                   static_cast<int8_t>(word(in.b, g, column) >> 8 * i));
  return sum;
}
uint32_t sum_of_floats(const Operands& in, int row, int column) {
  float even = 0, odd = 0, sum;
  for (int g = 0; g < kUnitRows; ++g) {
    const uint32_t a = word(in.a, row, g), b = word(in.b, g, column);
    even = __builtin_fmaf(half(a, false), half(b, false), even);
    odd = __builtin_fmaf(half(a, true), half(b, true), odd);
  }
  uint32_t bits = word(in.sums, row, column);
  std::memcpy(&sum, &bits, 4);
  sum = sum + (even + odd);
  std::memcpy(&bits, &sum, 4);
  return bits;
}

template <class Dot, class Want>
bool agrees(const Operands& in, const Dot& dot, const Want& want) {
  alignas(64) uint8_t got[kUnitBytes];
  {
    TileUnit unit;
    unit.load<0>(in.sums, kUnitRowBytes);
    unit.load<4>(in.a, kUnitRowBytes);
    unit.load<6>(in.b, kUnitRowBytes);
    dot(unit);
    unit.store<0>(got, kUnitRowBytes);
  }
  for (int row = 0; row < kUnitRows; ++row)
    for (int column = 0; column < kUnitRows; ++column)
      if (word(got, row, column) != want(in, row, column)) return false;
  return true;
}

bool subnormals_are_zeros() {
  Operands in(true, 1);
  std::memset(in.sums, 0, sizeof in.sums);
  for (int i = 0; i < kUnitBytes; i += 2) {
    in.a[i] = 1;
    in.a[i + 1] = 0;
  }
  return agrees(
      in, [](TileUnit& u) { u.dot_bf16<0, 4, 6>(); }, [](const Operands&, int, int) { return 0u; });
}

}  // namespace

bool unit_works() {
#if REPRISE_TILES == 2
  const FlushSubnormals flush;
#endif
  if (!subnormals_are_zeros()) return false;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    if (!agrees(
            Operands(false, seed), [](TileUnit& u) { u.dot_i8<0, 4, 6>(); }, sum_of_bytes))
      return false;
    if (!agrees(
            Operands(true, seed), [](TileUnit& u) { u.dot_bf16<0, 4, 6>(); }, sum_of_floats))
      return false;
  }
  return true;
}

}  // namespace reprise::cpu::REPRISE_ISA
