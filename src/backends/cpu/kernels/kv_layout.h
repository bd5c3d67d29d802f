// How the CPU lays out one (page, key or value, head) block of the KV cache: 128 tokens x D elements, D even.
//
//             bf16                                           f32, f16, i8
//   keys      [8 runs][D/2][16 tokens][2 neighbours of D]    [8 runs][D][16 tokens]
//   values    [64 token pairs][D][2 tokens]                  [128 tokens][D]
//
// Both products of attention then read rows of many columns: scores have tokens as columns and sum over D, outputs have
// D as columns and sum over tokens. The pairs are the operands of the bf16 dot instruction. The first n tokens of a
// page take up the front of both blocks (of keys, whole runs of 16), so a page that is not full is read no further, and
// a new key touches one run only: 4 KiB for 128 bf16. Behind the int8 numbers of a block lie the fp32 scales of its 128
// tokens. Offsets are in elements. The functions have internal linkage, so kernel sources may use them.
#pragma once

#include <cstdint>

#include "base/kv_page.h"

namespace reprise::cpu {

static constexpr int64_t kKvTokens = kPageTokens;
static constexpr int64_t kKeyRun = 16;  // tokens side by side in a block of keys

// Elements of a cache row: those of the head, and of int8 also the bytes of its scale (kv_row of ops/core.h).
[[maybe_unused]] static constexpr int64_t kv_row_of(int64_t size, bool scaled) { return scaled ? size + 4 : size; }

// Start of a block; kv is [P, 2, heads, 128, row].
[[maybe_unused]] static constexpr int64_t kv_block(int64_t page, bool values, int64_t head, int64_t heads,
                                                   int64_t row) {
  return ((page * 2 + (values ? 1 : 0)) * heads + head) * kKvTokens * row;
}

[[maybe_unused]] static constexpr int64_t key_offset(int64_t token, int64_t d, int64_t size, bool pairs) {
  const int64_t run = token / kKeyRun * kKeyRun * size, place = token % kKeyRun;
  return run + (pairs ? (d / 2 * kKeyRun + place) * 2 + d % 2 : d * kKeyRun + place);
}

[[maybe_unused]] static constexpr int64_t value_offset(int64_t token, int64_t d, int64_t size, bool pairs) {
  return pairs ? (token / 2 * size + d) * 2 + token % 2 : token * size + d;
}

// Bytes before the scales of an int8 block.
[[maybe_unused]] static constexpr int64_t kv_scales_offset(int64_t size) { return kKvTokens * size; }

}  // namespace reprise::cpu
