// The rule of ops/draw_rule.h over a row whose columns lie on several ranks, in whole blocks: what a rank sends of its
// own columns. Which token all that was sent decides is ops/draw_merge.h. The steps and the order of all sums are those
// of draw::token(), so the token is too. Internal to the file that includes it, as the rule is; scratch memory is the
// caller's.
#pragma once

#include "ops/draw_merge.h"
#include "ops/draw_rule.h"

namespace reprise {

namespace {
namespace draw {

// The largest logit of a rank's columns; NaN where one is NaN or +infinity. `scratch` gets the peaks.
inline float own_top(const float* row, int64_t n, Candidate* scratch) {
  Candidate best;
  if (largest(row, n, best, scratch)) return best.value;
  for (int64_t i = 0; i < n; ++i)
    if (row[i] != kNone) return std::numeric_limits<float>::quiet_NaN();
  return kNone;
}

// A row of which this rank has columns [first, first + n) of `of`.
struct OwnColumns {
  const float* row;
  int64_t n, first, of;
};

// What a rank has sent: of how many candidates, best first, and whether it has more.
struct Sent {
  int32_t count = 0;
  int32_t more = 0;
};

inline Sent send_largest(const OwnColumns& c, float top, Candidate* scratch, Candidate* out) {
  Candidate best;
  if (!largest(c.row, c.n, best, scratch) || best.value != top) return {};
  out[0] = {best.value, static_cast<int32_t>(c.first) + best.token};
  return {1, 0};
}

// Every rank finds the block; the one that has it finds the token, -1 if there is none.
inline Sent send_of_block(const OwnColumns& c, const Draw& d, float top, const float* sums, Candidate* out) {
  const int64_t count = blocks(c.of, kBlock);
  const auto weight_of = [&](int64_t b) { return sums[b]; };
  const double goal = uniform(d.seed, d.position) * sum_of(count, weight_of);
  const Place at = place_of(goal, count, weight_of);
  const int64_t begin = at.block * kBlock - c.first;
  if (begin < 0 || begin >= c.n) return {};
  const int64_t i = pick(goal, at.before, std::min(c.n - begin, kBlock), [&](int64_t k) {
    const float w = weight(c.row[begin + k], top, d.scale);
    return w < d.min_p ? 0.0f : w;
  });
  out[0] = {0, i < 0 ? -1 : static_cast<int32_t>(c.first + begin + i)};
  return {1, 0};
}

// The best of its columns, at most `most`: as many as may be drawn by their number, or until they alone are the share.
inline Sent send_best(const OwnColumns& c, const Draw& d, float top, const float* sums, int64_t most,
                      Candidate* scratch, Candidate* out) {
  const bool by_count = draws_by_count(d, c.of);
  const double goal =
      by_count ? 0 : static_cast<double>(d.top_p) * sum_of(blocks(c.of, kBlock), [&](int64_t b) { return sums[b]; });
  Candidate best;
  (void)largest(c.row, c.n, best, scratch);  // for the peaks
  float least[] = {kNone, kNone, kNone};
  if (by_count) {
    least[0] = reached_by(d.top_k, scratch, c.n);
  } else {
    least[0] = reached_by(std::min<int64_t>(64, blocks(c.n, kPeakBlock)), scratch, c.n);
    least[1] = reached_by(512, scratch, c.n);
  }
  for (const float limit : least) {
    BestFirst own(scratch, collect(c.row, c.n, limit, scratch));
    double sum = 0;
    int64_t i = 0;
    for (; i < own.count(); ++i) {
      if (i == most || (by_count && i == d.top_k)) return {static_cast<int32_t>(i), 1};
      const Candidate& next = own[i];
      out[i] = {next.value, static_cast<int32_t>(c.first) + next.token};
      sum += static_cast<double>(weight(next.value, top, d.scale));
      if (!by_count && sum >= goal) return {static_cast<int32_t>(i + 1), 1};
    }
    // By number there are as many as asked for, or all.
    if (by_count || limit == kNone) return {static_cast<int32_t>(i), by_count && limit != kNone ? 1 : 0};
  }
  return {};
}

inline Sent send(const OwnColumns& c, const Draw& d, float top, const float* sums, int64_t most, Candidate* scratch,
                 Candidate* out) {
  switch (need_of(d, c.of)) {
    case Need::Largest: return send_largest(c, top, scratch, out);
    case Need::Sums: return send_of_block(c, d, top, sums, out);
    case Need::Count:
    case Need::Share: return send_best(c, d, top, sums, most, scratch, out);
    case Need::Row: break;
  }
  return {};
}

}  // namespace draw
}  // namespace

}  // namespace reprise
