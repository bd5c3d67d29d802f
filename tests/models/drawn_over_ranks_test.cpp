// Ranks draw tokens without whole logits: the same tokens and log-probabilities as one rank, and logits are gathered
// only for rows that ask for them. The vocabulary is large enough for that, which those of the tiny models are not.
#include <gtest/gtest.h>

#include "support/drawn_rows.h"
#include "support/ranked_hosts.h"

namespace reprise::drawn_over_ranks_test {
namespace {

using testing_support::Answers;
using testing_support::answers_of;
using testing_support::DrawnCase;
using testing_support::expect_drawn_as_alone;
using testing_support::kKinds;
using testing_support::kSteps;
using testing_support::kVocabulary;
using testing_support::open_drawn;

class DrawnOverRanks : public testing::TestWithParam<DrawnCase> {};

TEST_P(DrawnOverRanks, GatherOnlyRowsThatAskForMore) { expect_drawn_as_alone(GetParam()); }

constexpr auto kOff = engine::GraphPolicy::Off, kAuto = engine::GraphPolicy::Auto;
constexpr DeviceKind kAscend = DeviceKind::Ascend;
INSTANTIATE_TEST_SUITE_P(Sizes, DrawnOverRanks,
                         testing::Values(DrawnCase{"llama_gqa4_sharded", 2}, DrawnCase{"llama_gqa4_sharded", 4},
                                         DrawnCase{"llama_gqa3_tied", 3}, DrawnCase{"granite", 3},
                                         DrawnCase{"llama_gqa4_sharded", 2, kOff},
                                         DrawnCase{"qwen3_tied", 2, kAuto, kAscend},
                                         DrawnCase{"qwen3_tied", 4, kAuto, kAscend},
                                         DrawnCase{"qwen3_tied", 2, kOff, kAscend},
                                         DrawnCase{"llama_mha_untied", 2, kAuto, kAscend, GraphMode::Piecewise}),
                         [](const auto& info) {
                           const DrawnCase& c = info.param;
                           return fmt::format("{}_{}{}{}", c.model, c.size, c.policy == kOff ? "_eager" : "",
                                              c.device == kAscend ? "_ascend" : "");
                         });

// What ranks of one host see in their memory, those of another one are sent.
class DrawnOverHosts : public testing::TestWithParam<DrawnCase> {};

TEST_P(DrawnOverHosts, GiveTheSame) {
  const DrawnCase& c = GetParam();
  const auto alone = open_drawn(c, kVocabulary, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const testing_support::RankedHosts hosts({1, 1});
  std::vector<std::shared_ptr<ranks::Member>> seats{hosts.member(0), hosts.member(1)};
  const auto world = engine::LocalWorld::start(
      std::move(seats), [&](std::shared_ptr<ranks::Member> m) { return open_drawn(c, kVocabulary, std::move(m)); });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Answers many = answers_of((*world)->front());
  expect_same(answers_of(**alone), many);
  EXPECT_EQ(many.gathered, kSteps * (c.device == DeviceKind::Cpu ? 3 : 1));
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

INSTANTIATE_TEST_SUITE_P(Devices, DrawnOverHosts,
                         testing::Values(DrawnCase{"llama_gqa4_sharded", 2},
                                         DrawnCase{"qwen3_tied", 2, kAuto, kAscend}),
                         [](const auto& info) { return info.param.device == kAscend ? "ascend" : "cpu"; });

// Too few tokens to cut by whole blocks: all rows of drawn steps are gathered, and counted.
TEST(DrawnFromFewTokens, AllRowsAreGathered) {
  const DrawnCase c{"llama_gqa4_sharded", 2};
  const auto world =
      engine::LocalWorld::start(2, [&](std::shared_ptr<ranks::Member> m) { return open_drawn(c, 1000, std::move(m)); });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Answers many = answers_of((*world)->front());
  EXPECT_EQ(many.gathered, kSteps * kKinds);
  const auto alone = open_drawn(c, 1000, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  expect_same(answers_of(**alone), many);
}

}  // namespace
}  // namespace reprise::drawn_over_ranks_test
