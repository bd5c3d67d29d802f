// Several schedulers behind the face of one: which gets a request, and that nothing else differs.
#include "sched/replicas.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler_fixture.h"

namespace reprise::sched {
namespace {

// So many tokens that differ from those of another seed from the first on.
Tokens prompt_of(int seed, size_t size) {
  Tokens out;
  for (size_t i = 0; i < size; ++i)
    out.push_back(static_cast<int32_t>((i * 7 + static_cast<size_t>(seed) * 3 + i * i % 5) % FakeExecutor::kVocab));
  return out;
}

struct ReplicasTest : testing::Test {
  void make(size_t n, Balance balance, SchedulerOptions options = {}) {
    options.eos_tokens = {FakeExecutor::kEos};
    options.id_step = n;
    std::vector<Scheduler*> list;
    for (size_t i = 0; i < n; ++i) {
      executors.push_back(std::make_unique<FakeExecutor>(FakeExecutor::Limits{4, 256, 40, 1000}));
      options.first_id = i + 1;
      schedulers.push_back(std::make_unique<Scheduler>(*executors.back(), options));
      list.push_back(schedulers.back().get());
    }
    replicas = std::make_unique<Replicas>(list, balance);
  }
  // The replica that got it.
  size_t add(Asked asked) {
    auto id = replicas->add(std::move(asked.request));
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    answers.push_back(asked.answer);
    if (!id.is_ok()) return SIZE_MAX;
    EXPECT_TRUE(ids.insert(*id).second) << *id;
    last_id = *id;
    return (*id - 1) % schedulers.size();
  }
  void run_out() {
    for (int i = 0; !replicas->idle(); ++i) {
      ASSERT_LT(i, 10000);
      for (auto& s : schedulers) {
        s->step();
        ASSERT_TRUE(s->check_integrity().is_ok());
      }
    }
  }
  std::vector<std::unique_ptr<FakeExecutor>> executors;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  std::unique_ptr<Replicas> replicas;
  std::vector<std::shared_ptr<Answer>> answers;
  std::set<RequestId> ids;
  RequestId last_id = 0;
};

TEST_F(ReplicasTest, RoundRobinGoesAroundAndIdsAreUnique) {
  make(3, Balance::RoundRobin);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(add(forever(prompt_of(static_cast<int>(i), 5))), i % 3);
  run_out();
  for (const SchedulerStats& s : replicas->each()) EXPECT_EQ(s.requests, 3u);
  EXPECT_EQ(replicas->stats().requests, 9u);
  EXPECT_EQ(replicas->stats().generated_tokens, 72u);
  EXPECT_EQ(replicas->stats().pages, 120);
}

TEST_F(ReplicasTest, AnswersAreThoseOfOneScheduler) {
  make(2, Balance::Prefix);
  for (int i = 0; i < 6; ++i) (void)add(ask(prompt_of(i, 150), 20));
  run_out();
  FakeExecutor one({4, 256, 40, 1000});
  SchedulerOptions options;
  options.eos_tokens = {FakeExecutor::kEos};
  Scheduler alone(one, options);
  for (int i = 0; i < 6; ++i) {
    Asked a = ask(prompt_of(i, 150), 20);
    ASSERT_TRUE(alone.add(std::move(a.request)).is_ok());
    while (!alone.idle()) alone.step();
    EXPECT_EQ(a.answer->tokens, answers[static_cast<size_t>(i)]->tokens) << i;
  }
}

TEST_F(ReplicasTest, FewestRequestsGetTheNext) {
  make(2, Balance::TotalRequests);
  const size_t first = add(forever(prompt_of(1, 5), 100));
  const size_t second = add(forever(prompt_of(2, 5), 2));
  EXPECT_NE(first, second);
  while (!schedulers[second]->idle()) schedulers[second]->step();
  EXPECT_EQ(add(forever(prompt_of(3, 5))), second);
  run_out();
}

TEST_F(ReplicasTest, FewestTokensGetTheNext) {
  make(2, Balance::TotalTokens);
  const size_t large = add(forever(prompt_of(1, 300), 100));
  const size_t small = add(forever(prompt_of(2, 5), 2));
  EXPECT_NE(large, small);
  EXPECT_EQ(add(forever(prompt_of(3, 5), 2)), small);  // waiting
  schedulers[large]->step();
  schedulers[small]->step();
  EXPECT_EQ(add(forever(prompt_of(4, 5), 2)), small);  // and in pages
  run_out();
}

TEST_F(ReplicasTest, APromptGoesWhereItsBeginningWas) {
  make(3, Balance::Prefix);
  const Tokens a = prompt_of(1, 260), b = prompt_of(2, 260);
  const size_t of_a = add(forever(a)), of_b = add(forever(b));
  EXPECT_NE(of_a, of_b);
  run_out();
  for (int i = 0; i < 4; ++i) {
    Tokens longer = a;
    longer.resize(256);
    for (int k = 0; k < 20; ++k) longer.push_back(i + 1);
    EXPECT_EQ(add(forever(longer)), of_a);
    EXPECT_EQ(add(forever(b)), of_b);
    run_out();
  }
  EXPECT_GE(schedulers[of_a]->stats().cached_tokens, 4u * 256);
  // Another salt is another prompt; one without a whole page has no place.
  Asked salted = forever(a);
  salted.request.cache_salt = "x";
  EXPECT_NE(add(std::move(salted)), of_a);
  // When the caches were emptied nothing is known.
  run_out();
  int64_t pages = -1;
  replicas->flush_cache([&](int64_t n) { pages = n; });
  for (auto& s : schedulers) s->step();
  EXPECT_GT(pages, 0);
  std::set<size_t> places;
  for (int i = 0; i < 3; ++i) places.insert(add(forever(prompt_of(10 + i, 260))));
  EXPECT_EQ(places.size(), 3u);
  run_out();
}

TEST_F(ReplicasTest, ABusyHolderIsPassedOver) {
  make(2, Balance::Prefix);
  const Tokens a = prompt_of(1, 130);
  const size_t holder = add(forever(a, 100));
  schedulers[holder]->step();
  size_t elsewhere = 0;
  for (int i = 0; i < 12; ++i) elsewhere += add(forever(a, 100)) != holder;
  EXPECT_GT(elsewhere, 3u);  // both work
  run_out();
}

TEST_F(ReplicasTest, AFullQueueIsPassedOverUntilAllAreFull) {
  SchedulerOptions options;
  options.max_running = 1;
  options.max_queued = 1;
  make(2, Balance::RoundRobin, options);
  for (int i = 0; i < 4; ++i) (void)add(forever(prompt_of(i, 5), 4));
  Asked more = forever(prompt_of(9, 5));
  auto refused = replicas->add(std::move(more.request));
  EXPECT_EQ(refused.status().code(), Code::Busy);
  run_out();
  // One of them is ready again: the next goes there, whoever's turn it is.
  for (int i = 0; i < 4; ++i) (void)add(forever(prompt_of(i, 5), 4));
  while (!schedulers[1]->idle()) schedulers[1]->step();
  EXPECT_EQ(add(forever(prompt_of(7, 5))), 1u);
  EXPECT_EQ(add(forever(prompt_of(8, 5))), 1u);
  run_out();
}

TEST_F(ReplicasTest, CancelFindsItsReplica) {
  make(3, Balance::RoundRobin);
  for (int i = 0; i < 6; ++i) {
    (void)add(forever(prompt_of(i, 5), 500));
    replicas->cancel(last_id);
  }
  run_out();
  for (const auto& a : answers) EXPECT_EQ(a->result->finish, FinishReason::Cancelled);
  (void)add(forever(prompt_of(7, 5), 500));
  (void)add(forever(prompt_of(8, 5), 500));
  replicas->cancel_all();
  run_out();
  EXPECT_LT(replicas->stats().generated_tokens, 20u);
}

TEST(Balance, NamesAreSgLangs) {
  for (const char* name : {"auto", "round_robin", "total_requests", "total_tokens"}) {
    const auto b = parse_balance(name);
    ASSERT_TRUE(b.is_ok());
    EXPECT_EQ(balance_name(*b), name);
  }
  EXPECT_EQ(parse_balance("shortest_queue").value(), Balance::TotalRequests);
  EXPECT_EQ(parse_balance("minimum_tokens").value(), Balance::TotalTokens);
  EXPECT_FALSE(parse_balance("best").is_ok());
}

}  // namespace
}  // namespace reprise::sched
