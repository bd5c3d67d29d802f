// DType: how one element is stored. The IR's values, checkpoint tensors and kernels all use this list; block formats
// of GGUF are not here, they belong to `checkpoint`, which turns them into one of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace reprise {

enum class DType : uint8_t { F32, F16, BF16, I8, U8, I32, I64, Bool, F64, I16 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::F32:
    case DType::I32: return 4;
    case DType::F16:
    case DType::BF16:
    case DType::I16: return 2;
    case DType::I8:
    case DType::U8:
    case DType::Bool: return 1;
    case DType::I64:
    case DType::F64: return 8;
  }
  return 0;
}

constexpr bool is_float(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16 || t == DType::F64; }

// Short names, as the IR text prints them: "f32", "bf16", "i32".
std::string_view dtype_name(DType t);
Result<DType> parse_dtype(std::string_view name);  // short names, and "float32", "float16", "half", "bfloat16"

}  // namespace reprise
