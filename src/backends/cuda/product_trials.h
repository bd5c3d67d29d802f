// ProductTrials: what a search for a product's algorithm asks of the vendor's library and of the GPU.
//
// An interface without vendor headers and without fmt, so that nvcc reads it, and so that tests have a library of their
// own. Made for one launch by the code that wants the product (kernels/library.cu); on that thread alone.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "backends/cuda/kernels/product.h"

namespace reprise::cuda {

using Algorithm = std::array<uint8_t, 64>;  // as the library stores one; ProductAlgorithm of device/product_ways.h

// Up to so many rows algorithms are timed beside the own kernel; with more, the library's favourite is taken.
constexpr int64_t kTimedTokens = 128;

class ProductTrials {
 public:
  enum class Bits : uint8_t {
    Ours,
    Other,
    Refused,  // the library or the GPU did not run it
    NotNow,   // there is no memory for a trial at the moment
  };
  virtual ~ProductTrials() = default;
  // Algorithms that split no sum and need no workspace, the library's favourite first. This is the slow question.
  virtual std::vector<Algorithm> proposals(const Product& p) = 0;
  // Whether the library takes stored bytes as such an algorithm of this product.
  virtual bool takes(const Product& p, const Algorithm& algorithm) = 0;
  // Whether it gives the own kernel's bits with the product's weights, on three sets of numbers.
  virtual Bits compare(const Product& p, const Algorithm& algorithm) = 0;
  // Microseconds of the own kernel, and of an algorithm; nothing: it did not run.
  virtual std::optional<float> own_us(const Product& p) = 0;
  virtual std::optional<float> us(const Product& p, const Algorithm& algorithm) = 0;
};

class ProductChoices;
// The library's algorithm for the product; null: the own kernel computes it. (product_choices.h)
const Algorithm* choose(ProductChoices& choices, const Product& p, ProductTrials& trials);

}  // namespace reprise::cuda
