#include "base/dtype.h"

#include <array>
#include <utility>

namespace reprise {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 10> kNames = {{{"f32", DType::F32},
                                                                        {"f16", DType::F16},
                                                                        {"bf16", DType::BF16},
                                                                        {"i8", DType::I8},
                                                                        {"u8", DType::U8},
                                                                        {"i32", DType::I32},
                                                                        {"i64", DType::I64},
                                                                        {"bool", DType::Bool},
                                                                        {"f64", DType::F64},
                                                                        {"i16", DType::I16}}};

constexpr std::array<std::pair<std::string_view, DType>, 6> kLongNames = {{{"float32", DType::F32},
                                                                           {"float", DType::F32},
                                                                           {"float16", DType::F16},
                                                                           {"half", DType::F16},
                                                                           {"bfloat16", DType::BF16},
                                                                           {"float64", DType::F64}}};

}  // namespace

std::string_view dtype_name(DType t) {
  for (auto& [name, type] : kNames)
    if (type == t) return name;
  return "?";
}

Result<DType> parse_dtype(std::string_view name) {
  for (auto& [n, type] : kNames)
    if (n == name) return type;
  for (auto& [n, type] : kLongNames)
    if (n == name) return type;
  return invalid(
      "dtype \"{}\" is not known; allowed: float32, float16, half, bfloat16, f32, f16, bf16, i8, u8, i16, i32, i64, "
      "bool, f64",
      name);
}

}  // namespace reprise
