#include "sched/generator.h"

#include <gtest/gtest.h>

#include <map>

#include "support/answers.h"

namespace reprise::sched::generator_test {
namespace {

std::vector<GenerationRequest> many_requests(size_t n) {
  std::vector<GenerationRequest> requests(n);
  for (size_t i = 0; i < n; ++i) {
    requests[i].prompt = count_up(1 + static_cast<int64_t>(i * 37 % 150), static_cast<int32_t>(i % 5));
    requests[i].sampling.max_new_tokens = 1 + static_cast<int64_t>(i * 13 % 40);
  }
  return requests;
}

struct GeneratorTest : testing::Test {
  void make(FakeExecutor::Limits limits) {
    executor = std::make_unique<FakeExecutor>(limits);
    pages = limits.pages;
  }
  std::unique_ptr<Generator> generator(bool prefix_cache = false) {
    return std::make_unique<Generator>(*executor, GeneratorOptions{{FakeExecutor::kEos}, prefix_cache});
  }
  std::vector<GenerationResult> run_ok(const std::vector<GenerationRequest>& requests) {
    auto results = generator()->run(requests);
    EXPECT_TRUE(results.is_ok()) << results.status().message();
    EXPECT_EQ(executor->kv_pool().free_pages(), pages);
    return results ? std::move(results).value() : std::vector<GenerationResult>(requests.size());
  }
  std::unique_ptr<FakeExecutor> executor;
  int64_t pages = 0;
};

TEST_F(GeneratorTest, GreedyEqualsTheReferenceHoweverItIsPacked) {
  const auto requests = many_requests(40);
  for (const FakeExecutor::Limits limits : {FakeExecutor::Limits{64, 2048, 500, 400},
                                            {1, 1, 2, 400},
                                            {3, 7, 500, 400},
                                            {8, 100, 3, 400},
                                            {64, 64, 9, 400}}) {
    for (const bool beside : {false, true}) {
      make(limits);
      executor->runs_beside = beside;
      const auto results = run_ok(requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        const Tokens reference = expected(requests[i].prompt, requests[i].sampling.max_new_tokens);
        EXPECT_EQ(results[i].tokens, reference) << "request " << i << ", rows " << limits.rows;
        EXPECT_EQ(results[i].finish,
                  reference.back() == FakeExecutor::kEos ? FinishReason::Stop : FinishReason::Length);
        EXPECT_GT(results[i].ttft_s, 0);
      }
      EXPECT_EQ(executor->in_flight(), 0);
    }
  }
}

TEST_F(GeneratorTest, ListsThatFollowEachOtherShareTheirPrefix) {
  make({4, 512, 40, 1000});
  const auto one = generator(true);
  GenerationRequest r;
  r.prompt = count_up(300);
  r.sampling.max_new_tokens = 10;
  r.sampling.ignore_eos = true;
  auto first = one->run({&r, 1});
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(first->front().cached_tokens, 0);
  r.prompt.insert(r.prompt.end(), first->front().tokens.begin(), first->front().tokens.end());
  r.prompt.push_back(5);
  auto second = one->run({&r, 1});
  ASSERT_TRUE(second.is_ok());
  EXPECT_GE(second->front().cached_tokens, 300);
  EXPECT_EQ(second->front().tokens, expected(r.prompt, 10, true));
  EXPECT_LT(one->times().prefill_tokens, 20);
}

TEST_F(GeneratorTest, EventsCarryEveryTokenInOrder) {
  const auto requests = many_requests(10);
  make({4, 64, 500, 400});
  std::map<size_t, Tokens> seen;
  std::map<size_t, FinishReason> finish;
  auto results = generator()->run(requests, [&](const TokenEvent& e) {
    EXPECT_FALSE(finish.contains(e.request) && finish[e.request] != FinishReason::None);
    seen[e.request].push_back(e.token.token);
    finish[e.request] = e.finish;
    return true;
  });
  ASSERT_TRUE(results.is_ok());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(seen[i], (*results)[i].tokens);
    EXPECT_EQ(finish[i], (*results)[i].finish);
  }
}

TEST_F(GeneratorTest, TheSinkEndsARequest) {
  auto requests = many_requests(6);
  for (auto& r : requests) {
    r.sampling.max_new_tokens = 30;
    r.sampling.ignore_eos = true;
  }
  make({6, 64, 500, 400});
  size_t count = 0;
  auto results = generator()->run(requests, [&](const TokenEvent& e) { return e.request != 2 || ++count < 5; });
  ASSERT_TRUE(results.is_ok());
  EXPECT_EQ((*results)[2].tokens.size(), 5u);
  EXPECT_EQ((*results)[2].finish, FinishReason::Stop);
  for (size_t i : {0u, 1u, 3u, 4u, 5u}) EXPECT_EQ((*results)[i].tokens.size(), 30u);
}

TEST_F(GeneratorTest, LogprobsComeWithTheResult) {
  GenerationRequest r;
  r.prompt = {3};
  r.sampling.max_new_tokens = 5;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 2;
  make({4, 64, 500, 400});
  const auto result = run_ok({r})[0];
  ASSERT_EQ(result.sampled.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result.sampled[i].token, result.tokens[i]);
    EXPECT_EQ(result.sampled[i].top[0].token, result.tokens[i]);
    EXPECT_EQ(result.sampled[i].top.size(), 2u);
  }
}

TEST_F(GeneratorTest, TheContextCutsTheAnswer) {
  GenerationRequest r;
  r.prompt.assign(130, 5);
  r.sampling.max_new_tokens = 1000;
  r.sampling.ignore_eos = true;
  make({4, 64, 2, 140});
  const auto result = run_ok({r})[0];
  EXPECT_EQ(result.tokens.size(), 10u);
  EXPECT_EQ(result.finish, FinishReason::Length);
}

TEST_F(GeneratorTest, BadRequestsAreErrorsBeforeAnythingRuns) {
  const auto message_of = [&](GenerationRequest bad) {
    make({4, 64, 2, 400});
    GenerationRequest good;
    good.prompt = {3};
    const std::vector<GenerationRequest> both{good, bad};
    auto result = generator()->run(both);
    EXPECT_FALSE(result.is_ok());
    EXPECT_EQ(executor->steps, 0);
    EXPECT_EQ(executor->kv_pool().free_pages(), 2);
    return result.status().message();
  };
  GenerationRequest r;
  EXPECT_NE(message_of(r).find("request 1: the prompt is empty"), std::string::npos);
  r.prompt = {3, FakeExecutor::kVocab};
  EXPECT_NE(message_of(r).find("token 29"), std::string::npos);
  r.prompt.assign(400, 3);
  EXPECT_NE(message_of(r).find("400"), std::string::npos);
  r.prompt.assign(200, 3);
  EXPECT_NE(message_of(r).find("the pool has 2"), std::string::npos);
  r.prompt = {3};
  r.sampling.top_p = 2;
  EXPECT_NE(message_of(r).find("top_p"), std::string::npos);
}

TEST_F(GeneratorTest, AFailureEndsTheRunAndGivesThePagesBack) {
  const auto requests = many_requests(10);
  for (int64_t at : {1, 2, 5}) {
    make({4, 64, 50, 400});
    executor->fail_at = at;
    auto result = generator()->run(requests);
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), Code::Device);
    EXPECT_EQ(executor->kv_pool().free_pages(), 50);
  }
  make({4, 64, 50, 400});
  executor->spoil_at = 1;
  auto result = generator()->run(requests);
  ASSERT_FALSE(result.is_ok());
  EXPECT_NE(result.status().message().find("token 0"), std::string::npos) << result.status().message();
  EXPECT_EQ(executor->kv_pool().free_pages(), 50);
}

TEST_F(GeneratorTest, TimesCountTokensAndSteps) {
  auto requests = many_requests(3);
  int64_t prompt_tokens = 0;
  for (auto& r : requests) {
    r.sampling.max_new_tokens = 10;
    r.sampling.ignore_eos = true;
    prompt_tokens += static_cast<int64_t>(r.prompt.size());
  }
  make({4, 512, 50, 400});
  const auto one = generator();
  ASSERT_TRUE(one->run(requests).is_ok());
  EXPECT_EQ(one->times().prefill_tokens, prompt_tokens);
  EXPECT_EQ(one->times().prefill_steps, 1);
  EXPECT_EQ(one->times().decode_tokens, 3 * 9);
  EXPECT_EQ(one->times().decode_steps, 9);
}

TEST_F(GeneratorTest, NoRequestsIsNoWork) {
  make({4, 16, 50, 400});
  EXPECT_TRUE(run_ok({}).empty());
  EXPECT_EQ(executor->steps, 0);
}

}  // namespace
}  // namespace reprise::sched::generator_test
