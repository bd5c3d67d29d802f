// PagedStep: where the tokens of a step's sequences lie in a cache of pages, for tests of attention. A plain value.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "backends/op_runner.h"
#include "ops/core.h"

namespace reprise::cpu {

// One after another along the first dimension.
inline TestTensor concat(const std::vector<TestTensor>& parts) {
  TestTensor all = parts.front();
  int64_t n = all.type.shape[0].factor;
  for (size_t i = 1; i < parts.size(); ++i) {
    n += parts[i].type.shape[0].factor;
    all.bytes.append(parts[i].bytes.begin(), parts[i].bytes.end());
  }
  all.type.shape[0] = Dim(n);
  return all;
}

inline TestTensor indices(const std::vector<double>& values) {
  return tensor_of(DType::I32, {static_cast<int64_t>(values.size())}, values);
}

struct PagedStep {
  // Tokens [from, to) of every part are this step's; those before are in the cache. Pages are handed out in the order
  // of `seed`; behind each row of the table are `padding` columns that are never to be read.
  template <typename Part>
  explicit PagedStep(const std::vector<Part>& parts, uint32_t seed = 1, int64_t padding = 2) {
    int64_t columns = 1;
    for (const Part& p : parts) {
      const int64_t own = (p.to + kPageTokens - 1) / kPageTokens;
      columns = std::max(columns, own);
      pages += own;
    }
    columns += padding;
    std::vector<int> order(static_cast<size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    table = zero_tensor(DType::I32, {static_cast<int64_t>(parts.size()), columns});
    for (int64_t i = 0; i < table.size(); ++i) table.set(i, -1);
    std::vector<double> ends, firsts{0}, places;
    size_t next = 0;
    int64_t row = 0;
    for (const Part& p : parts) {
      for (int64_t c = 0; c * kPageTokens < p.to; ++c) table.set(row + c, order[next++]);
      for (int64_t t = 0; t < p.to; ++t)
        places.push_back(table.get(row + t / kPageTokens) * kPageTokens + static_cast<double>(t % kPageTokens));
      ends.push_back(static_cast<double>(p.to));
      firsts.push_back(firsts.back() + static_cast<double>(p.to - p.from));
      row += columns;
    }
    lengths = indices(ends);
    starts = indices(firsts);
    slots = indices(places);
  }

  int64_t pages = 1;  // of the cache: one more than are used
  TestTensor table;   // [sequences, columns], -1 where there is no page
  TestTensor lengths, starts;
  TestTensor slots;  // of all tokens, those before this step too
};

}  // namespace reprise::cpu
