// ProductWay: who computes matrix products of a shape on a device that may leave them to a vendor's library, and
// ProductWays, what such a device has found out about them.
//
// A way holds for a range of rows of x. It changes no bit of a result, only the time: an algorithm of the library is
// used where it gives the bits of the device's own kernel. Ways are plain values. The device owns its ProductWays; used
// by the thread that launches, and by others while nothing runs.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace reprise {

// Numbers of rows that share a way: steps of 16 up to 256, then sixteenths of a power of two, so that what is right for
// the last of them is nearly so for the others.
struct RowRange {
  int64_t first = 1, last = 16;
  bool operator==(const RowRange&) const = default;
};
constexpr RowRange rows_like(int64_t rows) {
  const int64_t before = rows - 1;
  const int64_t step = rows <= 256 ? 16 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(before))) / 16;
  const int64_t first = before / step * step + 1;
  return {first, first + step - 1};
}

// What the library knows an algorithm by; only the version of it that gave them can read the bytes.
using ProductAlgorithm = std::array<uint8_t, 64>;

struct ProductWay {
  enum class Outcome : uint8_t {
    Library,     // by the algorithm
    OwnFaster,   // an algorithm gives the bits of the device's own kernel, which is faster
    OtherBits,   // no algorithm that the library proposed gives these bits
    NoProposal,  // it proposed none that splits no sum and needs no memory
  };
  static constexpr uint8_t kOutcomes = 4;

  DType in = DType::BF16, out = DType::BF16;  // of x and the weight, of the result
  int64_t depth = 0, columns = 0;
  RowRange rows;
  Outcome outcome = Outcome::NoProposal;
  ProductAlgorithm algorithm{};  // of Library; else zeros
  float us = 0, own_us = 0;      // of the fastest algorithm with the right bits, and of the own kernel; 0: not timed
  uint16_t proposed = 0, other_bits = 0;  // algorithms that the library named, and those among them with other bits
};

// Whose ways these are. A change of any of them makes ways worth nothing.
struct ProductWaysKey {
  int64_t library = 0;  // version of the vendor's library
  std::string isa;      // "sm_90"
  int64_t multiprocessors = 0;
  uint32_t own_kernels = 0;  // version of the device's own kernels
  bool operator==(const ProductWaysKey&) const = default;
};

// The library's part in one call of an op, by the call's types.
struct LibraryProduct {
  DType in = DType::BF16, out = DType::BF16;
  int64_t depth = 0, columns = 0;
  std::string_view own_because = {};  // why the library is not asked for this call; empty: it is
};

class ProductWays {
 public:
  struct Found {
    ProductWay way;
    bool from_file = false;
    std::string algorithm;  // in words; empty where the library is not used
  };

  virtual ~ProductWays() = default;
  // Reads what an earlier start kept in the folder; keep() writes there. The first folder counts.
  virtual void keep_in(const std::string& folder) = 0;
  virtual void keep() = 0;
  // By shape and rows.
  virtual std::vector<Found> found() const = 0;
  // Why the library is not asked for a product of so many rows, in words; empty: it is.
  virtual std::string_view own_because(const LibraryProduct& product, int64_t rows) const = 0;
  virtual std::string library() const = 0;  // "cuBLASLt 130100"
};

}  // namespace reprise
