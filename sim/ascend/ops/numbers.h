// Numbers of the simulated device: data types, and conversions to and from its 16-bit floats.
//
// Pure functions of their own, so that a test of the engine's conversions against them means something.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "ascend/ops/acl_op.h"

namespace ascend_sim {

inline constexpr aclDataType kFloat = 0, kHalf = 1, kInt8 = 2, kInt32 = 3, kUint8 = 4, kInt16 = 6, kUint16 = 7,
                             kUint32 = 8, kInt64 = 9, kUint64 = 10, kDouble = 11, kBool = 12, kBf16 = 27, kInt4 = 29;
inline constexpr aclFormat kNd = 2, kFractalNz = 29;

struct Bf16 {
  uint16_t bits = 0;
};
struct Half {
  uint16_t bits = 0;
};

inline float widen(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline float widen(Half value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t exponent = (value.bits >> 10) & 31, fraction = value.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -tiny : tiny;
}

// Half to even; a NaN stays one.
inline Bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

inline Half to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00)};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00)};  // rounds past 65504
  if (magnitude < 0x38800000u) {                                                // below 2^-14: steps of 2^-24
    const float steps = std::nearbyint(std::fabs(value) * 0x1p24f);
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(steps))};
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

inline int64_t size_of(aclDataType type) {
  switch (type) {
    case kInt8:
    case kUint8:
    case kBool: return 1;
    case kHalf:
    case kBf16:
    case kInt16:
    case kUint16: return 2;
    case kFloat:
    case kInt32:
    case kUint32: return 4;
    case kInt64:
    case kUint64:
    case kDouble: return 8;
    default: return 0;
  }
}

inline std::string name_of(aclDataType type) {
  switch (type) {
    case kFloat: return "FLOAT";
    case kHalf: return "FLOAT16";
    case kInt8: return "INT8";
    case kInt32: return "INT32";
    case kUint8: return "UINT8";
    case kInt16: return "INT16";
    case kUint16: return "UINT16";
    case kUint32: return "UINT32";
    case kInt64: return "INT64";
    case kUint64: return "UINT64";
    case kDouble: return "DOUBLE";
    case kBool: return "BOOL";
    case kBf16: return "BF16";
    case kInt4: return "INT4";
    default: return "data type " + std::to_string(type);
  }
}

inline bool is_float(aclDataType type) { return type == kFloat || type == kHalf || type == kBf16 || type == kDouble; }

// Calls f with a value of the C++ type behind a data type. Only types with a size may come here.
template <typename F>
void visit(aclDataType type, F&& f) {
  switch (type) {
    case kFloat: return f(float{});
    case kHalf: return f(Half{});
    case kBf16: return f(Bf16{});
    case kDouble: return f(double{});
    case kInt8: return f(int8_t{});
    case kUint8:
    case kBool: return f(uint8_t{});
    case kInt16: return f(int16_t{});
    case kUint16: return f(uint16_t{});
    case kInt32: return f(int32_t{});
    case kUint32: return f(uint32_t{});
    case kInt64: return f(int64_t{});
    case kUint64: return f(uint64_t{});
    default: return;
  }
}

// From one number to another: floats round once, half to even; floats become integers by truncation, saturating, and a
// NaN becomes 0.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<From, Bf16> || std::is_same_v<From, Half>) {
    return convert<To>(widen(value));
  } else if constexpr (std::is_same_v<To, Bf16>) {
    return to_bf16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Half>) {
    return to_half(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (!(value == value)) return 0;
    if (value <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

// What every int8 quantisation does last.
inline int8_t to_int8(float value) {
  if (!(value == value)) return 0;
  return static_cast<int8_t>(std::fmin(127.0f, std::fmax(-128.0f, std::nearbyint(value))));
}

}  // namespace ascend_sim
