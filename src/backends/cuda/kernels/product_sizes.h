// Sizes that the kernels of products and their entries share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cuda {

// From this number of tokens on the vendor's library is asked first.
constexpr int64_t kManyTokens = 17;

// Columns of one candidate for the largest logit: of the smallest block of a product, and of a part of a row.
constexpr int64_t kHeadColumns = 32;
constexpr int64_t kRowPart = 8192;

constexpr size_t kCandidateBytes = 8;

constexpr size_t head_candidates_bytes(int64_t columns) {
  return static_cast<size_t>((columns + kHeadColumns - 1) / kHeadColumns) * kCandidateBytes;
}
constexpr size_t row_candidates_bytes(int64_t columns) {
  return static_cast<size_t>((columns + kRowPart - 1) / kRowPart) * kCandidateBytes;
}

// The library's product of two-byte numbers in front of silu_mul; of few tokens there is none.
constexpr size_t gated_bytes(int64_t tokens, int64_t columns) {
  return tokens < kManyTokens ? 0 : static_cast<size_t>(tokens) * static_cast<size_t>(columns) * 2;
}

// The library's int32 sums of int8 products: of so many tokens at a time, about 64 MiB.
constexpr int64_t tokens_at_once(int64_t columns) {
  const int64_t tokens = (int64_t{16} << 20) / columns / 64 * 64;
  return tokens < 64 ? 64 : tokens;
}
constexpr size_t sums_bytes(int64_t tokens, int64_t columns) {
  const int64_t most = tokens_at_once(columns);
  return static_cast<size_t>(tokens < most ? tokens : most) * static_cast<size_t>(columns) * sizeof(int32_t);
}

}  // namespace reprise::cuda
