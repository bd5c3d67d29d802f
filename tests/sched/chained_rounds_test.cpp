// Rounds of a draft model where its device computes by itself: each is submitted before the one in front of it is
// waited for, and takes its tokens on the device. What is guessed is what rounds guess that are waited for one by one.
// On a device that does all work as late as it may, and on Ascend's simulator, whose clock shows what is gained.
#include <gtest/gtest.h>

#include "sched/model_drafter.h"
#include "support/answers.h"
#include "support/computing_platforms.h"
#include "support/executor_proxy.h"
#include "support/tiny_models.h"

namespace reprise::sched::chained_rounds_test {
namespace {

using engine::Engine;
using testing_support::ComputingPlatform;

// The engine, with or without its leave to be ahead.
class Watched final : public testing_support::ExecutorProxy {
 public:
  Watched(Engine& e, bool ahead) : ExecutorProxy(e), ahead_(ahead) {}
  bool overlaps() const override { return ahead_ && ExecutorProxy::overlaps(); }
  Result<engine::Ticket> submit(std::span<const engine::StepItem> items, engine::StepOutput output) override {
    most_in_flight = std::max(most_in_flight, ++in_flight_);
    return ExecutorProxy::submit(items, output);
  }
  Result<engine::StepResult> wait(engine::Ticket ticket) override {
    --in_flight_;
    auto result = ExecutorProxy::wait(ticket);
    if (result.is_ok() && result->gap_us) gap_us += *result->gap_us, ++gaps;
    return result;
  }
  int64_t most_in_flight = 0, gaps = 0;
  double gap_us = 0;  // between steps, in which the device had nothing to do

 private:
  bool ahead_;
  int64_t in_flight_ = 0;
};

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

  struct Outcome {
    std::vector<spec::Proposal> proposals;
    double clock_us = 0, gap_us = 0;
    int64_t most_in_flight = 0;
  };
  // Three texts, of which some go on as guessed, some otherwise and one is drawn; chains of several lengths.
  Outcome draft(Engine& e, bool ahead) {
    Watched model(e, ahead);
    ModelDrafter drafter(model, {.most_drafts = 5});
    Outcome out;
    std::vector<Tokens> texts{count_up(9), count_up(70, 3), count_up(126, 1)};
    for (uint64_t id = 0; id < texts.size(); ++id) drafter.begin({.id = id});
    std::vector<spec::Proposal> got(texts.size());
    const double begin = e.device().clock_us().value_or(0);
    for (int turn = 0; turn < 5; ++turn) {
      std::vector<spec::Wish> wishes;
      for (size_t i = 0; i < texts.size(); ++i) {
        wishes.push_back({i, texts[i], static_cast<int64_t>(1 + (i + static_cast<size_t>(turn)) % 5)});
        if (i == 2)
          wishes.back().draw = Draw{.scale = 1.2f, .seed = 7, .position = static_cast<int64_t>(texts[i].size())};
      }
      drafter.propose(wishes, got);
      const Status whole = drafter.check_integrity();
      EXPECT_TRUE(whole.is_ok()) << whole.message();
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(got[i].tokens.size(), got[i].survival.size());
        out.proposals.push_back(got[i]);
        const auto true_ones = static_cast<ptrdiff_t>(got[i].tokens.size() * ((i + static_cast<size_t>(turn)) % 3) / 2);
        texts[i].insert(texts[i].end(), got[i].tokens.begin(), got[i].tokens.begin() + true_ones);
        texts[i].push_back(static_cast<int32_t>(3 + turn));
      }
    }
    out.clock_us = e.device().clock_us().value_or(0) - begin;
    out.gap_us = model.gaps > 0 ? model.gap_us / static_cast<double>(model.gaps) : 0;
    out.most_in_flight = model.most_in_flight;
    return out;
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
    const Outcome one_by_one = draft(**e, false), chained = draft(**e, true);
    EXPECT_EQ(one_by_one.most_in_flight, 1);
    EXPECT_EQ(chained.most_in_flight, 2);
    ASSERT_EQ(chained.proposals.size(), one_by_one.proposals.size());
    size_t drafts = 0;
    for (size_t i = 0; i < chained.proposals.size(); ++i) {
      EXPECT_EQ(chained.proposals[i].tokens, one_by_one.proposals[i].tokens) << i;
      drafts += chained.proposals[i].tokens.size();
    }
    EXPECT_GT(drafts, 25u);
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
  const Outcome expected = draft(**good, true);
  const int64_t all = taken_.ran - opened;
  size_t recovered = 0;
  for (int64_t at = all / 3; at < all; at += all / 5) {
    SCOPED_TRACE(at);
    auto e = open(GraphMode::Whole);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    taken_.fail_at = taken_.ran + at;
    const Outcome got = draft(**e, true);
    for (size_t i = 0; i < got.proposals.size(); ++i) EXPECT_EQ(got.proposals[i].tokens, expected.proposals[i].tokens);
    for (const char* phase : {"decode", "verify", "prefill"}) recovered += (*e)->runner(phase)->quarantined().size();
  }
  EXPECT_GT(recovered, 0u);
}

INSTANTIATE_TEST_SUITE_P(, ChainedRounds, testing::Values(ComputingPlatform::Remote, ComputingPlatform::Ascend),
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::chained_rounds_test
