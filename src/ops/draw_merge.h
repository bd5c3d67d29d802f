// What ranks have to know of each other's columns of a row of logits to draw its token (ops/draw_parts.h), and which
// token all that they have sent decides: for hosts, the kernels of CPUs and those of GPUs. As ops/draw_math.h,
// constexpr and internal to the file that includes it.
#pragma once

#include "ops/draw_math.h"

namespace reprise {

namespace {
namespace draw {

// What ranks have to know of each other's columns of a row.
enum class Need : uint8_t {
  Largest,  // which is the largest logit
  Sums,     // the weights of all blocks: every token may be drawn
  Count,    // the best ones, so many
  Share,    // the best ones, up to a share of all weights
  Row,      // all logits: log-probabilities are asked for
};
constexpr Need need_of(const Draw& d, int64_t n) {
  if (d.logprobs >= 0) return Need::Row;
  if (d.scale == 0 || d.top_k == 1) return Need::Largest;
  if (draws_among_all(d, n)) return Need::Sums;
  return draws_by_count(d, n) ? Need::Count : Need::Share;
}

// The row's; false where it has no token to draw.
constexpr bool top_of(const float* tops, int64_t ranks, float& top) {
  top = kNone;
  for (int64_t i = 0; i < ranks; ++i) {
    if (!(tops[i] < kInfinity)) return false;
    if (tops[i] > top) top = tops[i];
  }
  return top != kNone;
}

// What a rank sends of a row at most: top-k up to so many, and any share that so many tokens have.
constexpr int64_t kMostCandidates = 1024;

// Whether what ranks send decides the token of every row; what is asked for besides the token is not looked at.
constexpr bool surely_decided(Draw d, int64_t n) {
  d.logprobs = -1;
  const Need need = need_of(d, n);
  return need == Need::Largest || need == Need::Sums || (need == Need::Count && d.top_k <= kMostCandidates);
}

// What all ranks have sent of a row, rank after rank: two words, then `most` candidates; a rank's words begin `stride`
// behind those of the one before.
struct Received {
  const int32_t* words;
  int64_t ranks, most, stride = 2 + 2 * most;

  constexpr const int32_t* of(int64_t rank) const { return words + rank * stride; }
  constexpr int64_t count(int64_t rank) const { return of(rank)[0]; }
  constexpr bool more(int64_t rank) const { return of(rank)[1] != 0; }
  constexpr Candidate at(int64_t rank, int64_t i) const {
    const int32_t* pair = of(rank) + 2 + 2 * i;
    return {std::bit_cast<float>(pair[0]), pair[1]};
  }
  // The rank whose next candidate is the best one; -1: there is none.
  constexpr int64_t next(const int64_t* taken) const {
    int64_t best = -1;
    for (int64_t r = 0; r < ranks; ++r)
      if (taken[r] < count(r) && (best < 0 || better(at(r, taken[r]), at(best, taken[best])))) best = r;
    return best;
  }
};

constexpr int64_t kMostParts = 64;  // ranks

// The best candidates of all ranks in their order, as long as no unsent one could come before; then as among_best().
constexpr int32_t merged_best(const Draw& d, int64_t of, float top, const float* sums, const Received& received,
                              Candidate* scratch) {
  const bool by_count = draws_by_count(d, of);
  const double goal =
      by_count ? 0 : static_cast<double>(d.top_p) * sum_of(blocks(of, kBlock), [&](int64_t b) { return sums[b]; });
  const auto weight_of = [&](int64_t i) { return weight(scratch[i].value, top, d.scale); };
  int64_t taken[kMostParts] = {}, count = 0;
  double sum = 0;
  bool reached = false;
  for (int64_t r; !reached && (r = received.next(taken)) >= 0;) {
    scratch[count] = received.at(r, taken[r]++);
    sum += static_cast<double>(weight_of(count++));
    reached = by_count ? count == d.top_k : sum >= goal;
    if (!reached && taken[r] == received.count(r) && received.more(r)) return kUndecidedToken;
  }
  const int64_t kept = by_count ? nucleus(d.top_p, sum_of(count, weight_of), count, weight_of) : count;
  const int64_t i = among(kept < count ? kept : count, d, uniform(d.seed, d.position), weight_of);
  return i < 0 ? -1 : scratch[i].token;
}

// The token of a row of `of` logits; `scratch` holds all candidates of all ranks.
constexpr int32_t merged_token(const Draw& d, int64_t of, const float* tops, const float* sums,
                               const Received& received, Candidate* scratch) {
  float top = 0;
  if (!top_of(tops, received.ranks, top)) return -1;
  switch (need_of(d, of)) {
    case Need::Largest:
    case Need::Sums:
      for (int64_t r = 0; r < received.ranks; ++r)
        if (received.count(r) > 0) return received.at(r, 0).token;
      return -1;
    case Need::Count:
    case Need::Share: return merged_best(d, of, top, sums, received, scratch);
    case Need::Row: break;
  }
  return kUndecidedToken;
}

}  // namespace draw
}  // namespace

}  // namespace reprise
