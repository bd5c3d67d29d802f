// dequantize: GGUF blocks to floats, bit for bit what the `gguf` Python package computes. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/storage_type.h"

namespace reprise::checkpoint {

// `blocks` holds whole blocks of `type` and `out` exactly their elements; anything else is an error. F32, F16 and BF16
// count as blocks of one element.
Status dequantize(StorageType type, std::span<const uint8_t> blocks, std::span<float> out);

}  // namespace reprise::checkpoint
