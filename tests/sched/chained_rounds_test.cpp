// Rounds of a draft model where its device computes by itself: each is submitted before the one in front of it is
// waited for, and takes its tokens on the device. What is guessed is what rounds guess that are waited for one by one.
// On a device that does all work as late as it may, and on Ascend's simulator, whose clock shows what is gained.
#include <gtest/gtest.h>

#include "support/chained_rounds.h"
#include "support/computing_platforms.h"
#include "support/tiny_models.h"

namespace reprise::sched::chained_rounds_test {
namespace {

using engine::Engine;
using testing_support::ComputingPlatform;
using testing_support::DraftedRounds;

class ChainedRounds : public testing::TestWithParam<ComputingPlatform> {
 protected:
  Result<std::unique_ptr<Engine>> open(GraphMode decode) {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("qwen3_tied");
    o.dtype = testing_support::dtype_of(GetParam());
    o.context_length = 256;
    o.max_running_requests = 4;
    o.chunked_prefill_size = 64;
    o.max_total_tokens = 128;  // as long as nobody knows the model's
    o.graph.decode = decode;
    o.graph.choose_by_cost = false;
    o.graph.verify = {6, true, engine::VerifyRows::kSequences};
    taken_.launched = &launched_;
    ASSIGN_OR_RETURN(Platform p, testing_support::make_computing_platform(GetParam(), taken_));
    ASSIGN_OR_RETURN(auto e, Engine::create(o, std::move(p)));
    RETURN_IF_ERROR(e->resize_kv(20 * 128));
    return e;
  }

  static DraftedRounds draft(Engine& e, bool ahead) {
    return testing_support::draft_rounds(e, ahead, {count_up(9), count_up(70, 3), count_up(126, 1)});
  }

  testing_support::Taken taken_;
  std::vector<uint32_t> launched_;
};

TEST_P(ChainedRounds, GuessWhatRoundsOneByOneGuess) {
  for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise, GraphMode::Eager}) {
    SCOPED_TRACE(graph_mode_name(mode));
    auto e = open(mode);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    ASSERT_TRUE((*e)->overlaps());
    const DraftedRounds one_by_one = draft(**e, false), chained = draft(**e, true);
    EXPECT_EQ(one_by_one.most_in_flight, 1);
    EXPECT_EQ(chained.most_in_flight, 2);
    EXPECT_GT(testing_support::expect_same_guesses(chained, one_by_one), 25u);
    if (GetParam() != ComputingPlatform::Ascend) continue;
    EXPECT_LT(chained.gap_us, (mode == GraphMode::Eager ? 1.0 : 0.5) * one_by_one.gap_us);
    EXPECT_LT(chained.clock_us, 0.95 * one_by_one.clock_us);
  }
}

// A replay that fails is computed again, and so is the round behind it, which had read its tokens.
TEST_P(ChainedRounds, AFailedRoundIsComputedAgainAndSoIsTheOneBehindIt) {
  if (GetParam() != ComputingPlatform::Remote) GTEST_SKIP() << "its launches cannot be made to fail";
  auto good = open(GraphMode::Whole);
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  const int64_t opened = taken_.ran;
  const DraftedRounds expected = draft(**good, true);
  const int64_t all = taken_.ran - opened;
  size_t recovered = 0;
  for (int64_t at = all / 3; at < all; at += all / 5) {
    SCOPED_TRACE(at);
    auto e = open(GraphMode::Whole);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    taken_.fail_at = taken_.ran + at;
    const DraftedRounds got = draft(**e, true);
    (void)testing_support::expect_same_guesses(got, expected);
    for (const char* phase : {"decode", "verify", "prefill"}) recovered += (*e)->runner(phase)->quarantined().size();
  }
  EXPECT_GT(recovered, 0u);
}

INSTANTIATE_TEST_SUITE_P(, ChainedRounds, testing::Values(ComputingPlatform::Remote, ComputingPlatform::Ascend),
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::chained_rounds_test
