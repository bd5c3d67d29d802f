// The rule by which a token is drawn from a row of logits, in one place: the host's sampler and the CPU's kernels of op
// `sample` compile it, and give the same token for the same row, seed and position on every instruction set. The kernel
// of GPUs (backends/cuda/kernels/sample.h) takes the same steps with the same arithmetic, ops/draw_math.h.
//
// No sum depends on how a vector is wide or where FMA exists: weights are added in sixteen lanes per block of 256, the
// blocks in double. Everything here is internal to the file that includes it, because the same code compiled for two
// instruction sets may not be merged by the linker. Nothing allocates; scratch memory is the caller's. Any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

// Vectors as arguments of functions that are inlined have no calling convention to break.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

#include "ops/draw_math.h"

namespace reprise {

namespace {
namespace draw {

// As wide as the instruction set of the file that includes this; sixteen lanes are one to four of them.
#if defined(__AVX512F__)
constexpr int64_t kWidth = 16;
#elif defined(__AVX2__)
constexpr int64_t kWidth = 8;
#else
constexpr int64_t kWidth = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));

// Elements beyond the row are -infinity.
inline Floats at(const float* row, int64_t i, int64_t n) {
  Floats v;
  if (i + kWidth <= n) {
    std::memcpy(&v, row + i, sizeof v);
    return v;
  }
  v = Floats{} + kNone;
  for (int64_t k = 0; i + k < n; ++k) v[k] = row[i + k];
  return v;
}

inline bool any(Ints mask) {
  uint64_t words[sizeof mask / sizeof(uint64_t)], all = 0;
  std::memcpy(words, &mask, sizeof mask);
  for (const uint64_t w : words) all |= w;
  return all != 0;
}

inline Floats exp(Floats x) {
  return exp(x, [](Floats n) {
    const Ints bits = (__builtin_convertvector(n, Ints) + 127) << 23;
    Floats power;
    std::memcpy(&power, &bits, sizeof power);
    return power;
  });
}

// f(begin, end) of every block of the row until it returns true.
template <typename F>
inline void each_block(int64_t n, const F& f) {
  for (int64_t i = 0; i < n; i += kBlock)
    if (f(i, std::min(n, i + kBlock))) return;
}

// The largest logit and the first place where it stands; peaks[i] gets the largest of the i-th 64. False: a logit is
// NaN or +infinity, or none is left.
inline bool largest(const float* row, int64_t n, Candidate& best, Candidate* peaks) {
  Ints wrong = {};
  best = {kNone, -1};
  int64_t where = 0;
  for (int64_t begin = 0; begin < n; begin += kPeakBlock, ++peaks) {
    Floats top = Floats{} + kNone;
    for (int64_t i = begin; i < std::min(n, begin + kPeakBlock); i += kWidth) {
      const Floats v = at(row, i, n);
      wrong |= ~(v < kInfinity);
      top = v > top ? v : top;
    }
    float peak = kNone;
    for (int64_t k = 0; k < kWidth; ++k) peak = top[k] > peak ? top[k] : peak;
    peaks->value = peak;
    if (peak > best.value) best.value = peak, where = begin;
  }
  if (any(wrong) || best.value == kNone) return false;
  while (row[where] != best.value) ++where;
  best.token = static_cast<int32_t>(where);
  return true;
}

inline float reached_by(int64_t count, const Candidate* peaks, int64_t n) {
  const int64_t all = blocks(n, kPeakBlock);
  return reached_by(count, all, [&](int64_t key) {
    int64_t reach = 0;
    for (int64_t i = 0; i < all; ++i) reach += ordered(peaks[i].value) >= key;
    return reach;
  });
}

// The weights of a block, relative to the largest logit's, added up; those below the least count nothing.
inline float block_weight(const float* row, int64_t begin, int64_t n, float top, float scale, float least) {
  constexpr int64_t kParts = kLanes / kWidth;
  Floats lanes[kParts] = {};
  for (int64_t i = begin; i < std::min(n, begin + kBlock); i += kLanes)
    for (int64_t k = 0; k < kParts; ++k) {
      const Floats w = exp((at(row, i + k * kWidth, n) - top) * scale);
      lanes[k] += w >= least ? w : Floats{};
    }
  float a[kLanes];
  std::memcpy(a, lanes, sizeof a);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) a[i] += a[i + width];
  return a[0];
}

inline double total_weight(const float* row, int64_t n, float top, float scale, float least) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kBlock) total += static_cast<double>(block_weight(row, i, n, top, scale, least));
  return total;
}

// In the order of ids, over every token.
inline int32_t among_all(const float* row, int64_t n, float top, const Draw& d, double number, Candidate* scratch) {
  const int64_t count = blocks(n, kBlock);
  for (int64_t b = 0; b < count; ++b) scratch[b].value = block_weight(row, b * kBlock, n, top, d.scale, d.min_p);
  const auto weight_of = [&](int64_t b) { return scratch[b].value; };
  const double goal = number * sum_of(count, weight_of);
  const Place at = place_of(goal, count, weight_of);
  const int64_t begin = at.block * kBlock;
  const int64_t i = pick(goal, at.before, std::min(n - begin, kBlock), [&](int64_t k) {
    const float w = weight(row[begin + k], top, d.scale);
    return w < d.min_p ? 0.0f : w;
  });
  return i < 0 ? -1 : static_cast<int32_t>(begin + i);
}

// Every token whose logit is at least `least`, but none of -infinity, in the order of ids.
inline int64_t collect(const float* row, int64_t n, float least, Candidate* out) {
  int64_t count = 0;
  each_block(n, [&](int64_t begin, int64_t end) {
    Ints in = {};
    for (int64_t i = begin; i < end; i += kWidth) in |= at(row, i, n) >= least;
    if (!any(in)) return false;
    for (int64_t i = begin; i < end; ++i)
      if (row[i] >= least && row[i] != kNone) out[count++] = {row[i], static_cast<int32_t>(i)};
    return false;
  });
  return count;
}

// Candidates best first, as far as they are asked for: a heap whose best ones go to the end of its memory, one by one.
// Algorithms of the library would leave code behind that the linker shares between instruction sets.
class BestFirst {
 public:
  BestFirst(Candidate* heap, int64_t count) : heap_(heap), count_(count), left_(count) {
    for (int64_t i = count / 2 - 1; i >= 0; --i) sift(i);
  }
  int64_t count() const { return count_; }
  Candidate& operator[](int64_t i) {
    while (count_ - left_ <= i) {
      --left_;
      const Candidate best = heap_[0];
      heap_[0] = heap_[left_];
      heap_[left_] = best;
      sift(0);
    }
    return heap_[count_ - 1 - i];
  }

 private:
  void sift(int64_t i) {
    const Candidate moved = heap_[i];
    for (;;) {
      int64_t child = 2 * i + 1;
      if (child >= left_) break;
      if (child + 1 < left_ && better(heap_[child + 1], heap_[child])) ++child;
      if (!better(heap_[child], moved)) break;
      heap_[i] = heap_[child];
      i = child;
    }
    heap_[i] = moved;
  }

  Candidate* heap_;
  int64_t count_, left_;
};

// Among the best tokens, by their number or their share. `scratch` holds the row's peaks before; rows of few likely
// tokens are not sorted whole.
inline int32_t among_best(const float* row, int64_t n, float top, const Draw& d, double number, Candidate* scratch) {
  const bool by_count = draws_by_count(d, n);
  const double all = by_count ? 0 : total_weight(row, n, top, d.scale, 0);
  float least[] = {kNone, kNone, kNone};
  if (by_count) {
    least[0] = reached_by(d.top_k, scratch, n);
  } else {
    least[0] = reached_by(std::min<int64_t>(64, blocks(n, kPeakBlock)), scratch, n);
    least[1] = reached_by(512, scratch, n);
  }
  for (const float limit : least) {
    BestFirst best(scratch, collect(row, n, limit, scratch));
    const auto weight_of = [&](int64_t i) { return weight(best[i].value, top, d.scale); };
    const int64_t count = by_count ? std::min<int64_t>(best.count(), d.top_k) : best.count();
    const int64_t kept = nucleus(d.top_p, by_count ? sum_of(count, weight_of) : all, count, weight_of);
    if (kept > count && !by_count && limit != kNone) continue;
    const int64_t i = among(std::min(kept, count), d, number, weight_of);
    return i < 0 ? -1 : best[i].token;
  }
  return -1;
}

// The token of one row of n logits; -1 where a logit is NaN or +infinity or every one is -infinity. `scratch` holds n.
inline int32_t token(const float* row, int64_t n, const Draw& d, Candidate* scratch) {
  Candidate best;
  if (!largest(row, n, best, scratch)) return -1;
  if (d.scale == 0 || d.top_k == 1) return best.token;
  const double number = uniform(d.seed, d.position);
  if (draws_among_all(d, n)) return among_all(row, n, best.value, d, number, scratch);
  return among_best(row, n, best.value, d, number, scratch);
}

// log(sum(exp(row))) - the largest logit, which is `top`.
inline double log_sum(const float* row, int64_t n, float top) { return std::log(total_weight(row, n, top, 1, 0)); }

// f(i, token, logit) of the `most` best tokens, best first. `scratch` holds n and the row's peaks before.
template <typename F>
inline void each_best(const float* row, int64_t n, int64_t most, Candidate* scratch, const F& f) {
  if (most <= 0) return;
  BestFirst best(scratch, collect(row, n, reached_by(most, scratch, n), scratch));
  for (int64_t i = 0; i < std::min(most, best.count()); ++i) f(i, best[i].token, best[i].value);
}

}  // namespace draw
}  // namespace

#pragma GCC diagnostic pop

}  // namespace reprise
