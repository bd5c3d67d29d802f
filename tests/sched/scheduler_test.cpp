#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <thread>

#include "sched/scheduler_fixture.h"

namespace reprise::sched::scheduler_test {
namespace {

TEST_F(SchedulerTest, AnswersAsEachRequestWouldAlone) {
  make({4, 64, 40, 1000});
  std::vector<std::shared_ptr<Answer>> answers;
  std::vector<Tokens> prompts;
  for (int64_t n : {1, 3, 64, 65, 127, 128, 129, 300}) {
    prompts.push_back(count_up(n, static_cast<int32_t>(n)));
    answers.push_back(add(ask(prompts.back(), 20)));
  }
  run_out();
  for (size_t i = 0; i < answers.size(); ++i) {
    const Tokens want = expected(prompts[i], 20);
    EXPECT_EQ(answers[i]->tokens, want) << i;
    ASSERT_TRUE(answers[i]->result.has_value());
    EXPECT_EQ(answers[i]->times_finished, 1);
    EXPECT_EQ(answers[i]->result->completion_tokens, static_cast<int64_t>(want.size()));
    EXPECT_EQ(answers[i]->result->prompt_tokens, static_cast<int64_t>(prompts[i].size()));
    EXPECT_EQ(answers[i]->result->finish,
              want.back() == FakeExecutor::kEos ? FinishReason::Stop : FinishReason::Length);
  }
  EXPECT_EQ(executor->most_sequences, 4);
  const SchedulerStats s = scheduler->stats();
  EXPECT_EQ(s.running + s.waiting, 0);
  EXPECT_EQ(s.free_pages + s.evictable_pages, s.pages);
}

// A sink may ask in the middle of a step, when some of the requests that the last one ran have ended.
TEST_F(SchedulerTest, WhoReadsTheNumbersAtAnEndFindsTheOthers) {
  struct Reader final : RequestSink {
    Reader(Scheduler* of, std::vector<SchedulerStats>* to) : scheduler(of), seen(to) {}
    bool token(const SampledToken&, FinishReason) override { return true; }
    void finished(const RequestResult&) override { seen->push_back(scheduler->stats()); }
    Scheduler* scheduler;
    std::vector<SchedulerStats>* seen;
  };
  make({4, 64, 40, 1000});
  std::vector<SchedulerStats> seen;
  for (int i = 0; i < 3; ++i) {
    Asked a = forever(count_up(5, i), 4);
    a.request.sink = std::make_unique<Reader>(scheduler.get(), &seen);
    EXPECT_TRUE(scheduler->add(std::move(a.request)).is_ok());
  }
  while (scheduler->step()) {
  }
  ASSERT_EQ(seen.size(), 3u);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].running, static_cast<int64_t>(2 - i));
    EXPECT_EQ(seen[i].waiting, 0);
  }
}

TEST_F(SchedulerTest, WhoComesLaterJoinsThoseWhoDecode) {
  make({4, 64, 40, 1000});
  auto first = add(forever(count_up(5), 30));
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(first->tokens.size(), 5u);
  auto second = add(forever(count_up(40, 3), 5));
  step();
  EXPECT_EQ(first->tokens.size(), 6u);
  EXPECT_EQ(second->tokens.size(), 1u);
  EXPECT_EQ(executor->counts.back(), (std::vector<int64_t>{1, 40}));
  run_out();
  EXPECT_EQ(second->tokens, expected(count_up(40, 3), 5, true));
}

TEST_F(SchedulerTest, ALongPromptNeitherStopsDecodersNorShortPrompts) {
  SchedulerOptions options;
  options.mixed_prefill_tokens = 32;
  make({4, 64, 40, 2000}, options);
  auto decoder = add(forever(count_up(4), 50));
  step();
  auto big = add(forever(count_up(1000, 5), 1));
  step();
  auto small = add(forever(count_up(10, 9), 1));
  step();
  EXPECT_EQ(decoder->tokens.size(), 3u);                                  // a token in every step
  EXPECT_EQ(executor->counts.back(), (std::vector<int64_t>{1, 22, 10}));  // of 32: the short one is through
  EXPECT_TRUE(small->result.has_value());
  EXPECT_FALSE(big->result.has_value());
  run_out();
  EXPECT_EQ(big->tokens, expected(count_up(1000, 5), 1, true));
}

TEST_F(SchedulerTest, PrefixesAreComputedOnce) {
  make({4, 512, 40, 2000});
  const Tokens system = count_up(300);
  auto with = [&](Tokens more) {
    Tokens t = system;
    t.insert(t.end(), more.begin(), more.end());
    return t;
  };
  auto a = add(ask(with({5, 6, 7}), 4));
  run_out();
  const int64_t computed = executor->computed;
  auto b = add(ask(with({8, 9}), 4));
  run_out();
  EXPECT_EQ(b->result->cached_tokens, 300);
  EXPECT_EQ(executor->computed - computed, 2 + static_cast<int64_t>(b->tokens.size()) - 1);
  EXPECT_EQ(b->tokens, expected(with({8, 9}), 4));
  // The same prompt again: all but its last token.
  auto c = add(ask(with({8, 9}), 4));
  run_out();
  EXPECT_EQ(c->result->cached_tokens, 301);
  EXPECT_EQ(c->tokens, b->tokens);
  // Another tenant shares nothing.
  Asked d = ask(with({8, 9}), 4);
  d.request.cache_salt = "other";
  auto answer = add(std::move(d));
  run_out();
  EXPECT_EQ(answer->result->cached_tokens, 0);
  EXPECT_EQ(answer->tokens, b->tokens);
  EXPECT_GT(scheduler->flush_cache(), 0);
  EXPECT_EQ(executor->kv_pool().free_pages(), 40);
}

TEST_F(SchedulerTest, CopiesOfOnePromptReadItOnce) {
  make({8, 512, 60, 2000});
  std::vector<std::shared_ptr<Answer>> answers;
  for (uint64_t i = 0; i < 6; ++i) {
    Asked a = forever(count_up(200), 5);
    a.request.several = true;
    a.request.sampling.temperature = 1;
    a.request.sampling.seed = i;
    answers.push_back(add(std::move(a)));
  }
  run_out();
  EXPECT_EQ(executor->computed, 200 + 5 * 1 + 6 * 4);
  EXPECT_NE(answers[0]->tokens, answers[1]->tokens);
}

TEST_F(SchedulerTest, WithoutAPrefixCacheNothingIsKept) {
  SchedulerOptions options;
  options.prefix_cache = false;
  make({4, 512, 40, 2000}, options);
  for (int i = 0; i < 2; ++i) {
    auto a = add(ask(count_up(300), 4));
    run_out();
    EXPECT_EQ(a->result->cached_tokens, 0);
    EXPECT_EQ(a->tokens, expected(count_up(300), 4));
  }
  EXPECT_EQ(executor->kv_pool().free_pages(), 40);
}

TEST_F(SchedulerTest, WhenPagesRunOutTheLastStartsOver) {
  // Three requests that end with 4 pages each in a pool of 7.
  for (const bool cache : {true, false}) {
    SchedulerOptions options;
    options.prefix_cache = cache;
    make({4, 512, 7, 2000}, options);
    std::vector<std::shared_ptr<Answer>> answers;
    for (int32_t i = 0; i < 3; ++i) answers.push_back(add(forever(count_up(120, i), 300)));
    run_out();
    int64_t preemptions = 0;
    for (int32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(answers[i]->tokens, expected(count_up(120, i), 300, true));
      preemptions += answers[i]->result->preemptions;
    }
    EXPECT_EQ(answers[0]->result->preemptions, 0);
    EXPECT_GT(preemptions, 0);
    EXPECT_EQ(scheduler->stats().preemptions, static_cast<uint64_t>(preemptions));
  }
}

TEST_F(SchedulerTest, TheAnswerEndsWhereThePoolOrTheContextEnds) {
  make({4, 64, 2, 10000});
  auto a = add(forever(count_up(200), 1000));
  run_out();
  EXPECT_EQ(a->tokens.size(), 57u);  // 256 places and the token that needs none
  EXPECT_EQ(a->result->finish, FinishReason::Length);
  make({4, 64, 20, 210});
  a = add(forever(count_up(200), 1000));
  run_out();
  EXPECT_EQ(a->tokens.size(), 10u);
}

TEST_F(SchedulerTest, PriorityGoesFirst) {
  make({1, 64, 20, 1000});
  auto first = add(forever(count_up(3), 3));
  step();
  auto low = add(forever(count_up(4), 3));
  Asked urgent = forever(count_up(5), 3);
  urgent.request.priority = 2;
  auto high = add(std::move(urgent));
  while (!high->result) step();
  EXPECT_TRUE(first->result.has_value());
  EXPECT_TRUE(low->tokens.empty());
  run_out();
  EXPECT_TRUE(low->result.has_value());
}

TEST_F(SchedulerTest, LongestPrefixFirstWhenAsked) {
  SchedulerOptions options;
  options.policy = Policy::LongestPrefix;
  make({1, 512, 20, 1000}, options);
  add(ask(count_up(200, 4), 1));
  run_out();
  auto unknown = add(forever(count_up(100, 11), 2));
  auto known = add(forever(count_up(150, 4), 2));
  while (!known->result) step();
  EXPECT_TRUE(unknown->tokens.empty());
  run_out();
}

TEST_F(SchedulerTest, CancelledAndLateRequestsGiveTheirPagesBackAtTheNextStep) {
  make({2, 64, 20, 1000});
  auto a = add(forever(count_up(100), 500));
  const RequestId running = last_id;
  auto b = add(forever(count_up(10, 7), 3));
  auto waiting = add(forever(count_up(10, 8), 3));
  const RequestId third = last_id;
  step();
  step();
  scheduler->cancel(running);
  scheduler->cancel(third);
  scheduler->cancel(12345);
  step();
  EXPECT_EQ(a->result->finish, FinishReason::Cancelled);
  EXPECT_EQ(a->result->status.code(), Code::Cancelled);
  EXPECT_TRUE(waiting->tokens.empty());
  EXPECT_EQ(waiting->result->finish, FinishReason::Cancelled);
  Asked late = forever(count_up(10, 9), 500);
  late.request.deadline = Clock::now() + std::chrono::milliseconds(20);
  auto c = add(std::move(late));
  step();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  step();
  EXPECT_EQ(c->result->finish, FinishReason::Cancelled);
  EXPECT_NE(c->result->status.message().find("deadline"), std::string::npos);
  run_out();
  EXPECT_EQ(b->result->finish, FinishReason::Length);
  scheduler->flush_cache();
  EXPECT_EQ(executor->kv_pool().free_pages(), 20);
}

TEST_F(SchedulerTest, ASinkEndsItsRequest) {
  make({2, 64, 20, 1000});
  Asked a = forever(count_up(10), 50);
  a.answer->stop_after = 7;
  auto answer = add(std::move(a));
  run_out();
  EXPECT_EQ(answer->tokens.size(), 7u);
  EXPECT_EQ(answer->result->finish, FinishReason::Stop);
  EXPECT_FALSE(answer->result->stop_token.has_value());
}

TEST_F(SchedulerTest, RefusesWhatItCannotHold) {
  SchedulerOptions options;
  options.max_queued = 2;
  make({1, 64, 4, 300}, options);
  EXPECT_EQ(scheduler->add(ask({}).request).status().code(), Code::Invalid);
  EXPECT_EQ(scheduler->add(ask({2, 99}).request).status().code(), Code::Invalid);
  EXPECT_EQ(scheduler->add(ask(count_up(300)).request).status().code(), Code::Invalid);
  EXPECT_EQ(scheduler->add(ask({2}, 0).request).status().code(), Code::Invalid);
  for (int i = 0; i < 3; ++i) add(ask(count_up(5), 3));
  EXPECT_EQ(scheduler->add(ask(count_up(5)).request).status().code(), Code::Busy);
  run_out();
  add(ask(count_up(5), 3));
  scheduler->close();
  EXPECT_EQ(scheduler->add(ask(count_up(5)).request).status().code(), Code::Busy);
  run_out();

  options.max_queued = 100;
  options.max_queued_tokens = 100;
  make({1, 64, 4, 300}, options);
  add(ask(count_up(50), 50));
  EXPECT_EQ(scheduler->add(ask(count_up(5), 1).request).status().code(), Code::Busy);
  step();  // the first runs now
  add(ask(count_up(5), 1));
  run_out();
}

TEST_F(SchedulerTest, AFailedStepEndsItsRequestsAndTheNextOnesLive) {
  make({4, 64, 20, 1000});
  executor->fail_at = 3;
  auto a = add(forever(count_up(10), 20));
  auto b = add(forever(count_up(140, 3), 20));
  run_out();
  EXPECT_EQ(a->result->status.code(), Code::Device);
  EXPECT_EQ(b->result->status.code(), Code::Device);
  EXPECT_EQ(scheduler->stats().failed_steps, 1u);
  auto c = add(forever(count_up(10), 20));
  run_out();
  EXPECT_EQ(c->tokens, expected(count_up(10), 20, true));
}

TEST_F(SchedulerTest, ALostDeviceEndsEveryRequestAndTheScheduler) {
  make({2, 64, 20, 1000}, {.max_running = 1});
  executor->fail_at = 3;
  executor->fail_code = Code::DeviceLost;
  auto running = add(forever(count_up(10), 20));
  auto waiting = add(forever(count_up(12), 20));
  std::shared_ptr<Answer> in_the_mail;
  executor->during_step = [&] {
    if (executor->steps == 2) in_the_mail = add(forever(count_up(14), 20));
  };
  scheduler->run();  // returns by itself
  for (const auto& a : {running, waiting, in_the_mail}) {
    ASSERT_TRUE(a && a->result);
    EXPECT_EQ(a->result->finish, FinishReason::Cancelled);
    EXPECT_EQ(a->result->status.code(), Code::DeviceLost);
    EXPECT_EQ(a->result->status.message(), "the device is lost: the device has failed");
  }
  EXPECT_EQ(running->tokens.size(), 2u);
  EXPECT_TRUE(scheduler->idle());
  EXPECT_EQ(scheduler->lost().code(), Code::DeviceLost);
  const auto refused = scheduler->add(std::move(ask(count_up(5), 1).request));
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), Code::DeviceLost);
  EXPECT_TRUE(scheduler->check_integrity().is_ok());
}

TEST_F(SchedulerTest, TellsHowLikelyThePromptWas) {
  for (const int64_t rows : {3, 64}) {
    make({rows, 64, 20, 1000});
    add(ask(count_up(150), 1));  // known to the cache, which must not hide the rows
    run_out();
    Asked a = ask(count_up(150), 2);
    a.request.prompt_logprobs = true;
    a.request.sampling.logprobs = 2;
    auto answer = add(std::move(a));
    run_out();
    ASSERT_EQ(answer->prompt.size(), 150u);
    EXPECT_FALSE(answer->prompt[0].logprob.has_value());
    const Tokens prompt = count_up(150);
    for (size_t i = 1; i < 150; ++i) {
      const auto want = engine::score_token(FakeExecutor::logits_of(std::span(prompt).first(i)), prompt[i], 2);
      EXPECT_EQ(answer->prompt[i].token, prompt[i]);
      EXPECT_EQ(answer->prompt[i].logprob, want->logprob);
      ASSERT_EQ(answer->prompt[i].top.size(), 2u);
      EXPECT_EQ(answer->prompt[i].top[0].token, want->top[0].token);
    }
    EXPECT_EQ(answer->tokens, expected(prompt, 2));
    EXPECT_TRUE(answer->sampled[0].logprob.has_value());
  }
}

TEST_F(SchedulerTest, ServesFromAThreadOfItsOwn) {
  make({4, 64, 40, 1000});
  std::thread loop([&] { scheduler->run(); });
  std::vector<std::thread> clients;
  std::vector<std::shared_ptr<Answer>> answers(60);
  for (int c = 0; c < 3; ++c)
    clients.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) {
        Asked a = ask(count_up(3 + 20 * c + i, c), 10);
        answers[static_cast<size_t>(c * 20 + i)] = a.answer;
        auto id = scheduler->add(std::move(a.request));
        EXPECT_TRUE(id.is_ok());
        if (i % 7 == 3) scheduler->cancel(*id);
      }
    });
  for (auto& t : clients) t.join();
  while (!scheduler->idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  bool flushed = false;
  scheduler->post([&] {
    scheduler->flush_cache();
    flushed = scheduler->check_integrity().is_ok();
  });
  while (scheduler->stats().free_pages != 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  scheduler->stop();
  loop.join();
  EXPECT_TRUE(flushed);
  for (const auto& a : answers) EXPECT_EQ(a->times_finished, 1);
}

TEST_F(SchedulerTest, WhatIsLeftAtTheEndIsCancelled) {
  make({1, 64, 40, 1000});
  auto a = add(forever(count_up(5), 100)), b = add(forever(count_up(5), 100));
  step();
  auto c = add(ask(count_up(9)));  // still in the mail
  scheduler.reset();
  for (const auto& x : {a, b, c}) EXPECT_EQ(x->result->finish, FinishReason::Cancelled);
}

}  // namespace
}  // namespace reprise::sched::scheduler_test
