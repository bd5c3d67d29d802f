// Parameter layouts of the CPU.
//
// row_major: as the checkpoint has it.
// panel64: a matrix [N, K] as ceil(N / 64) panels of 64 output columns; inside a panel k-major: bf16 as [ceil(K /
// 2)][64][2] (two neighbouring k side by side, the last one zero when K is odd), i8 as [ceil(K / 4)][64][4] behind a
// header of 64 int32 that hold -128 * (sum of the column), other types as [K][64]. Columns beyond N are zero. Different
// rows of the matrix touch different bytes, so disjoint row blocks may be packed from several threads.
#pragma once

#include "ops/kernel.h"

namespace reprise::cpu {

constexpr int64_t kPanelWidth = 64;

// Values of k that lie side by side in panel64.
constexpr int64_t panel_group(DType t) { return t == DType::BF16 ? 2 : t == DType::I8 ? 4 : 1; }

// Bytes in front of the values of a panel. The dot instruction takes x + 128 without a sign: what that adds to the sum
// of a column is taken away by starting at the column's number in the header.
constexpr int64_t panel_header(DType t) { return t == DType::I8 ? 4 * kPanelWidth : 0; }

void register_layouts(KernelRegistry& kernels);

}  // namespace reprise::cpu
