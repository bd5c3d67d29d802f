// Drafts in the scheduler, on the fake executor: what becomes of them, and that nothing of an answer does.
#include "sched/speculation.h"

#include "sched/scheduler_fixture.h"
#include "support/drafters.h"
#include "support/executor_proxy.h"

namespace reprise::sched {
namespace {

using testing_support::at_random;
using testing_support::from_script;
using testing_support::TestDrafter;

class SpeculationTest : public SchedulerTest {
 protected:
  // With a drafter that foresees this, `wrong` of its tokens being others.
  void make_with(FakeExecutor::Limits limits, testing_support::Foresight foresight, double wrong = 0,
                 int64_t draft_tokens = 4, SchedulerOptions options = {}) {
    options.speculation.draft_tokens = draft_tokens;
    options.speculation.adaptive = adaptive;
    options.drafter = [=, this] {
      auto made =
          std::make_unique<TestDrafter>(TestDrafter::Options{.wrong = wrong, .vocab = FakeExecutor::kVocab}, foresight);
      drafter = made.get();
      return made;
    };
    make(limits, options);
  }
  static Tokens text(const Tokens& prompt, int64_t most, bool ignore_eos = true) {
    Tokens t = prompt;
    const Tokens more = expected(prompt, most, ignore_eos);
    t.insert(t.end(), more.begin(), more.end());
    return t;
  }
  const SpeculationStats& stats() { return (last_ = scheduler->stats()).speculation; }
  uint64_t off(SpecOff why) { return stats().off[static_cast<size_t>(why)]; }

  bool adaptive = false;
  TestDrafter* drafter = nullptr;

 private:
  SchedulerStats last_;
};

TEST_F(SpeculationTest, APerfectDrafterFillsEveryStep) {
  const Tokens prompt = count_up(5);
  make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}));
  const auto answer = add(forever(prompt, 41));
  step();  // the prompt gives the first token
  EXPECT_EQ(answer->tokens.size(), 1u);
  for (size_t i = 1; i <= 10; ++i) {
    step();
    EXPECT_EQ(answer->tokens.size(), 1 + 4 * i);
  }
  EXPECT_TRUE(scheduler->idle());
  EXPECT_EQ(answer->tokens, expected(prompt, 41, true));
  EXPECT_EQ(executor->verify_steps, 10);
  const RequestResult& r = *answer->result;
  EXPECT_EQ(r.completion_tokens, 41);
  EXPECT_EQ(r.decode_steps, 11);
  EXPECT_EQ(r.drafts.steps, 10);
  EXPECT_EQ(r.drafts.drafted, 30);
  EXPECT_EQ(r.drafts.accepted, 30);
  EXPECT_EQ(r.drafts.places.accepted, (std::vector<int64_t>{10, 10, 10}));
  EXPECT_EQ(stats().draft_tokens, 30u);
  EXPECT_EQ(stats().accepted_tokens, 30u);
  EXPECT_EQ(stats().rows, 40u);
  EXPECT_EQ(scheduler->stats().device_draws, 41u);
}

TEST_F(SpeculationTest, TheWorstDrafterGivesOneTokenAStep) {
  const Tokens prompt = count_up(5);
  make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}), 1);
  const auto answer = add(forever(prompt, 20));
  for (size_t i = 1; i <= 20; ++i) {
    step();
    EXPECT_EQ(answer->tokens.size(), i);
  }
  EXPECT_EQ(answer->tokens, expected(prompt, 20, true));
  EXPECT_EQ(answer->result->drafts.accepted, 0);
  EXPECT_EQ(answer->result->drafts.drafted, 3 * 16 + 2 + 1);  // fewer where the answer has no more room
  EXPECT_EQ(answer->result->decode_steps, 20);
}

TEST_F(SpeculationTest, AnAnswerEndsWhereItWouldWithoutDrafts) {
  const Tokens prompt = count_up(6);
  const Tokens all = expected(prompt, 30, true);
  // At each place among the drafts: by the client, by length.
  for (int64_t n = 1; n <= 10; ++n) {
    make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}), 0, 5);
    Asked stopped = forever(prompt, 30);
    stopped.answer->stop_after = n;
    const auto by_client = add(std::move(stopped)), by_length = add(forever(prompt, n));
    run_out();
    const Tokens want(all.begin(), all.begin() + n);
    EXPECT_EQ(by_client->tokens, want);
    EXPECT_EQ(by_client->result->finish, FinishReason::Stop);
    EXPECT_EQ(by_client->result->completion_tokens, n);
    EXPECT_EQ(by_length->tokens, want);
    EXPECT_EQ(by_length->result->finish, FinishReason::Length);
    EXPECT_EQ(by_length->result->completion_tokens,
              by_length->result->decode_steps + by_length->result->drafts.accepted);
    // A stop token that is a draft.
    make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}), 0, 5);
    Asked token = forever(prompt, 30);
    token.request.sampling.stop_token_ids = {all[static_cast<size_t>(n) - 1]};
    const auto by_token = add(std::move(token));
    run_out();
    const auto first = std::find(all.begin(), all.end(), all[static_cast<size_t>(n) - 1]);
    EXPECT_EQ(by_token->tokens, Tokens(all.begin(), first + 1));
    EXPECT_EQ(by_token->result->stop_token, all[static_cast<size_t>(n) - 1]);
  }
}

TEST_F(SpeculationTest, PromptsGoFirstAndDraftsTakeNobodysRow) {
  const Tokens a = count_up(5), b = count_up(9, 4), c = count_up(30, 7);
  make_with({4, 16, 20, 1000}, from_script({text(a, 200), text(b, 200), text(c, 200)}), 0, 8);
  const auto first = add(forever(a, 60)), second = add(forever(b, 60));
  step();
  executor->counts.clear();
  step();
  // Four rows: two sequences, and a draft of each or two of one.
  ASSERT_EQ(executor->counts.size(), 1u);
  EXPECT_EQ(executor->counts[0].size(), 2u);
  EXPECT_EQ(executor->counts[0][0] + executor->counts[0][1], 4);
  const auto third = add(forever(c, 5));
  executor->counts.clear();
  step();
  EXPECT_EQ(executor->counts[0], (std::vector<int64_t>{1, 1, 14}));
  EXPECT_EQ(off(SpecOff::PromptInStep), 1u);
  run_out();
  EXPECT_EQ(first->tokens, expected(a, 60, true));
  EXPECT_EQ(second->tokens, expected(b, 60, true));
  EXPECT_EQ(third->tokens, expected(c, 5, true));
}

TEST_F(SpeculationTest, FullBatchesHaveNoDrafts) {
  const Tokens a = count_up(5), b = count_up(9, 4);
  make_with({2, 16, 20, 1000}, from_script({text(a, 200), text(b, 200)}));
  const auto first = add(forever(a, 12)), second = add(forever(b, 12));
  run_out();
  EXPECT_EQ(first->tokens, expected(a, 12, true));
  EXPECT_EQ(executor->verify_steps, 0);
  EXPECT_EQ(off(SpecOff::Batch), 11u);
}

TEST_F(SpeculationTest, DraftsNeitherEvictNorPreempt) {
  // The cache holds what an earlier prompt left; an answer crosses the border of its page.
  const Tokens old = count_up(200, 3), prompt = count_up(120);
  make_with({8, 300, 3, 1000}, from_script({text(prompt, 60)}), 0, 7);
  add(forever(old, 1));
  run_out();
  ASSERT_EQ(scheduler->stats().cached_pages, 2);
  const auto answer = add(forever(prompt, 40));
  while (off(SpecOff::Pages) == 0 && !scheduler->idle()) step();
  EXPECT_EQ(scheduler->stats().evicted_pages, 0u) << "a draft took the page of a cached prompt";
  run_out();
  EXPECT_GT(off(SpecOff::Pages), 0u);
  EXPECT_EQ(answer->tokens, expected(prompt, 40, true));
}

TEST_F(SpeculationTest, CachedPrefixesHoldNoRejectedDraft) {
  const Tokens prompt = count_up(100);
  const Tokens all = text(prompt, 100);
  make_with({8, 300, 20, 1000}, from_script({all}), 0.4, 8);
  const auto first = add(forever(prompt, 90));
  run_out();
  EXPECT_EQ(first->tokens, expected(prompt, 90, true));
  // The next one begins with that prompt and its answer, which the cache has.
  Tokens longer(all.begin(), all.begin() + 180);
  const auto second = add(forever(longer, 20));
  run_out();
  EXPECT_GT(second->result->cached_tokens, 150);
  EXPECT_EQ(second->tokens, expected(longer, 20, true));
}

TEST_F(SpeculationTest, RequestsMayWantFewerOrNone) {
  const Tokens prompt = count_up(5);
  make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}));
  Asked none = forever(prompt, 10), two = forever(prompt, 10);
  none.request.draft_tokens = 1;
  two.request.draft_tokens = 2;
  const auto a = add(std::move(none));
  run_out();
  EXPECT_EQ(a->result->drafts.steps, 0);
  EXPECT_GT(off(SpecOff::Request), 0u);
  const auto b = add(std::move(two));
  run_out();
  EXPECT_EQ(b->result->drafts.drafted, b->result->drafts.steps);
  EXPECT_EQ(a->tokens, b->tokens);
}

TEST_F(SpeculationTest, MeasuredTimesDecide) {
  adaptive = true;
  const Tokens prompt = count_up(5);
  const auto drafts_with = [&](std::function<std::optional<double>(int64_t)> cost) {
    make_with({8, 64, 20, 1000}, from_script({text(prompt, 300)}), 0, 8);
    executor->cost = std::move(cost);
    const auto answer = add(forever(prompt, 200));
    run_out();
    EXPECT_EQ(answer->tokens, expected(prompt, 200, true));
    return answer->result->drafts;
  };
  // Rows are free, rows cost as much as steps, times are unknown.
  EXPECT_GT(drafts_with([](int64_t rows) { return 100.0 + static_cast<double>(rows); }).accepted, 150);
  const DraftCounts few = drafts_with([](int64_t rows) { return 100.0 * static_cast<double>(rows); });
  EXPECT_LE(few.drafted, 4);  // a hundredth of the time
  EXPECT_EQ(drafts_with([](int64_t) { return std::nullopt; }).drafted, 0);
  EXPECT_GT(off(SpecOff::Cost), 100u);
}

TEST_F(SpeculationTest, ADrafterHearsOfEveryAnswerAndOfNoRejectedToken) {
  const Tokens a = count_up(5), b = count_up(9, 4);
  make_with({8, 64, 20, 1000}, at_random(3, FakeExecutor::kVocab));
  const auto first = add(forever(a, 12)), second = add(forever(b, 30));
  run_out();
  ASSERT_EQ(drafter->answers.size(), 2u);
  EXPECT_EQ(drafter->answers[0], first->tokens);
  EXPECT_EQ(drafter->answers[1], second->tokens);
  int64_t accepted = 0;
  for (const auto& [verified, came_true] : drafter->judgements) accepted += came_true;
  EXPECT_EQ(accepted, first->result->drafts.accepted + second->result->drafts.accepted);
}

// A step with drafts is over before the next one is formed. In text that cannot be guessed the next step is formed
// while the current one runs, as without drafts.
TEST_F(SpeculationTest, OnADeviceThatRunsByItselfStepsWithDraftsAreWaitedFor) {
  const Tokens known = count_up(5), other = count_up(9, 4);
  for (const bool guessed : {true, false}) {
    make_with({8, 64, 20, 1000}, from_script({text(known, guessed ? 200 : 10)}));
    executor->runs_beside = true;
    const auto a = add(forever(known, 41));
    const auto b = guessed ? nullptr : add(forever(other, 41));
    run_out();
    EXPECT_EQ(a->tokens, expected(known, 41, true));
    const auto stops = scheduler->stats().overlap_stops[static_cast<size_t>(OverlapStop::Drafts)];
    if (guessed) {
      EXPECT_EQ(executor->verify_steps, 10);
      EXPECT_EQ(executor->steps, 11);
      EXPECT_EQ(executor->most_in_flight, 1);
      EXPECT_EQ(stops, 11u) << "the prompt's step is waited for as well: its token may be followed by drafts";
      continue;
    }
    EXPECT_EQ(b->tokens, expected(other, 41, true));
    EXPECT_EQ(executor->verify_steps, 3) << "9 tokens of the answer are known: 1, 4 + 4";
    EXPECT_EQ(executor->most_in_flight, 2);
    EXPECT_LE(stops, 4u);
  }
}

// Where one token is repeated, the token in flight is all that n-grams tell; a draft follows it all the same.
TEST_F(SpeculationTest, ARepeatedTokenIsDraftedOnADeviceThatRunsByItself) {
  const Tokens prompt = count_up(5);
  make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}), 0, 2);  // one draft at a time
  executor->runs_beside = true;
  const auto a = add(forever(prompt, 21));
  run_out();
  EXPECT_EQ(a->tokens, expected(prompt, 21, true));
  EXPECT_EQ(executor->verify_steps, 10);
}

// A look ahead that finds nothing leaves the step behind it without drafts; they begin a step later.
TEST_F(SpeculationTest, WhatLooksWorthlessIsFormedAhead) {
  adaptive = true;
  const Tokens prompt = count_up(5);
  make_with({8, 64, 20, 1000}, from_script({text(prompt, 200)}));
  executor->runs_beside = true;
  executor->cost = [](int64_t rows) { return std::optional(100.0 * static_cast<double>(rows)); };  // no draft pays
  const auto a = add(forever(prompt, 30));
  run_out();
  EXPECT_EQ(a->tokens, expected(prompt, 30, true));
  EXPECT_EQ(executor->most_in_flight, 2);
  EXPECT_GT(off(SpecOff::Cost), 20u);
  EXPECT_LE(executor->verify_steps, 1) << "a trial";
}

TEST_F(SpeculationTest, ExecutorsWithoutSuchStepsSaySo) {
  SchedulerOptions options;
  options.speculation.algorithm = spec::Algorithm::Ngram;
  struct Without : testing_support::ExecutorProxy {
    using ExecutorProxy::ExecutorProxy;
    int64_t max_verify_rows() const override { return 0; }
    std::string verify_refusal() const override { return "for a reason"; }
  };
  FakeExecutor inner({4, 64, 20, 1000});
  Without without(inner);
  testing::internal::CaptureStderr();
  Scheduler s(without, options);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("no drafts (`speculative_algorithm` NGRAM is off): for a reason"), std::string::npos) << said;
  EXPECT_FALSE(s.stats().speculation.on);
}

}  // namespace
}  // namespace reprise::sched
