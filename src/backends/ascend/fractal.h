// FRACTAL_NZ: the blocks of 16 rows and 32 columns in which the cube unit reads int8 matrices.
//
// Pure functions; what the blocks are filled with is each layout's own.
#pragma once

#include <cstdint>

namespace reprise::ascend {

constexpr int64_t kBlockRows = 16, kBlockColumns = 32;  // columns: of one byte each

constexpr int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

}  // namespace reprise::ascend
