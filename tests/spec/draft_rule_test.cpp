// How many drafts a step takes, for given chances and step times.
#include <gtest/gtest.h>

#include <algorithm>

#include "spec/draft_rule.h"

namespace reprise::spec {
namespace {

Proposal with_chances(std::vector<float> survival) {
  Proposal p;
  p.tokens.assign(survival.size(), 1);
  p.survival = std::move(survival);
  return p;
}

// The best of all D by the rule's own words.
int64_t searched(int64_t n, int64_t most_rows, const std::vector<Proposal>& proposals, const RowTimes& times) {
  std::vector<float> all;
  for (const Proposal& p : proposals) all.insert(all.end(), p.survival.begin(), p.survival.end());
  std::sort(all.rbegin(), all.rend());
  int64_t best = 0;
  double best_rate = 1.03 * static_cast<double>(n) / *times(n), sum = static_cast<double>(n);
  for (int64_t d = 1; d <= std::min<int64_t>(most_rows - n, static_cast<int64_t>(all.size())); ++d) {
    sum += all[static_cast<size_t>(d) - 1];
    if (sum / *times(n + d) > best_rate) best = d, best_rate = sum / *times(n + d);
  }
  return best;
}

TEST(DraftRule, MostTokensPerSecond) {
  const std::vector<Proposal> proposals{with_chances({0.9f, 0.81f, 0.73f, 0.66f}), with_chances({0.5f, 0.25f}),
                                        with_chances({})};
  for (const double slope : {0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0}) {
    const RowTimes times = [&](int64_t rows) { return 100 * (1 + slope * static_cast<double>(rows)); };
    DraftRule rule(true);
    for (const int64_t most_rows : {3, 4, 6, 20}) {
      const DraftChoice& c = rule.choose(3, most_rows, proposals, {}, times, {});
      EXPECT_EQ(c.drafts, searched(3, most_rows, proposals, times)) << slope << " " << most_rows;
      EXPECT_EQ(c.take[0] + c.take[1] + c.take[2], c.drafts);
      // The likeliest ones, so prefixes.
      if (c.drafts > 0) {
        EXPECT_EQ(c.take[0], std::min<int64_t>(4, c.drafts));
      }
    }
  }
}

// A round makes the next draft of every sequence, so drafts of one depth share its time.
TEST(DraftRule, RoundsOfADraftModelCountOncePerDepth) {
  const std::vector<Proposal> two{with_chances({0.9f, 0.81f}), with_chances({0.9f, 0.81f})};
  const RowTimes flat = [](int64_t) { return 100.0; };
  DraftRule rule(true);
  EXPECT_EQ(rule.choose(2, 6, two, {}, flat, {0, 20}).drafts, 4);  // 5.42 / 140 is more than 3.8 / 120 and 2 / 100
  EXPECT_EQ(rule.choose(2, 6, two, {}, flat, {0, 60}).drafts, 4);  // 5.42 / 220, 3.8 / 160
  EXPECT_EQ(rule.choose(2, 6, two, {}, flat, {0, 80}).drafts, 2);  // 5.42 / 260 is less than 3.8 / 180
  EXPECT_EQ(DraftRule(true).choose(2, 6, two, {}, flat, {0, 95}).drafts, 0);  // 3.8 / 195 is less than 2 / 100
}

TEST(DraftRule, PrioritiesOrderEqualChances) {
  const std::vector<Proposal> two{with_chances({0.5f}), with_chances({0.5f})};
  DraftRule rule(false);
  const RowTimes times = [](int64_t) { return 0.0; };
  const std::vector<int64_t> low_first{0, 1};
  EXPECT_EQ(rule.choose(2, 3, two, low_first, times, {}).take, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(rule.choose(2, 3, two, {}, times, {}).take, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(rule.choose(2, 2, two, {}, times, {}).drafts, 0);
}

TEST(DraftRule, UnknownStepsAreTriedByDoubling) {
  const std::vector<Proposal> one{with_chances(std::vector<float>(15, 0.9f))};
  std::vector<int> seen(17);
  const RowTimes times = [&](int64_t rows) -> std::optional<double> {
    const auto known = [&](int64_t r) { return r >= 1 && r <= 16 && seen[static_cast<size_t>(r)] >= 3; };
    int64_t above = rows;
    while (above <= 16 && !known(above)) ++above;
    return above <= 16 ? 100.0 : 0.0;
  };
  DraftRule rule(true);
  std::vector<int64_t> tried;
  for (int i = 0; i < 20; ++i) {
    const int64_t rows = 1 + rule.choose(1, 17, one, {}, times, {}).drafts;
    ++seen[static_cast<size_t>(std::min<int64_t>(16, rows))];
    tried.push_back(rows);
  }
  const std::vector<int64_t> first(tried.begin(), tried.begin() + 16);
  EXPECT_EQ(first, (std::vector<int64_t>{1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 16, 16}));
}

TEST(DraftRule, WhatLostIsTriedWithAHundredthOfTheTime) {
  const std::vector<Proposal> one{with_chances({0.1f, 0.01f})};
  const RowTimes times = [](int64_t rows) { return 100.0 * static_cast<double>(rows); };
  DraftRule rule(true);
  double spent = 0;
  int64_t tries = 0;
  for (int i = 0; i < 10'000; ++i) {
    const int64_t drafts = rule.choose(1, 8, one, {}, times, {}).drafts;
    spent += 100.0 * static_cast<double>(drafts);
    tries += drafts > 0;
  }
  EXPECT_GT(tries, 50);
  EXPECT_LE(spent, 0.011 * 100 * 10'000);
}

TEST(DraftRule, StepsThatWouldNotRunLikeOthersAreNotTaken) {
  const std::vector<Proposal> one{with_chances(std::vector<float>(7, 0.9f))};
  const RowTimes up_to_four = [](int64_t rows) { return rows <= 4 ? std::optional(10.0) : std::nullopt; };
  for (const bool adaptive : {true, false}) {
    DraftRule rule(adaptive);
    const DraftChoice& c = rule.choose(1, 8, one, {}, up_to_four, {});
    EXPECT_EQ(c.drafts, 3);
    EXPECT_TRUE(c.unusual);
  }
}

}  // namespace
}  // namespace reprise::spec
