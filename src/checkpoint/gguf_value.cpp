#include "checkpoint/gguf_value.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace reprise::checkpoint {
namespace {

constexpr std::array<std::string_view, kGgufValueTypes> kTypeNames = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                                      "int32",  "float32", "bool",   "string", "array",
                                                                      "uint64", "int64",   "float64"};
constexpr std::array<size_t, kGgufValueTypes> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <typename T>
T load(std::span<const uint8_t> bytes, uint64_t i) {
  T v;
  std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
  return v;
}

double shortest(float f) {
  if (!std::isfinite(f)) return f;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, f).ptr;
  double d = 0;
  std::from_chars(text, end, d);
  return d;
}

}  // namespace

std::string_view value_type_name(GgufValueType t) { return kTypeNames[static_cast<size_t>(t)]; }
size_t value_type_size(GgufValueType t) { return kSizes[static_cast<size_t>(t)]; }

Result<int64_t> GgufValue::as_int(uint64_t i) const {
  const GgufValueType t = type == GgufValueType::Array ? element : type;
  if (i >= count) return invalid("index {} of a value with {} elements", i, count);
  switch (t) {
    case GgufValueType::U8: return int64_t{load<uint8_t>(bytes, i)};
    case GgufValueType::I8: return int64_t{load<int8_t>(bytes, i)};
    case GgufValueType::U16: return int64_t{load<uint16_t>(bytes, i)};
    case GgufValueType::I16: return int64_t{load<int16_t>(bytes, i)};
    case GgufValueType::U32: return int64_t{load<uint32_t>(bytes, i)};
    case GgufValueType::I32: return int64_t{load<int32_t>(bytes, i)};
    case GgufValueType::I64: return load<int64_t>(bytes, i);
    case GgufValueType::U64: {
      const uint64_t v = load<uint64_t>(bytes, i);
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return invalid("{} is too large", v);
      return static_cast<int64_t>(v);
    }
    default: return invalid("is of type {}; expected an integer", value_type_name(t));
  }
}

Result<double> GgufValue::as_double(uint64_t i) const {
  const GgufValueType t = type == GgufValueType::Array ? element : type;
  if (i >= count) return invalid("index {} of a value with {} elements", i, count);
  if (t == GgufValueType::F32) return shortest(load<float>(bytes, i));
  if (t == GgufValueType::F64) return load<double>(bytes, i);
  if (t == GgufValueType::U64) return static_cast<double>(load<uint64_t>(bytes, i));
  if (!is_integer_type(t)) return invalid("is of type {}; expected a number", value_type_name(t));
  ASSIGN_OR_RETURN(const int64_t v, as_int(i));
  return static_cast<double>(v);
}

}  // namespace reprise::checkpoint
