// How a share of more tokens than the vendor's operators take at a time is cut, and what their windows hold.
#include "backends/ascend/expert_rounds.h"

#include <gtest/gtest.h>

namespace reprise::ascend {
namespace {

// 256 experts, 8 choices, rows of 7,168 numbers.
SentShape deepseek(int64_t ranks) { return {ranks, 256 / ranks, 8, 7168}; }

TEST(AscendRounds, LimitsAreThoseOfTheChip) {
  EXPECT_EQ(RoundLimits::of("Ascend910B3", nullptr).tokens, 256);
  EXPECT_EQ(RoundLimits::of("Ascend910_9382", nullptr).tokens, 512);
  EXPECT_EQ(RoundLimits::of("Ascend910_9382", nullptr).megabytes, 200);
  EXPECT_EQ(RoundLimits::of("Ascend910_9382", "").megabytes, 200);
  EXPECT_EQ(RoundLimits::of("Ascend910B3", "1024").megabytes, 1024);
}

// A2: 2 * (tokens * 8 * 8 * 7168 * 2 + 2 MB) within 200 MB, and 1 MB more than they need for the limit.
TEST(AscendRounds, WindowsOfA2HoldAllRows) {
  const auto limits = [](const char* megabytes) { return RoundLimits::of("Ascend910B3", megabytes); };
  EXPECT_EQ(deepseek(8).tokens_at_once(limits(nullptr)), (196 << 20) / (2 * 64 * 7168 * 2));
  EXPECT_EQ(deepseek(8).tokens_at_once(limits("451")), 255);
  EXPECT_EQ(deepseek(8).tokens_at_once(limits("452")), 256);
  EXPECT_EQ(deepseek(8).tokens_at_once(limits("4000")), 256);
  EXPECT_EQ(deepseek(8).tokens_at_once(limits("3")), 0);
}

// A3: two windows with a row for each token, rank and expert, 28 heads of 512 bytes and one for what a row has besides,
// and for each choice that comes back.
TEST(AscendRounds, WindowsOfA3HoldEachExpertApart) {
  const auto limits = [](const char* megabytes) { return RoundLimits::of("Ascend910_9382", megabytes); };
  const int64_t token = 2 * (256 * 29 * 512 + 8 * 28 * 512);
  EXPECT_EQ(deepseek(16).window_bytes(limits(nullptr)), token);
  EXPECT_EQ(deepseek(16).tokens_at_once(limits(nullptr)), (200 << 20) / token);
  EXPECT_EQ(deepseek(16).tokens_at_once(limits("4000")), 512);
  EXPECT_TRUE(deepseek(16).fits(limits(nullptr)).is_ok());
  const Status small = deepseek(16).fits(limits("100"));
  ASSERT_FALSE(small.is_ok());
  EXPECT_EQ(small.message(),
            "HCCL_BUFFSIZE of 100 MB holds 13 tokens of a rank at a time, and rows are sent from 16 on; 120 MB hold "
            "these, 3824 MB the most that the operators take, 512");
}

// Small rounds of few rows each have little room for what is told of many experts.
TEST(AscendRounds, CountsOfAllExpertsHaveRoom) {
  const SentShape shape{2, 128, 1, 7168};  // a token of each of two ranks brings two rows
  const RoundLimits limits{.tokens = 256, .third = false, .megabytes = 5};
  ASSERT_EQ(shape.tokens_at_once(limits), 18);
  const Status small = shape.fits(limits);
  ASSERT_FALSE(small.is_ok());
  EXPECT_NE(small.message().find("rounds of 18 tokens of a rank have too little room for the counts of 256 experts"),
            std::string::npos)
      << small.message();
  EXPECT_TRUE(shape.fits({.tokens = 256, .third = false, .megabytes = 6}).is_ok());
}

void expect_rounds(int64_t tokens, int64_t at_once, const std::vector<int64_t>& wanted, int64_t rows_of_token = 1,
                   int64_t places = 1 << 20) {
  const Rounds rounds(tokens, at_once, rows_of_token, places);
  std::vector<int64_t> got;
  int64_t first = 0;
  for (int64_t i = 0; i < rounds.count(); ++i) {
    const Round r = rounds.at(i);
    EXPECT_EQ(r.first, first);
    EXPECT_EQ(r.most, rounds.most());
    EXPECT_LE(r.tokens, r.most);
    got.push_back(r.tokens);
    first += r.tokens;
  }
  EXPECT_EQ(got, wanted) << tokens << " tokens, " << at_once << " at once";
}

TEST(AscendRounds, AreAsEqualAsTheyCanBe) {
  expect_rounds(1, 256, {1});
  expect_rounds(256, 256, {256});
  expect_rounds(257, 256, {129, 128});
  expect_rounds(512, 256, {256, 256});
  expect_rounds(550, 256, {184, 184, 182});
  expect_rounds(5, 2, {2, 2, 1});
  expect_rounds(9, 4, {3, 3, 3});
  expect_rounds(10, 4, {4, 4, 2});
}

// More rounds of fewer tokens where the last one would have room for more rows than there are places.
TEST(AscendRounds, HaveRoomForNoMoreThanThereArePlaces) {
  expect_rounds(10, 4, {4, 4, 2}, 64, 768);
  expect_rounds(10, 4, {2, 2, 2, 2, 2}, 64, 640);
}

}  // namespace
}  // namespace reprise::ascend
