// Parameter layouts of the CPU.
//
// row_major: as the checkpoint has it.
// panel64: a matrix [N, K] as ceil(N / 64) panels of 64 output columns; inside a panel k-major: bf16 as [ceil(K /
// 2)][64][2] (two neighbouring k side by side, the last one zero when K is odd), i8 as [ceil(K / 4)][64][4] behind a
// header of 64 int32 that hold -128 * (sum of the column), other types as [K][64]. Columns beyond N are zero. A stack
// [E, N, K] has the panels of every matrix one after another.
//
// q8_0_panel64, q4_0_panel64, q4_1_panel64, q5_0_panel64, q5_1_panel64, mxfp4_panel64, iq4_nl_panel64: rows of GGUF
// blocks, u8 [N, bytes of a row], as panels of 64 output columns with as many bytes as the file has. A panel's block of
// 32 k is [64] factors (f16, of mxfp4 a byte), for q4_1 and q5_1 [64] f16 minima, then the numbers: q8_0 as [32][64]
// bytes; the others as four groups of 8 k, [64] words each, k of the group in nibbles from the lowest up, of q5_0 and
// q5_1 each with [64] bytes of the fifth bits behind it. A stack [E, N, bytes of a row] has the panels of every matrix
// one after another.
//
// q2_k_panel64 to q6_k_panel64, iq4_xs_panel64: the same of blocks of 256 k: [64] f16 factors, for q2_k, q4_k and q5_k
// [64] minima with the sign changed (they are added here), then parts of 32 k, of q2_k, q3_k and q6_k of 16. A part is
// [64] bytes to multiply the factor by, for q4_k and q5_k [64] to multiply the minimum by (q2_k has both in one byte,
// four bits each, the factor's lower), and the numbers as above: of q5_k with the fifth bits, of q6_k with [64]
// integers of two bytes that have the upper two bits, k of the group from the lowest up. A group of q2_k is [64]
// integers of two bytes, of q3_k [64] of three, of which [64] are the lower two bytes and [64] the third.
//
// Different rows of the matrix touch different bytes, so disjoint row blocks may be packed from several threads.
#pragma once

#include "base/block_format.h"
#include "ops/kernel.h"

namespace reprise::cpu {

constexpr int64_t kPanelWidth = 64;

// Values of k that lie side by side in panel64.
constexpr int64_t panel_group(DType t) { return t == DType::BF16 ? 2 : t == DType::I8 ? 4 : 1; }

// Bytes in front of the values of a panel. The dot instruction takes x + 128 without a sign: what that adds to the sum
// of a column is taken away by starting at the column's number in the header.
constexpr int64_t panel_header(DType t) { return t == DType::I8 ? 4 * kPanelWidth : 0; }

// The name of a packed layout, and the bytes that matrices of `rows` rows of `row_bytes` in blocks take in it.
std::string packed_layout(BlockFormat format);
size_t packed_bytes(BlockFormat format, int64_t matrices, int64_t rows, int64_t row_bytes);

void register_layouts(KernelRegistry& kernels);

}  // namespace reprise::cpu
