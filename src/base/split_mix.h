// split_mix: SplitMix64, a hash of one number whose values at multiples of kSplitMixStep are random numbers as well.
// Plain functions; any thread.
#pragma once

#include <cstdint>

namespace reprise {

constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

// Every bit of z reaches every bit of the result.
constexpr uint64_t split_mix(uint64_t z) {
  z += kSplitMixStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace reprise
