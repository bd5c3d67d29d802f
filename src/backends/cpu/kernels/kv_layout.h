// How the CPU lays out one (page, key or value, head) block of the KV cache: 128 tokens x D elements, D even.
//
//             16-bit bf16                          f32, f16, i8
//   keys      [D/2][128 tokens][2 neighbours of D]  [D][128 tokens]
//   values    [64 token pairs][D][2 tokens]         [128 tokens][D]
//
// Both products of attention then read the block front to back, a row of many columns at a time: scores have tokens as
// columns and sum over D, outputs have D as columns and sum over tokens. The pairs are the operands of the bf16 dot
// instruction. Behind the int8 numbers of a block lie the fp32 scales of its 128 tokens. Offsets are in elements. The
// functions have internal linkage, so kernel sources may use them.
#pragma once

#include <cstdint>

namespace reprise::cpu {

static constexpr int64_t kKvTokens = 128;  // tokens of a page (kPageTokens of ops/core.h)

// Elements of a cache row: those of the head, and of int8 also the bytes of its scale (kv_row of ops/core.h).
[[maybe_unused]] static constexpr int64_t kv_row_of(int64_t size, bool scaled) { return scaled ? size + 4 : size; }

// Start of a block; kv is [P, 2, heads, 128, row].
[[maybe_unused]] static constexpr int64_t kv_block(int64_t page, bool values, int64_t head, int64_t heads,
                                                   int64_t row) {
  return ((page * 2 + (values ? 1 : 0)) * heads + head) * kKvTokens * row;
}

[[maybe_unused]] static constexpr int64_t key_offset(int64_t token, int64_t d, int64_t size, bool pairs) {
  return pairs ? (d / 2 * kKvTokens + token) * 2 + d % 2 : d * kKvTokens + token;
}

[[maybe_unused]] static constexpr int64_t value_offset(int64_t token, int64_t d, int64_t size, bool pairs) {
  return pairs ? (token / 2 * size + d) * 2 + token % 2 : token * size + d;
}

// Bytes before the scales of an int8 block.
[[maybe_unused]] static constexpr int64_t kv_scales_offset(int64_t size) { return kKvTokens * size; }

}  // namespace reprise::cpu
