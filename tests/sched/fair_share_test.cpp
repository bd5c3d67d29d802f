// Fair share between calls, SGLang's policies and priorities, and the bounds of prefill, counted in steps.
#include <thread>

#include "sched/scheduler_fixture.h"

namespace reprise::sched::fair_share_test {
namespace {

struct FairShareTest : SchedulerTest {
  std::shared_ptr<Answer> add_of(uint64_t call, Tokens prompt, int64_t most) {
    Asked a = forever(std::move(prompt), most);
    a.request.call = call;
    return add(std::move(a));
  }
  // Steps until one of them has an answer; how many it took.
  int64_t steps_until(const std::function<bool()>& done) {
    int64_t n = 0;
    for (; !done() && n < 5000; ++n) step();
    return n;
  }
};

// 64 answers of 100 tokens on 8 rows take 800 steps; a neighbour of 5 tokens takes its 5 and one to begin with.
TEST_F(FairShareTest, ACallWithManyAnswersDoesNotHoldItsNeighbour) {
  for (const bool cache : {true, false}) {
    SchedulerOptions options;
    options.prefix_cache = cache;
    make({8, 64, 60, 1000}, options);
    std::vector<std::shared_ptr<Answer>> many;
    for (int i = 0; i < 64; ++i) {
      Asked a = forever(count_up(20), 100);
      a.request.call = 1;
      a.request.several = true;
      a.request.sampling.temperature = 1;
      a.request.sampling.seed = static_cast<uint64_t>(i);
      many.push_back(add(std::move(a)));
    }
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(scheduler->stats().running, 8) << "alone it takes every row";
    auto neighbour = add_of(2, count_up(30, 9), 5);
    EXPECT_LE(steps_until([&] { return neighbour->result.has_value(); }), 6);
    EXPECT_EQ(neighbour->tokens, expected(count_up(30, 9), 5, true));
    EXPECT_EQ(scheduler->stats().preemptions, 1u);
    run_out();
    for (const auto& a : many) EXPECT_EQ(a->tokens.size(), 100u);
  }
}

TEST_F(FairShareTest, RowsAreSharedEquallyAndComeBack) {
  make({8, 64, 100, 1000});
  std::vector<std::shared_ptr<Answer>> first, second;
  for (int32_t i = 0; i < 20; ++i) first.push_back(add_of(1, count_up(10, i), 60));
  for (int i = 0; i < 4; ++i) step();
  for (int32_t i = 0; i < 20; ++i) second.push_back(add_of(2, count_up(10, 50 + i), 60));
  const auto running = [](const std::vector<std::shared_ptr<Answer>>& of) {
    std::vector<size_t> tokens;
    for (const auto& a : of) tokens.push_back(a->tokens.size());
    return tokens;
  };
  step();
  step();
  const auto before_first = running(first), before_second = running(second);
  step();
  int64_t of_first = 0, of_second = 0;
  for (size_t i = 0; i < 20; ++i) {
    of_first += first[i]->tokens.size() > before_first[i];
    of_second += second[i]->tokens.size() > before_second[i];
  }
  EXPECT_EQ(of_first, 4);
  EXPECT_EQ(of_second, 4);
  EXPECT_EQ(scheduler->stats().preemptions, 4u) << "once for each row, and not back again";
  for (int32_t i = 0; i < 20; ++i) scheduler->cancel(last_id - static_cast<uint64_t>(i));
  step();
  EXPECT_EQ(scheduler->stats().running, 8) << "the rows come back";
  run_out();
  for (int32_t i = 0; i < 20; ++i)
    EXPECT_EQ(first[static_cast<size_t>(i)]->tokens, expected(count_up(10, i), 60, true));
}

// In the order of arrival the third call would begin after 40 answers of 20 steps on 4 rows.
TEST_F(FairShareTest, CallsTakeTurns) {
  make({4, 64, 100, 1000});
  std::vector<std::shared_ptr<Answer>> last;
  for (uint64_t call = 1; call <= 3; ++call)
    for (int32_t i = 0; i < 20; ++i)
      last.push_back(add_of(call, count_up(5, 100 * static_cast<int32_t>(call) + i), 20));
  steps_until([&] { return last[40]->result.has_value(); });
  EXPECT_LE(executor->steps, 25);
  run_out();
}

// A call's prompts fill the steps for a while: 10 of 300 tokens in chunks of 64.
TEST_F(FairShareTest, ManyPromptsDoNotHoldAPrompt) {
  make({12, 64, 100, 1000});
  for (int32_t i = 0; i < 10; ++i) add_of(1, count_up(300, i), 1);
  step();
  auto neighbour = add_of(2, count_up(310, 77), 1);
  EXPECT_LE(steps_until([&] { return neighbour->result.has_value(); }), 14) << "half of every step is the first one's";
  run_out();
}

// All pages are in the hands of one call.
TEST_F(FairShareTest, PagesAreSharedToo) {
  make({8, 512, 12, 1000});
  std::vector<std::shared_ptr<Answer>> many;
  for (int32_t i = 0; i < 6; ++i) many.push_back(add_of(1, count_up(200, i), 50));
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(executor->kv_pool().free_pages(), 0);
  auto neighbour = add_of(2, count_up(300, 70), 5);
  EXPECT_LE(steps_until([&] { return neighbour->result.has_value(); }), 8);
  EXPECT_EQ(neighbour->tokens, expected(count_up(300, 70), 5, true));
  EXPECT_EQ(neighbour->result->preemptions, 0);
  run_out();
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(many[static_cast<size_t>(i)]->tokens, expected(count_up(200, i), 50, true));
}

// The order in which requests of one row are through.
struct PolicyTest : FairShareTest {
  std::vector<int> order_of(const std::vector<std::shared_ptr<Answer>>& answers) {
    std::vector<int> order;
    for (int n = 0; n < 5000 && order.size() < answers.size(); ++n) {
      step();
      for (size_t i = 0; i < answers.size(); ++i)
        if (answers[i]->result && std::find(order.begin(), order.end(), static_cast<int>(i)) == order.end())
          order.push_back(static_cast<int>(i));
    }
    return order;
  }
};

TEST_F(PolicyTest, LongestOutputFirst) {
  SchedulerOptions options;
  options.policy = Policy::LongestOutput;
  make({1, 64, 20, 1000}, options);
  std::vector<std::shared_ptr<Answer>> answers;
  for (int64_t most : {3, 9, 5, 9}) answers.push_back(add(forever(count_up(4, static_cast<int32_t>(most)), most)));
  EXPECT_EQ(order_of(answers), (std::vector<int>{1, 3, 2, 0}));
}

TEST_F(PolicyTest, RandomDependsOnItsSeedAlone) {
  const auto order = [&](uint64_t seed) {
    SchedulerOptions options;
    options.policy = Policy::Random;
    options.seed = seed;
    make({1, 64, 20, 1000}, options);
    std::vector<std::shared_ptr<Answer>> answers;
    for (int32_t i = 0; i < 12; ++i) answers.push_back(add(forever(count_up(4, i), 1)));
    return order_of(answers);
  };
  const auto one = order(1);
  EXPECT_EQ(order(1), one);
  EXPECT_NE(order(2), one);
  EXPECT_FALSE(std::is_sorted(one.begin(), one.end()));
}

// The tree has a branch A with two pages below its first one, and a branch B. Of the requests three end in A (two of
// them in one leaf), two in B, and one finds nothing: the heavier branch goes first, leaves before what they hang on,
// and what finds nothing last.
TEST_F(PolicyTest, DfsWeightFollowsTheTree) {
  SchedulerOptions options;
  options.policy = Policy::DfsWeight;
  make({8, 512, 60, 2000}, options);
  const auto with = [](Tokens head, int64_t n, int32_t first) {
    const Tokens more = count_up(n, first);
    head.insert(head.end(), more.begin(), more.end());
    return head;
  };
  const Tokens a = count_up(128, 1), b = count_up(128, 40);
  const Tokens a1 = with(a, 128, 5), a2 = with(a, 128, 17);
  for (const Tokens& t : {with(b, 3, 3), with(a1, 3, 3), with(a2, 3, 3)}) add(ask(t, 1));
  run_out();
  std::vector<std::shared_ptr<Answer>> answers;
  for (const Tokens& t : {with(count_up(128, 90), 9, 9), with(b, 9, 1), with(a, 9, 2), with(a1, 9, 3), with(b, 9, 4),
                          with(a2, 9, 5), with(a2, 9, 6)})
    answers.push_back(add(forever(t, 1)));
  run_out();  // the first step admits them all
  std::vector<int> order(answers.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return *answers[static_cast<size_t>(a)]->result->admitted < *answers[static_cast<size_t>(b)]->result->admitted;
  });
  EXPECT_EQ(order, (std::vector<int>{5, 6, 3, 2, 1, 4, 0}));
}

TEST_F(PolicyTest, PrefixesDoNotOrderLongQueues) {
  SchedulerOptions options;
  options.policy = Policy::LongestPrefix;
  make({1, 512, 60, 2000}, options);
  add(ask(count_up(200, 4), 1));
  run_out();
  std::vector<std::shared_ptr<Answer>> answers;
  for (int32_t i = 0; i < 129; ++i) answers.push_back(add(forever(count_up(5, 100 + i), 1)));
  answers.push_back(add(forever(count_up(150, 4), 1)));
  step();
  EXPECT_TRUE(answers[0]->result.has_value());  // 130 wait: in the order of arrival
  step();
  step();  // 128 wait
  EXPECT_TRUE(answers.back()->result.has_value());
  run_out();
}

TEST_F(PolicyTest, PoliciesHaveSGLangsNames) {
  for (const char* name : {"fcfs", "lpm", "dfs-weight", "random", "lof"}) {
    const auto policy = parse_policy(name);
    ASSERT_TRUE(policy.is_ok());
    EXPECT_EQ(policy_name(*policy), name);
  }
  EXPECT_NE(parse_policy("shortest").status().message().find("allowed: fcfs, lpm, dfs-weight, random, lof"),
            std::string::npos);
}

TEST_F(PolicyTest, PrioritiesPreemptAboveTheThreshold) {
  const auto steps = [&](std::optional<int64_t> threshold, int64_t priority, bool small_first) {
    SchedulerOptions options;
    options.preemption_threshold = threshold;
    options.small_priorities_first = small_first;
    make({1, 64, 20, 1000}, options);
    auto running = add(forever(count_up(4), 50));
    step();
    Asked urgent = forever(count_up(5, 8), 3);
    urgent.request.priority = priority;
    auto answer = add(std::move(urgent));
    const int64_t n = steps_until([&] { return answer->result.has_value(); });
    run_out();
    EXPECT_EQ(running->tokens, expected(count_up(4), 50, true));
    return n;
  };
  EXPECT_EQ(steps(10, 11, false), 3);
  EXPECT_EQ(steps(10, 10, false), 52);
  EXPECT_EQ(steps(10, -11, true), 3);
  EXPECT_EQ(steps({}, 1000, false), 52);
}

TEST_F(PolicyTest, SmallPrioritiesFirstWhenAsked) {
  SchedulerOptions options;
  options.small_priorities_first = true;
  make({1, 64, 20, 1000}, options);
  std::vector<std::shared_ptr<Answer>> answers;
  for (int64_t priority : {0, 4, 2, 1}) {
    Asked a = forever(count_up(4, static_cast<int32_t>(priority)), 2);
    a.request.priority = priority;
    answers.push_back(add(std::move(a)));
  }
  EXPECT_EQ(order_of(answers), (std::vector<int>{0, 3, 2, 1}));
}

// SGLang's meaning: the first prompt of a batch always takes part, up to the chunk; others while the sum stays within.
TEST_F(PolicyTest, MaxPrefillTokensBoundsTheSumOfPrompts) {
  SchedulerOptions options;
  options.max_prefill_tokens = 50;
  make({8, 200, 60, 1000}, options);
  for (int32_t i = 0; i < 4; ++i) add(forever(count_up(20, i), 1));
  step();
  EXPECT_EQ(executor->counts.back(), (std::vector<int64_t>{20, 20, 10}));
  run_out();
  add(forever(count_up(120, 5), 1));
  add(forever(count_up(20, 6), 1));
  step();
  EXPECT_EQ(executor->counts.back(), (std::vector<int64_t>{120}));
  run_out();
}

TEST_F(PolicyTest, PrefillMaxRequestsBoundsTheirNumber) {
  SchedulerOptions options;
  options.prefill_requests = 2;
  make({8, 200, 60, 1000}, options);
  for (int32_t i = 0; i < 5; ++i) add(forever(count_up(20, i), 1));
  std::vector<size_t> prompts;
  while (!scheduler->idle()) {
    step();
    prompts.push_back(executor->counts.back().size());
  }
  EXPECT_EQ(prompts, (std::vector<size_t>{2, 2, 1}));
}

// A chunk without logits is checked by no one; a later request must not begin with it.
TEST_F(SchedulerTest, ChunksWithoutCheckedLogitsDoNotEnterTheCache) {
  for (const bool greedy : {true, false}) {
    for (const char* how : {"cancelled", "late", "preempted"}) {
      SCOPED_TRACE(how);
      SchedulerOptions options;
      options.preemption_threshold = 0;
      make({1, 128, 20, 1000}, options);
      executor->greedy_steps = greedy;
      executor->spoil_at = 1;
      Asked a = forever(count_up(600), 3);
      if (how == std::string("late")) a.request.deadline = Clock::now() + std::chrono::milliseconds(20);
      auto spoiled = add(std::move(a));
      const RequestId id = last_id;
      step();
      step();
      if (how == std::string("cancelled")) scheduler->cancel(id);
      if (how == std::string("late")) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      if (how == std::string("preempted")) {
        Asked urgent = forever(count_up(10, 5), 1);
        urgent.request.priority = 1;
        add(std::move(urgent));
      }
      step();
      auto again = add(forever(count_up(600), 3));
      run_out();
      EXPECT_TRUE(again->result->status.is_ok()) << again->result->status.message();
      EXPECT_EQ(again->tokens, expected(count_up(600), 3, true));
      EXPECT_EQ(again->result->cached_tokens, how == std::string("preempted") ? 599 : 0);
      EXPECT_EQ(spoiled->result->late, how == std::string("late"));
      const bool answered = how == std::string("preempted");
      EXPECT_EQ(spoiled->tokens, answered ? expected(count_up(600), 3, true) : Tokens());
    }
  }
}

// What checked logits followed from stays: cancelling late costs nothing.
TEST_F(SchedulerTest, CheckedTokensOfACancelledRequestStay) {
  make({1, 128, 20, 1000});
  add(forever(count_up(300), 50));
  const RequestId id = last_id;
  for (int i = 0; i < 13; ++i) step();
  scheduler->cancel(id);
  auto again = add(forever(count_up(300), 3));
  run_out();
  EXPECT_EQ(again->result->cached_tokens, 299);
}

TEST(RetryAfter, FollowsTheQueueAndTheRate) {
  SchedulerStats s;
  s.waiting_tokens = 100000;
  EXPECT_EQ(retry_after_s(s), 1) << "nothing was measured yet";
  s.tokens_per_s = 10000;
  EXPECT_EQ(retry_after_s(s), 10);
  s.waiting_tokens = 200000;
  EXPECT_EQ(retry_after_s(s), 20);
  s.waiting_tokens = 5;
  EXPECT_EQ(retry_after_s(s), 1);
  s.waiting_tokens = 1 << 30;
  EXPECT_EQ(retry_after_s(s), kLongestRetry);
}

TEST_F(SchedulerTest, MeasuresItsRate) {
  make({1, 128, 20, 1000});
  EXPECT_EQ(scheduler->stats().tokens_per_s, 0);
  executor->during_step = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  add(forever(count_up(100), 20));
  run_out();
  EXPECT_GT(scheduler->stats().tokens_per_s, 0);
  EXPECT_LT(scheduler->stats().tokens_per_s, 119 / 0.04);
}

}  // namespace
}  // namespace reprise::sched::fair_share_test
