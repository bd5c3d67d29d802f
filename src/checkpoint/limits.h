// The largest numbers that a model's files may name. A larger one is a broken file, and is refused before anything is
// computed with it.
#pragma once

#include <cstdint>

namespace reprise::checkpoint {

constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxExperts = 4096;

}  // namespace reprise::checkpoint
