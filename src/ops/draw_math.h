// The arithmetic of the rule by which a token is drawn (ops/draw_rule.h), number by number: what the host's sampler,
// the kernels of CPUs and those of GPUs share. Everything is constexpr, so that device compilers read it, and internal
// to the file that includes it, because the same code compiled for two instruction sets may not be merged by the
// linker.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/split_mix.h"
#include "ops/draw.h"

namespace reprise {

namespace {
namespace draw {

using Candidate = DrawCandidate;

// Weights are added in so many lanes per block, then the blocks; a peak is the largest logit of a block of its own.
constexpr int64_t kLanes = 16, kBlock = 256, kPeakBlock = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNone = -kInfinity;

constexpr int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

// Row `row` of the staged input "draws", which has the bytes of a Draw: each number of eight bytes is two words.
constexpr Draw of_row(const int32_t* draws, int64_t row) {
  struct Pair {
    int32_t words[2];
  };
  const int32_t* w = draws + row * kDrawWords;
  const auto number = [&](int i) { return std::bit_cast<float>(w[i]); };
  const auto pair = [&](int i) { return Pair{{w[i], w[i + 1]}}; };
  const auto seed = std::bit_cast<uint64_t>(pair(4));
  const auto position = std::bit_cast<int64_t>(pair(6));
  return {number(0), number(1), number(2), w[3], seed, position, w[8], w[9]};
}

// exp of numbers <= 0, within 2 ulp; below -87 it is 0. V is a float or a vector of them; power_of_two(n) is 2^n.
// Products and sums are rounded one by one, so that it is the same everywhere. The polynomial is that of e^r on
// |r| <= ln2 / 2 at Chebyshev nodes.
template <class V, class Power>
constexpr V exp(V x, Power power_of_two) {
  const auto alive = x > -87.0f;
  x = alive ? x : V{};
  const V n = (x * 0x1.715476p+0f + 0x1.8p+23f) - 0x1.8p+23f;
  V r = x - n * 0x1.62e4p-1f;
  r = r - n * 1.4286068e-6f;
  V q = r * 0x1.6d117cp-10f + 0x1.120be2p-7f;
  q = q * r + 0x1.555518p-5f;
  q = q * r + 0x1.5554dcp-3f;
  q = q * r + 0.5f;
  const V p = (r * r * q + r) + 1.0f;
  return alive ? p * power_of_two(n) : V{};
}
constexpr float exp(float x) {
  return exp(x, [](float n) { return std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23); });
}

// Weight of a logit, relative to the largest one's.
constexpr float weight(float v, float top, float scale) { return exp((v - top) * scale); }

// Integers in the order of the floats, but for the two zeros, which are one.
constexpr int32_t ordered(float f) {
  const auto bits = std::bit_cast<int32_t>(f);
  return bits < 0 ? std::numeric_limits<int32_t>::min() - bits : bits;
}
constexpr float from_ordered(int32_t key) {
  return std::bit_cast<float>(key < 0 ? std::numeric_limits<int32_t>::min() - key : key);
}

// A logit that at least `count` tokens reach, and few more: as many peaks are of that size. `reach(key)` is how many of
// the `all` peaks are at least that, in the order of ordered().
template <class Reach>
constexpr float reached_by(int64_t count, int64_t all, const Reach& reach) {
  if (count > all) return kNone;
  int64_t low = ordered(kNone), high = ordered(kInfinity);  // the largest with enough
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (reach(middle) >= count)
      low = middle;
    else
      high = middle - 1;
  }
  return from_ordered(static_cast<int32_t>(low));
}

constexpr bool better(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// A number in [0, 1) that depends on its two arguments alone.
constexpr double uniform(uint64_t seed, int64_t position) {
  return static_cast<double>(split_mix(split_mix(seed) + static_cast<uint64_t>(position)) >> 11) * 0x1.0p-53;
}

// Whether every token may be drawn, of any rank.
constexpr bool draws_among_all(const Draw& d, int64_t n) { return (d.top_k <= 0 || d.top_k >= n) && d.top_p >= 1; }
constexpr bool draws_by_count(const Draw& d, int64_t n) { return d.top_k > 0 && d.top_k < n; }

// The block in which the sum of the weights passes `goal`, and the sum before it. `weight_of(b)` is a block's.
struct Place {
  int64_t block = 0;
  double before = 0;
};
template <class Weight>
constexpr Place place_of(double goal, int64_t count, const Weight& weight_of) {
  Place at;
  for (int64_t b = 0; b < count; ++b) {
    const auto w = static_cast<double>(weight_of(b));
    if (w == 0) continue;
    at.block = b;
    if (at.before + w > goal) break;
    if (b + 1 < count) at.before += w;
  }
  return at;
}

// The index of the candidate at which the sum of the weights, from `sum` on, passes `goal`, else the last that has a
// weight: a block's own sum was rounded otherwise. -1: none has.
template <class Weight>
constexpr int64_t pick(double goal, double sum, int64_t count, const Weight& weight_of) {
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    const float w = weight_of(i);
    if (w == 0) continue;
    last = i;
    sum += static_cast<double>(w);
    if (sum > goal) break;
  }
  return last;
}

template <class Weight>
constexpr double sum_of(int64_t count, const Weight& weight_of) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(weight_of(i));
  return sum;
}

// How many of the best candidates top-p keeps; more than `count` where these are too few. `total` is the weight of all
// that it is a share of.
template <class Weight>
constexpr int64_t nucleus(float top_p, double total, int64_t count, const Weight& weight_of) {
  if (top_p >= 1) return count;
  const double goal = static_cast<double>(top_p) * total;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(weight_of(i));
    if (sum >= goal) return i + 1;
  }
  return count + 1;
}

// The candidate that is drawn of the `count` best.
template <class Weight>
constexpr int64_t among(int64_t count, const Draw& d, double number, const Weight& weight_of) {
  const auto kept = [&](int64_t i) {
    const float w = weight_of(i);
    return w < d.min_p ? 0.0f : w;
  };
  return pick(number * sum_of(count, kept), 0, count, kept);
}

constexpr float logprob(float v, float top, double log_sum) {
  return static_cast<float>(static_cast<double>(v) - static_cast<double>(top) - log_sum);
}

}  // namespace draw
}  // namespace

}  // namespace reprise
