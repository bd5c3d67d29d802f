// Scalar conversions between float and the two 16-bit floats, round to nearest even, NaN kept. Kernels use vector
// instructions that agree with these bit for bit; references and loaders use these.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

inline float bf16_to_float(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

inline uint16_t float_to_bf16(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);  // quiet NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 0x1fu;
  uint32_t man = h & 0x3ffu;
  if (exp == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13) | (man ? 0x400000u : 0u));
  if (exp == 0) {
    if (man == 0) return std::bit_cast<float>(sign);
    int shift = std::countl_zero(man) - 21;  // bring the leading one to bit 10
    man = (man << shift) & 0x3ffu;
    return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) | (man << 13));
  }
  return std::bit_cast<float>(sign | ((exp + 112u) << 23) | (man << 13));
}

inline uint16_t float_to_half(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity, or is
  if (a < 0x33000001u) return sign;                                    // at most half of the smallest subnormal
  if (a < 0x38800000u) {                                               // subnormal half
    const int shift = 126 - static_cast<int>(a >> 23);                 // 14..24
    const uint32_t man = (a & 0x7fffffu) | 0x800000u;
    const uint32_t half = 1u << (shift - 1);
    uint32_t q = man >> shift;
    const uint32_t rest = man & ((1u << shift) - 1);
    if (rest > half || (rest == half && (q & 1u))) ++q;
    return static_cast<uint16_t>(sign | q);
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

}  // namespace reprise
