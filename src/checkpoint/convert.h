// Bulk conversions between float formats, as loaders need them: plain loops that the compiler turns into vector code
// and that agree bit for bit with base/half.h. Sources come from files and need no alignment. Pure functions, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/storage_type.h"

namespace reprise::checkpoint {

void f16_to_f32(const uint8_t* in, float* out, size_t n);
void bf16_to_f32(const uint8_t* in, float* out, size_t n);
void f64_to_f32(const uint8_t* in, float* out, size_t n);
void f32_to_bf16(const float* in, uint16_t* out, size_t n);
void f32_to_f16(const float* in, uint16_t* out, size_t n);

// How many of n numbers of a float dtype are NaN or infinite.
uint64_t count_non_finite(DType dtype, const void* data, size_t n);

// n elements of `type` (whole blocks) to `target`: floats to F32, F16 or BF16 by way of float32, anything to itself by
// copying. `out` needs no alignment beyond the dtype's. Adds to *non_finite when given.
Status convert_elements(StorageType type, std::span<const uint8_t> in, DType target, void* out, size_t n,
                        uint64_t* non_finite);

}  // namespace reprise::checkpoint
