// A request for y[T, N] = x[T, K] weight[N, K]^T to a library of matrix products.
#pragma once

#include <cstdint>

namespace reprise::cuda {

enum class Number : uint8_t { F32, BF16, F16, I8, I32 };  // of I8 the result is I32, exact

struct Product {
  Number in = Number::BF16, out = Number::BF16;
  int64_t tokens = 0, depth = 0, columns = 0;
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
};

}  // namespace reprise::cuda
