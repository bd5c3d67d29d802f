// Symmetric int8 rows out of float rows, as the loader and `reprise quantize` make them, and small tensors of any
// number type read as floats. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/block_format.h"
#include "checkpoint/checkpoint.h"

namespace reprise::checkpoint {

// scale = max|row| / 127 in fp32; a row of zeros has scale 0.
void row_scales(const float* rows, int64_t count, int64_t width, float* scales);
// q = row / scale, rounded half to even, clamped to [-127, 127]; scale 0 gives 0. NaN gives 0.
void quantise_rows(const float* rows, const float* scales, int64_t count, int64_t width, int8_t* out);

// All numbers of a tensor: floats and integers of up to 64 bits. NaN and infinity are errors.
Result<std::vector<float>> read_numbers(const Checkpoint& checkpoint, const CheckpointTensor& t);
// The same for ModelSlim's deq_scale, which holds floats, or the bits of fp32 numbers in int64.
Result<std::vector<float>> read_deq_scales(const Checkpoint& checkpoint, const CheckpointTensor& t);

// How many numbers of packed rows are NaN or infinite: those of blocks with such a factor.
uint64_t non_finite_in_blocks(BlockFormat format, const uint8_t* blocks, size_t bytes);

}  // namespace reprise::checkpoint
