// GgufValue: one metadata value of a GGUF file. Strings and the elements of scalar arrays are views of the file, so a
// vocabulary of 150,000 tokens costs no copies; values are good for as long as the GgufFile they came from.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::checkpoint {

enum class GgufValueType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
constexpr uint32_t kGgufValueTypes = 13;
std::string_view value_type_name(GgufValueType t);
// Bytes of one scalar, 0 for String and Array.
size_t value_type_size(GgufValueType t);

struct GgufValue {
  GgufValueType type = GgufValueType::U8;
  std::string_view text;           // String
  std::span<const uint8_t> bytes;  // a scalar's bytes, or those of all elements of a scalar array

  // The next members belong to arrays, except count.
  GgufValueType element = GgufValueType::U8;
  uint64_t count = 0;                     // elements; 1 for a scalar
  std::vector<std::string_view> strings;  // elements are String
  std::vector<GgufValue> arrays;          // elements are Array

  bool is_integer() const { return is_integer_type(type); }
  bool is_array_of(GgufValueType t) const { return type == GgufValueType::Array && element == t; }
  static bool is_integer_type(GgufValueType t) {
    return t != GgufValueType::F32 && t != GgufValueType::F64 && t != GgufValueType::Bool &&
           t != GgufValueType::String && t != GgufValueType::Array;
  }

  // The i-th element of a scalar array, or the scalar itself (i = 0). as_int() answers an error for an U64 above
  // INT64_MAX and for floats; as_double() takes every number. An f32 becomes the double with the shortest decimal that
  // names it, so that 1e-5 stored as f32 reads 1e-5.
  Result<int64_t> as_int(uint64_t i = 0) const;
  Result<double> as_double(uint64_t i = 0) const;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

}  // namespace reprise::checkpoint
