// Scores of given tokens, against those of an executor whose logits are known.
#include "sched/scorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "support/answers.h"

namespace reprise::sched::scorer_test {
namespace {

std::vector<TextToScore> many_texts(size_t n) {
  std::vector<TextToScore> texts(n);
  for (size_t i = 0; i < n; ++i) {
    const auto size = 2 + static_cast<int64_t>(i * 37 % 150);
    texts[i].tokens = count_up(size, static_cast<int32_t>(i % 5));
    texts[i].from = 1 + static_cast<int64_t>(i * 29) % (size - 1);
  }
  return texts;
}

TextScore expected_score(const TextToScore& text) {
  TextScore out;
  for (size_t at = static_cast<size_t>(text.from); at < text.tokens.size(); ++at) {
    const auto row = FakeExecutor::logits_of(std::span(text.tokens).first(at));
    double sum = 0;
    for (const float v : row) sum += std::exp(static_cast<double>(v));
    const double log_p = static_cast<double>(row[static_cast<size_t>(text.tokens[at])]) - std::log(sum);
    out.log_p += log_p;
    out.squares += log_p * log_p;
    ++out.tokens;
  }
  return out;
}

TEST(Scorer, ScoresDoNotDependOnHowTextsArePacked) {
  const auto texts = many_texts(40);
  std::vector<TextScore> first;
  for (const FakeExecutor::Limits limits : {FakeExecutor::Limits{64, 2048, 500, 400},
                                            {1, 1, 2, 400},
                                            {3, 7, 500, 400},
                                            {8, 100, 3, 400},
                                            {4, 64, 20, 151}}) {
    for (const bool beside : {false, true}) {
      FakeExecutor executor(limits);
      executor.runs_beside = beside;
      int64_t told = 0, total = 0;
      const auto scores = Scorer(executor).run(texts, [&](int64_t done, int64_t all) {
        EXPECT_GT(done, told);
        told = done, total = all;
      });
      ASSERT_TRUE(scores.is_ok()) << scores.status().message();
      ASSERT_EQ(scores->size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        const TextScore want = expected_score(texts[i]);
        EXPECT_NEAR((*scores)[i].log_p, want.log_p, 1e-9) << i;
        EXPECT_NEAR((*scores)[i].squares, want.squares, 1e-9) << i;
        EXPECT_EQ((*scores)[i].tokens, want.tokens) << i;
        if (!first.empty()) {
          EXPECT_EQ((*scores)[i].log_p, first[i].log_p) << i;
        }
      }
      EXPECT_EQ(told, total);
      EXPECT_EQ(executor.kv_pool().free_pages(), limits.pages);
      // The last token of a text is never read, and a context is read without logits.
      const auto reads = [](int64_t sum, const TextToScore& t) {
        return sum + static_cast<int64_t>(t.tokens.size()) - 1;
      };
      EXPECT_EQ(executor.computed, std::accumulate(texts.begin(), texts.end(), int64_t{0}, reads));
      if (first.empty()) first = *scores;
    }
  }
}

TEST(Scorer, AContextAndItsEndingTakeOneStep) {
  FakeExecutor executor({.rows = 4, .tokens = 64});
  ASSERT_TRUE(Scorer(executor).run({{count_up(30, 1), 27}}).is_ok());
  EXPECT_EQ(executor.counts, (std::vector<std::vector<int64_t>>{{29}}));
}

TEST(Scorer, WrongTextsAreRefused) {
  FakeExecutor executor({.rows = 4, .tokens = 64, .pages = 2, .context = 300});
  const auto problem = [&](Tokens tokens, int64_t from) {
    return Scorer(executor).run({{std::move(tokens), from}}).status().message();
  };
  EXPECT_EQ(problem({1}, 1), "a text of 1 tokens scored from 1 on; allowed: 1 to the last");
  EXPECT_EQ(problem({1, 2}, 0), "a text of 2 tokens scored from 0 on; allowed: 1 to the last");
  EXPECT_EQ(problem(count_up(301, 1), 1), "a text of 301 tokens; allowed: up to the context's 300");
  EXPECT_EQ(problem({1, 29}, 1), "token 29 is not in the vocabulary (0 to 28)");
  EXPECT_NE(problem(count_up(300, 1), 1).find("KV pages"), std::string::npos);
  EXPECT_EQ(problem(count_up(257, 1), 1), "") << "the last token needs no page";
  EXPECT_EQ(executor.kv_pool().free_pages(), 2);
}

TEST(Scorer, AStepThatFailsOrGivesNoNumbersEndsAll) {
  for (const bool spoilt : {false, true}) {
    FakeExecutor executor({.rows = 4, .tokens = 64});
    (spoilt ? executor.spoil_at : executor.fail_at) = 2;
    const auto scores = Scorer(executor).run(many_texts(20));
    EXPECT_NE(scores.status().message().find(spoilt ? "not finite" : "the device has failed"), std::string::npos)
        << scores.status().message();
    EXPECT_EQ(executor.kv_pool().free_pages(), 20);
  }
}

// What a request that is scored told.
struct Told {
  std::vector<double> log_p;
  RequestResult result;
};

class ToldSink final : public RequestSink {
 public:
  explicit ToldSink(Told& told) : told_(told) {}
  void scored(std::span<const double> log_p) override {
    told_.log_p.insert(told_.log_p.end(), log_p.begin(), log_p.end());
  }
  bool token(const SampledToken&, FinishReason) override { return true; }
  void finished(const RequestResult& result) override { told_.result = result; }

 private:
  Told& told_;
};

Request request_of(const TextToScore& text, Told& told) {
  Request r;
  r.prompt = text.tokens;
  r.score_from = text.from;
  r.sink = std::make_unique<ToldSink>(told);
  return r;
}

void expect_scores(const Told& told, const TextToScore& text) {
  EXPECT_EQ(told.result.finish, FinishReason::Stop);
  EXPECT_EQ(told.result.completion_tokens, 0);
  const TextScore want = expected_score(text);
  EXPECT_EQ(static_cast<int64_t>(told.log_p.size()), want.tokens);
  EXPECT_NEAR(std::accumulate(told.log_p.begin(), told.log_p.end(), 0.0), want.log_p, 1e-9);
}

// Beside requests that answer, whose steps have other outputs.
TEST(Scorer, ARequestForScoresSharesStepsWithAnswers) {
  FakeExecutor executor({.rows = 3, .tokens = 16, .pages = 6});
  Scheduler scheduler(executor, {.prefix_cache = true});
  const auto texts = many_texts(9);
  std::vector<Told> told(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    Request r = request_of(texts[i], told[i]);
    if (i % 3 == 0) r.score_from.reset();
    r.sampling.max_new_tokens = 60;
    r.sampling.ignore_eos = true;
    ASSERT_TRUE(scheduler.add(std::move(r)).is_ok());
  }
  while (!scheduler.idle()) {
    scheduler.step();
    EXPECT_TRUE(scheduler.check_integrity().is_ok());
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i % 3 != 0) {
      expect_scores(told[i], texts[i]);
      continue;
    }
    EXPECT_EQ(told[i].result.completion_tokens, 60);
    EXPECT_TRUE(told[i].log_p.empty());
  }
}

TEST(Scorer, WhatAPreemptedRequestReadsAgainIsNotScoredAgain) {
  FakeExecutor executor({.rows = 1, .tokens = 16, .pages = 6});
  Scheduler scheduler(executor, {.prefix_cache = true, .preemption_threshold = 0});
  const TextToScore text{count_up(40, 3), 10};
  Told scored, answered;
  ASSERT_TRUE(scheduler.add(request_of(text, scored)).is_ok());
  for (int i = 0; i < 5; ++i) scheduler.step();
  const size_t before = scored.log_p.size();
  EXPECT_GT(before, 0u);
  Request urgent = request_of(text, answered);
  urgent.score_from.reset();
  urgent.priority = 5;
  urgent.sampling.max_new_tokens = 3;
  urgent.sampling.ignore_eos = true;
  ASSERT_TRUE(scheduler.add(std::move(urgent)).is_ok());
  while (!scheduler.idle()) scheduler.step();
  EXPECT_EQ(answered.result.completion_tokens, 3);
  EXPECT_EQ(scored.result.preemptions, 1);
  EXPECT_LT(before, scored.log_p.size());
  expect_scores(scored, text);
}

}  // namespace
}  // namespace reprise::sched::scorer_test
