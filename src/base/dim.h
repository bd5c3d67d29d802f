// Dim: one size as the graph knows it, and LiveSizes: what the symbols are in one step.
//
// A Dim is a constant, or a constant factor times one symbol whose upper bound the graph states ("T <= 2048"). Model
// code cannot branch on a symbolic size: comparisons of Dim do not compile. Shape functions and kernels use same_dim()
// and Dim::value(). Small values, usable from any thread. Nothing else is included, so that device compilers can read
// it.
#pragma once

#include <array>
#include <cstdint>

namespace reprise {

// Index of a symbol in its graph's symbol table; 0 is "no symbol" and always has the value 1.
using SymbolId = uint8_t;
// Room in LiveSizes, of which the symbols of src/models/step_spec.h take nine. Its sizes lie in place and do not grow:
// a step allocates nothing, and streams, kernels and messages between ranks take copies of the bytes. Kernels of
// extensions get a pointer to the sizes, so more room is no other interface to them.
constexpr int kMaxSymbols = 16;

// The live value of every symbol in one step; entry 0 is 1.
struct LiveSizes {
  std::array<int64_t, kMaxSymbols> value{1};
};

struct Dim {
  int64_t factor = 0;
  SymbolId symbol = 0;

  constexpr Dim() = default;
  constexpr Dim(int64_t constant) : factor(constant) {}  // NOLINT: a number is a size
  constexpr Dim(int64_t f, SymbolId s) : factor(f), symbol(s) {}

  constexpr bool is_constant() const { return symbol == 0; }
  // The size in one step.
  constexpr int64_t value(const LiveSizes& live) const { return factor * live.value[symbol]; }

  bool operator==(const Dim&) const = delete;  // would silently specialise the trace; see same_dim
  auto operator<=>(const Dim&) const = delete;
};

constexpr bool same_dim(Dim a, Dim b) { return a.factor == b.factor && a.symbol == b.symbol; }

}  // namespace reprise
