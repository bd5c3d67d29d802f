// Ranks of the CUDA device draw tokens without whole logits: its kernels on the SIMT executor give one rank's tokens,
// and hosts draw the rows that are not decided by what ranks send.
#include "sched/scheduler.h"
#include "simt/kernels.h"
#include "support/answers.h"
#include "support/drawn_rows.h"

namespace reprise::simt::drawn_over_ranks_test {
namespace {

using testing_support::DrawnCase;

DrawnCase over(int size, engine::GraphPolicy policy) {
  return {"qwen3_tied", size, policy, DeviceKind::Cuda, GraphMode::Whole, &stand_in()};
}

// Tokens of three requests, the last of which is drawn so, and how often a step waited for the hosts.
std::pair<std::vector<sched::Tokens>, uint64_t> answer(engine::Engine& e, const engine::SamplingParams& last) {
  sched::Scheduler scheduler(e, {});
  std::vector<std::shared_ptr<sched::Answer>> answers;
  for (int32_t i = 0; i < 3; ++i) {
    sched::Asked a = sched::ask(sched::count_up(4 + 5 * i, i), 5);
    if (i == 2) a.request.sampling = last;
    if (i == 1) a.request.sampling.temperature = 2, a.request.sampling.seed = 3;
    a.request.sampling.max_new_tokens = 5;
    a.request.sampling.ignore_eos = true;
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  while (!scheduler.idle()) scheduler.step();
  scheduler.complete_in_flight();
  std::vector<sched::Tokens> tokens;
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    tokens.push_back(a->tokens);
  }
  return {tokens, scheduler.stats().overlap_stops[static_cast<size_t>(sched::OverlapStop::HostDraw)]};
}

// Steps run beside the host where all their rows are decided on the device, which feeds the tokens to the next one.
TEST(CudaDrawnOverRanks, DecidedStepsOverlap) {
  const DrawnCase c = over(2, engine::GraphPolicy::Required);
  auto alone = open_drawn(c, testing_support::kVocabulary, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const auto world = engine::LocalWorld::start(c.size, [&](std::shared_ptr<ranks::Member> m) {
    return open_drawn(c, testing_support::kVocabulary, std::move(m));
  });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  ASSERT_TRUE(front.overlaps());
  for (const double top_p : {1.0, 0.9}) {
    engine::SamplingParams last;
    last.temperature = 1.5, last.seed = 8, last.top_p = top_p;
    const auto [one, none] = answer(**alone, last);
    const auto [many, stops] = answer(front, last);
    EXPECT_EQ(many, one);
    EXPECT_EQ(none, 0u);
    EXPECT_EQ(stops > 0, top_p < 1);
  }
  EXPECT_EQ(front.counters().logits_gathered, 0u);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

TEST(CudaDrawnOverRanks, TokensAreThoseOfOne) {
  expect_drawn_as_alone(over(2, engine::GraphPolicy::Required));
  expect_drawn_as_alone(over(4, engine::GraphPolicy::Off));
}

}  // namespace
}  // namespace reprise::simt::drawn_over_ranks_test
