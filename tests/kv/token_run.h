// run(): token ids that follow each other.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace reprise::kv {

using Tokens = std::vector<int32_t>;

inline Tokens run(int64_t n, int32_t first = 0) {
  Tokens t(static_cast<size_t>(n));
  std::iota(t.begin(), t.end(), first);
  return t;
}

}  // namespace reprise::kv
