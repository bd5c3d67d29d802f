// What drafts gain and cost from the first token of a process on, by a model of text: some places have a match, and
// each draft behind one comes true with one chance. Step times are those that were measured (docs/speculative.md); they
// have to be found out by steps.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "spec/acceptance.h"
#include "spec/draft_rule.h"

namespace reprise::spec::adaptive_test {
namespace {

struct Machine {
  const char* name;
  std::map<int64_t, double> times;  // of steps of so many rows, in plain ones
};

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all{{"bf16", {{1, 1}, {4, 1.24}, {8, 1.66}}},
                                        {"W8A8", {{1, 1}, {4, 1.38}, {8, 1.90}}},
                                        {"Q4_1 in fp32", {{1, 1}, {4, 2.14}, {8, 3.41}}}};
  return all;
}

// A straight line between the next points on both sides; 0 outside.
double between(const std::map<int64_t, double>& points, int64_t at) {
  const auto high = points.lower_bound(at);
  if (high == points.end() || (high == points.begin() && high->first != at)) return 0;
  if (high->first == at) return high->second;
  const auto low = std::prev(high);
  return low->second + (high->second - low->second) * static_cast<double>(at - low->first) /
                           static_cast<double>(high->first - low->first);
}

// Time of a plain answer of 160 tokens over that with drafts, on average.
double speed_up(const Machine& machine, double matches, double comes_true) {
  constexpr int kAnswers = 40, kTokens = 160;
  double took = 0;
  for (int answer = 0; answer < kAnswers; ++answer) {
    std::mt19937 rng(static_cast<uint32_t>(answer));
    const auto chance = [&](double p) { return std::uniform_real_distribution<>(0, 1)(rng) < p; };
    DraftRule rule(true);
    Acceptance acceptance(3, 12);
    std::map<int64_t, double> known;
    std::map<int64_t, int> seen;
    const RowTimes times = [&](int64_t rows) -> std::optional<double> { return between(known, rows); };
    for (int made = 0; made < kTokens;) {
      Proposal p;
      const int64_t length = 3 + static_cast<int64_t>(rng() % 3);
      float survival = 1;
      if (chance(matches))
        for (int i = 0; i < std::min(7, kTokens - made - 1); ++i)
          p.survival.push_back(survival *= static_cast<float>(acceptance.rate(length)));
      const int64_t drafts = p.survival.empty() ? 0 : rule.choose(1, 64, {&p, 1}, {}, times, {0.005, 0}).drafts;
      const double step = between(machine.times, 1 + drafts);
      took += step;
      if (++seen[1 + drafts] >= 3) known[1 + drafts] = step;
      int64_t accepted = 0;
      while (accepted < drafts && chance(comes_true)) ++accepted;
      if (drafts > 0) acceptance.saw(length, drafts, accepted);
      made += 1 + static_cast<int>(accepted);
    }
  }
  return kAnswers * kTokens / took;
}

TEST(AdaptiveDrafts, CostLittleWhereTheyDoNotComeTrue) {
  for (const Machine& machine : machines())
    for (const double matches : {0.1, 0.3, 0.8})
      for (const double comes_true : {0.0, 0.1, 0.2, 0.3})
        EXPECT_GT(speed_up(machine, matches, comes_true), 0.97)
            << machine.name << ", matches at " << matches << " of all places, true " << comes_true;
}

TEST(AdaptiveDrafts, GainWhereTheyDo) {
  const auto gain = [](size_t machine, double comes_true) { return speed_up(machines()[machine], 0.8, comes_true); };
  // Of seven drafts, each true with chance 0.95, 5.7 come true: at best 6.7 tokens in the time of 8 rows.
  EXPECT_GT(gain(0, 0.95), 2.8);
  EXPECT_GT(gain(1, 0.95), 2.5);
  EXPECT_GT(gain(2, 0.95), 1.5);
  EXPECT_GT(gain(0, 0.8), 2.0);
  EXPECT_GT(gain(1, 0.8), 1.8);
  EXPECT_GT(gain(2, 0.8), 1.2);
  EXPECT_GT(gain(0, 0.5), 1.3);
}

}  // namespace
}  // namespace reprise::spec::adaptive_test
