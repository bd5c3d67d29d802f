// Learned step times, learned sizes, and the names of faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/faults.h"
#include "engine/step_costs.h"
#include "engine/traffic.h"

namespace reprise::engine::step_choice_test {
namespace {

TEST(StepCosts, AFigureCountsOnceItWasSeenOftenEnough) {
  StepCosts costs(8);
  costs.record(StepKind::Replay, 4, 100);
  costs.record(StepKind::Replay, 4, 110);
  EXPECT_FALSE(costs.known(StepKind::Replay, 4));
  costs.record(StepKind::Replay, 4, 120);
  EXPECT_NEAR(*costs.known(StepKind::Replay, 4), 110, 1e-9);
  EXPECT_FALSE(costs.known(StepKind::Eager, 4));
  costs.record(StepKind::Replay, 9, 1);  // outside: ignored
  costs.record(StepKind::Replay, 0, 1);
  EXPECT_FALSE(costs.known(StepKind::Replay, 9));
}

TEST(StepCosts, RecentStepsWeighMore) {
  StepCosts costs(2);
  for (int i = 0; i < 100; ++i) costs.record(StepKind::Eager, 1, 10);
  for (int i = 0; i < 100; ++i) costs.record(StepKind::Eager, 1, 50);
  EXPECT_GT(*costs.known(StepKind::Eager, 1), 49);
}

TEST(StepCosts, EstimatesLieBetweenKnownNeighboursAndNowhereElse) {
  StepCosts costs(10);
  for (int i = 0; i < 3; ++i) costs.record(StepKind::Eager, 2, 20), costs.record(StepKind::Eager, 6, 60);
  EXPECT_NEAR(*costs.estimate(StepKind::Eager, 3), 30, 1e-9);
  EXPECT_NEAR(*costs.estimate(StepKind::Eager, 5), 50, 1e-9);
  EXPECT_FALSE(costs.estimate(StepKind::Eager, 1));
  EXPECT_FALSE(costs.estimate(StepKind::Eager, 7));
}

// Every set of at most `count` sizes that ends in the largest, tried out.
uint64_t least_padding(const std::vector<uint64_t>& counts, int64_t count, int64_t largest) {
  uint64_t best = ~uint64_t{0};
  for (uint32_t set = 0; set < (1u << (largest - 1)); ++set) {
    std::vector<int64_t> sizes;
    for (int64_t n = 1; n < largest; ++n)
      if (set >> (n - 1) & 1) sizes.push_back(n);
    sizes.push_back(largest);
    if (static_cast<int64_t>(sizes.size()) <= count) best = std::min(best, padded_rows(counts, sizes));
  }
  return best;
}

TEST(LearnSizes, AreTheBestOfAllSets) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const int64_t largest = 1 + static_cast<int64_t>(random() % 11), count = 1 + static_cast<int64_t>(random() % 5);
    std::vector<uint64_t> counts(static_cast<size_t>(largest) + 1);
    for (size_t n = 1; n < counts.size(); ++n) counts[n] = random() % 3 ? random() % 50 : 0;
    const auto sizes = learn_sizes(counts, count, largest);
    ASSERT_FALSE(sizes.empty());
    EXPECT_LE(static_cast<int64_t>(sizes.size()), count);
    EXPECT_EQ(sizes.back(), largest);
    EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
    EXPECT_EQ(padded_rows(counts, sizes), least_padding(counts, count, largest)) << "round " << round;
  }
}

TEST(LearnSizes, SurviveManyDistinctCountsAndNone) {
  std::vector<uint64_t> counts(5001, 1);
  const auto sizes = learn_sizes(counts, 20, 5000);
  EXPECT_EQ(sizes.size(), 20u);
  EXPECT_EQ(sizes.back(), 5000);
  std::vector<int64_t> even;
  for (int64_t i = 1; i <= 20; ++i) even.push_back(i * 250);
  EXPECT_LT(static_cast<double>(padded_rows(counts, sizes)), 1.1 * static_cast<double>(padded_rows(counts, even)));
  EXPECT_EQ(learn_sizes(std::vector<uint64_t>(9), 4, 8), std::vector<int64_t>{8});
  EXPECT_TRUE(learn_sizes(counts, 0, 8).empty());
}

TEST(Faults, NamesStepsAndNodesAreChecked) {
  const auto f = parse_fault("bit-flip@12:40");
  ASSERT_TRUE(f.is_ok());
  EXPECT_EQ(f->kind, FaultKind::BitFlip);
  EXPECT_EQ(f->step, 12);
  EXPECT_EQ(*f->node, 40u);
  for (const char* good :
       {"padding-leak@1", "stale-input@2", "wrong-length@3", "alloc@4", "kernel-error@5:6", "hang@7"})
    EXPECT_TRUE(parse_fault(good).is_ok()) << good;
  for (const char* bad : {"", "bit-flip", "flip@1", "bit-flip@", "bit-flip@0", "bit-flip@1:", "bit-flip@1:x",
                          "alloc@1:2", "hang@1:2", "bit-flip@-1", "bit-flip@1 "}) {
    const auto p = parse_fault(bad);
    ASSERT_FALSE(p.is_ok()) << bad;
    EXPECT_NE(p.status().message().find("`inject_fault`"), std::string::npos) << p.status().message();
  }
}

}  // namespace
}  // namespace reprise::engine::step_choice_test
