// Runs of decode steps: several steps are submitted at once and take their tokens from each other on the device. What
// is answered is what steps one by one answer, also where answers end early, are cancelled, or find no pages. On the
// fake executor, on a device that does all work as late as it may, and on Ascend's simulator, whose clock shows what is
// gained.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/hooks.h"
#include "sched/scheduler_fixture.h"
#include "support/computing_platforms.h"
#include "support/executor_proxy.h"
#include "support/tiny_models.h"

namespace reprise::sched::decode_runs_test {
namespace {

using engine::Engine;
using testing_support::ComputingPlatform;

struct DecodeRuns : SchedulerTest {
  void make_runs(int64_t steps, FakeExecutor::Limits limits, SchedulerOptions options = {}) {
    make(limits, options);
    executor->runs_beside = true;
    executor->in_flight_limit = 1 + steps;
  }
  uint64_t stops(RunStop why) const { return scheduler->stats().run_stops[static_cast<size_t>(why)]; }
};

TEST_F(DecodeRuns, TokensAreThoseOfStepsOneByOne) {
  for (const bool overlap : {true, false}) {
    make_runs(4, {4, 64, 40, 1000}, {.overlap = overlap});
    auto a = add(forever(count_up(5), 19));
    auto b = add(forever(count_up(50, 3), 30));
    auto c = add(forever(count_up(120, 4), 23));  // over the border of a page, in the middle of a run
    run_out();
    EXPECT_EQ(executor->most_in_flight, overlap ? 5 : 4);
    EXPECT_EQ(a->tokens, expected(count_up(5), 19, true));
    EXPECT_EQ(b->tokens, expected(count_up(50, 3), 30, true));
    EXPECT_EQ(c->tokens, expected(count_up(120, 4), 23, true));
    const SchedulerStats s = scheduler->stats();
    EXPECT_EQ(s.decode_steps, 4);
    EXPECT_GT(s.decode_runs, 5u);
    EXPECT_GT(s.decode_run_steps, 3 * s.decode_runs);
    EXPECT_EQ(s.rows_for_nothing, 0u) << "an end by length is known in advance";
    EXPECT_GT(stops(RunStop::Prompt) + stops(RunStop::Ended), 0u);
  }
}

// Whether a token ends the answer is known at the end of its run; what was computed behind it is nobody's.
TEST_F(DecodeRuns, AnAnswerThatEndsByItselfCostsTheRestOfItsRunAndLeavesNoTrace) {
  uint64_t for_nothing = 0;
  for (const bool by_sink : {true, false}) {
    make_runs(8, {4, 64, 8, 1000});
    Tokens prompt = count_up(122);  // the rest of its run begins a page
    Tokens alone = expected(prompt, 40, by_sink);
    for (int32_t start = 0; !by_sink && (alone.size() >= 40 || alone.size() < 3); ++start)
      alone = expected(prompt = count_up(122, start), 40, false);
    Asked asked = by_sink ? forever(prompt, 40) : ask(prompt, 40);
    asked.answer->stop_after = by_sink ? 4 : -1;
    auto a = add(std::move(asked));
    auto b = add(forever(count_up(9, 2), 50));
    run_out();
    const size_t n = by_sink ? 4 : alone.size();
    EXPECT_EQ(a->tokens, Tokens(alone.begin(), alone.begin() + static_cast<ptrdiff_t>(n)));
    EXPECT_EQ(a->result->finish, FinishReason::Stop);
    EXPECT_EQ(a->result->completion_tokens, static_cast<int64_t>(n));
    EXPECT_EQ(b->tokens, expected(count_up(9, 2), 50, true));
    for_nothing += scheduler->stats().rows_for_nothing;
    EXPECT_LT(scheduler->stats().rows_for_nothing, 9u);
    // What it left in the cache is right: whoever continues it gets the same tokens.
    Tokens longer = prompt;
    longer.insert(longer.end(), a->tokens.begin(), a->tokens.end());
    longer.push_back(3);
    auto next = add(forever(longer, 5));
    run_out();
    EXPECT_EQ(next->tokens, expected(longer, 5, true));
    scheduler->flush_cache();
    EXPECT_EQ(executor->kv_pool().free_pages(), 8);
  }
  EXPECT_GT(for_nothing, 2u);
}

TEST_F(DecodeRuns, WhoeverWaitsEndsThem) {
  make_runs(8, {2, 64, 40, 1000});
  auto a = add(forever(count_up(5), 60));
  auto b = add(forever(count_up(9, 2), 30));
  const RequestId second = last_id;
  for (int i = 0; i < 3; ++i) step();
  auto c = add(forever(count_up(7, 1), 20));  // no row is free for it
  step();
  const uint64_t steps = scheduler->stats().decode_run_steps;
  step();
  EXPECT_EQ(scheduler->stats().decode_run_steps, steps);
  EXPECT_GT(stops(RunStop::Waiting), 0u);
  scheduler->cancel(second);
  run_out();
  EXPECT_EQ(b->result->finish, FinishReason::Cancelled);
  EXPECT_EQ(a->tokens, expected(count_up(5), 60, true));
  EXPECT_EQ(c->tokens, expected(count_up(7, 1), 20, true));
  EXPECT_GT(scheduler->stats().decode_run_steps, steps) << "nobody waits any more";
}

TEST_F(DecodeRuns, PagesThatDoNotSufficeEndThemAndNobodyIsPreemptedForARun) {
  make_runs(8, {4, 64, 4, 1000}, {.prefix_cache = false});
  auto a = add(forever(count_up(120), 140));
  auto b = add(forever(count_up(122, 2), 160));
  run_out();
  EXPECT_EQ(a->tokens, expected(count_up(120), 140, true));
  EXPECT_EQ(b->tokens, expected(count_up(122, 2), 160, true));
  EXPECT_GT(stops(RunStop::Pages), 0u);
  EXPECT_GT(scheduler->stats().preemptions, 0u);
}

TEST_F(DecodeRuns, StepsWhoseTokensTheHostMustSeeAreOneByOne) {
  make_runs(4, {4, 64, 40, 1000});
  Asked drawn = forever(count_up(5), 9);
  drawn.request.sampling.temperature = 0.8;
  drawn.request.sampling.seed = 7;
  auto a = add(std::move(drawn));
  run_out();
  EXPECT_EQ(executor->most_in_flight, 1);
  make({4, 64, 40, 1000});
  Asked again = forever(count_up(5), 9);
  again.request.sampling.temperature = 0.8;
  again.request.sampling.seed = 7;
  auto b = add(std::move(again));
  run_out();
  EXPECT_EQ(a->tokens, b->tokens);
}

// One request is of the run that fails. Another one comes while that run is in flight, and is in the mail, or with
// overlap its prompt in a step behind the one that fails.
TEST_F(DecodeRuns, AFailedStepEndsItsRequestsAloneAndALostDeviceAll) {
  for (const Code code : {Code::Device, Code::DeviceLost})
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, overlap {}", code_name(code), overlap));
      make_runs(4, {4, 64, 20, 1000}, {.overlap = overlap, .log_failures = false});
      executor->fail_code = code;
      auto a = add(forever(count_up(10), 40));
      while (a->tokens.size() < 3) ASSERT_NO_FATAL_FAILURE(step());
      executor->fail_at = executor->steps + 2;  // in the middle of the next run
      std::shared_ptr<Answer> b;
      executor->during_step = [&] {
        if (!b && executor->steps > *executor->fail_at) b = add(forever(count_up(30, 3), 20));
      };
      for (int i = 0; i < 9 && !a->result; ++i) ASSERT_NO_FATAL_FAILURE(step());
      ASSERT_TRUE(a->result.has_value() && b);
      EXPECT_EQ(a->result->status.code(), code);
      EXPECT_EQ(a->times_finished, 1);
      if (code == Code::DeviceLost) {
        ASSERT_TRUE(b->result.has_value());
        EXPECT_EQ(b->result->status.code(), code);
        EXPECT_EQ(b->times_finished, 1);
        continue;
      }
      run_out();
      EXPECT_TRUE(b->result->status.is_ok()) << b->result->status.message();
      EXPECT_EQ(b->tokens, expected(count_up(30, 3), 20, true));
      EXPECT_EQ(scheduler->stats().failed_steps, 1u);
    }
}

// What a step wrote are not numbers, so every later step of its run gives none either. That is one failure, of the
// sequences of that run.
TEST_F(DecodeRuns, AFailureThatTheRestOfARunInheritsIsOne) {
  for (const bool overlap : {true, false}) {
    make_runs(6, {4, 64, 20, 1000}, {.overlap = overlap, .log_failures = false});
    auto a = add(forever(count_up(10), 60));
    auto b = add(forever(count_up(20, 4), 60));
    while (a->tokens.size() < 3) ASSERT_NO_FATAL_FAILURE(step());
    const int64_t in_run = executor->steps + 2;
    executor->spoil_at = in_run;
    for (int i = 0; i < 9 && !a->result; ++i) ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_TRUE(a->result.has_value() && b->result.has_value());
    for (const auto& one : {a, b}) EXPECT_EQ(one->result->status.code(), Code::Internal);
    EXPECT_GE(executor->steps, in_run + 2) << "the run had no steps behind it";
    run_out();
    EXPECT_EQ(scheduler->stats().failed_steps, 1u);
    // Its pages are written anew before anybody reads them.
    auto c = add(forever(count_up(30, 3), 40));
    run_out();
    EXPECT_EQ(c->tokens, expected(count_up(30, 3), 40, true));
    EXPECT_EQ(scheduler->stats().failed_steps, 1u);
  }
}

// NaN in the keys of one sequence: the step that meets it says so instead of giving a token that was chosen from NaN,
// which holds for what was submitted behind it as well. Tokens that were given before are right, of both.
TEST_F(DecodeRuns, NotANumberInOneSequenceGivesNoToken) {
  for (const size_t spoiled : {0, 1}) {
    SCOPED_TRACE(spoiled);
    make_runs(6, {4, 64, 20, 1000}, {.log_failures = false});
    auto a = add(forever(count_up(10), 60));
    auto b = add(forever(count_up(20, 4), 60));
    while (a->tokens.size() < 3) ASSERT_NO_FATAL_FAILURE(step());
    executor->spoil_at = executor->steps + 2;
    executor->spoil_item = spoiled;
    for (int i = 0; i < 9 && !a->result; ++i) ASSERT_NO_FATAL_FAILURE(step());
    run_out();
    for (const auto& one : {a, b}) {
      ASSERT_TRUE(one->result.has_value());
      EXPECT_EQ(one->times_finished, 1);
      EXPECT_EQ(one->result->status.code(), Code::Internal);
      EXPECT_LT(one->tokens.size(), 30u);
    }
    const auto right = [](const Tokens& got, const Tokens& prompt) {
      EXPECT_EQ(got, expected(prompt, static_cast<int64_t>(got.size()), true));
    };
    right(a->tokens, count_up(10));
    right(b->tokens, count_up(20, 4));
    EXPECT_EQ(scheduler->stats().failed_steps, 1u);
    scheduler->flush_cache();
    EXPECT_EQ(executor->kv_pool().free_pages(), 20);
  }
}

struct Mode {
  engine::GraphPolicy policy;
  GraphMode decode;
};

// Adds up what the device waited for between steps.
class Gaps final : public testing_support::ExecutorProxy {
 public:
  using ExecutorProxy::ExecutorProxy;
  Result<engine::StepResult> wait(engine::Ticket ticket) override {
    auto result = ExecutorProxy::wait(ticket);
    if (result && result->gap_us) us += *result->gap_us, ++steps;
    return result;
  }
  double us = 0, steps = 0;
};

class DecodeRunsOnDevice : public testing::TestWithParam<ComputingPlatform> {
 protected:
  Result<std::unique_ptr<Engine>> open(const Mode& mode, int64_t steps) {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("qwen3_tied");
    o.dtype = testing_support::dtype_of(GetParam());
    o.context_length = 256;
    o.max_running_requests = 4;
    o.chunked_prefill_size = 64;
    o.max_total_tokens = 10 * 128;
    o.graph.decode_sizes = {2, 4};
    o.graph.prefill_sizes = {32, 64};
    o.graph.policy = mode.policy;
    o.graph.decode = mode.decode;
    o.graph.choose_by_cost = false;
    o.steps_ahead = steps;
    o.graph.learned_dir = learned_dir_;
    ASSIGN_OR_RETURN(Platform p, testing_support::make_computing_platform(GetParam(), taken_));
    return Engine::create(o, std::move(p));
  }

  struct Outcome {
    std::vector<Tokens> tokens;
    std::vector<std::vector<SampledToken>> sampled;
    SchedulerStats stats;
  };
  // That the device waits between decode steps, on average.
  double gap_us(Engine& e, bool overlap) {
    Gaps executor(e);
    Scheduler scheduler(executor, {.prefix_cache = false, .overlap = overlap});
    std::vector<std::shared_ptr<Answer>> answers;
    for (int32_t i = 0; i < 2; ++i) {
      Asked a = forever(count_up(5, i), 42);
      answers.push_back(a.answer);
      EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    }
    while (answers[0]->tokens.size() < 2) scheduler.step();
    executor.us = 0, executor.steps = 0;
    while (!scheduler.idle()) scheduler.step();
    return executor.us / executor.steps;
  }

  // Two rounds of requests, with pages that are kept: each of the second goes on behind an answer of the first, or
  // behind the first half of its prompt.
  std::vector<Tokens> serve_twice(Engine& e, bool overlap, SchedulerStats& stats) {
    Scheduler scheduler(e, {.overlap = overlap});
    std::vector<Tokens> out;
    std::vector<Tokens> prompts;
    for (int32_t i = 0; i < 3; ++i) prompts.push_back(count_up(100 + 9 * i, i));
    for (int round = 0; round < 2; ++round) {
      std::vector<std::shared_ptr<Answer>> answers;
      for (size_t i = 0; i < prompts.size(); ++i) {
        Asked a = forever(prompts[i], 35);
        if (i == 1) a.answer->stop_after = 30;  // in the middle of a run, behind a border of pages
        answers.push_back(a.answer);
        EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
      }
      while (!scheduler.idle()) {
        scheduler.step();
        const Status whole = scheduler.check_integrity();
        EXPECT_TRUE(whole.is_ok()) << whole.message();
      }
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_TRUE(answers[i]->result->status.is_ok()) << answers[i]->result->status.message();
        out.push_back(answers[i]->tokens);
        if (i == 2) prompts[i].resize(60);
        prompts[i].insert(prompts[i].end(), answers[i]->tokens.begin(), answers[i]->tokens.end());
        prompts[i].push_back(3 + static_cast<int32_t>(i));
      }
    }
    stats = scheduler.stats();
    return out;
  }

  // Answers of several lengths, ended by their sinks, drawn and with log-probabilities; one is cancelled.
  Outcome serve(Engine& e, bool overlap) {
    Scheduler scheduler(e, {.prefix_cache = false, .overlap = overlap});
    std::vector<std::shared_ptr<Answer>> answers;
    RequestId cancelled = 0;
    for (int64_t i = 0; i < 5; ++i) {
      Asked a = forever(count_up(3 + i * 29 % 60, static_cast<int32_t>(i)), 18 + 3 * i);
      if (i == 1) a.answer->stop_after = 7;
      if (i == 2) {
        a.request.sampling.temperature = 0.7;
        a.request.sampling.seed = 11;
        a.request.sampling.logprobs = 2;
      }
      answers.push_back(a.answer);
      auto id = scheduler.add(std::move(a.request));
      EXPECT_TRUE(id.is_ok());
      if (i == 3) cancelled = *id;
    }
    while (!scheduler.idle()) {
      scheduler.step();
      const Status whole = scheduler.check_integrity();
      EXPECT_TRUE(whole.is_ok()) << whole.message();
      if (answers[3]->tokens.size() > 8) scheduler.cancel(cancelled);
    }
    Outcome out;
    out.stats = scheduler.stats();
    for (size_t i = 0; i < answers.size(); ++i) {
      // Where it was cancelled is a matter of when.
      if (i == 3) answers[i]->tokens.resize(8), answers[i]->sampled.resize(8);
      out.tokens.push_back(answers[i]->tokens);
      out.sampled.push_back(answers[i]->sampled);
    }
    return out;
  }

  testing_support::Taken taken_;
  std::string learned_dir_;
};

TEST_P(DecodeRunsOnDevice, AnswersAreThoseOfStepsOneByOne) {
  const bool beside = GetParam() != ComputingPlatform::Cpu;
  std::vector<Tokens> first;
  for (const Mode mode :
       {Mode{engine::GraphPolicy::Off, GraphMode::Eager}, Mode{engine::GraphPolicy::Auto, GraphMode::Whole},
        Mode{engine::GraphPolicy::Auto, GraphMode::Piecewise}}) {
    SCOPED_TRACE(graph_mode_name(mode.decode));
    auto e = open(mode, 4);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    auto one = open(mode, 1);
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    for (const bool overlap : {true, false}) {
      const Outcome expected = serve(**one, overlap), got = serve(**e, overlap);
      EXPECT_EQ(got.tokens, expected.tokens);
      if (first.empty()) first = got.tokens;
      EXPECT_EQ(got.tokens, first);
      for (size_t i = 0; i < got.sampled.size(); ++i)
        for (size_t k = 0; k < got.sampled[i].size(); ++k)
          EXPECT_EQ(got.sampled[i][k].logprob, expected.sampled[i][k].logprob) << i << " " << k;
      EXPECT_EQ(expected.stats.decode_runs, 0u);
      EXPECT_EQ(got.stats.decode_steps, beside ? 4 : 1);
      if (!beside) {
        EXPECT_EQ(got.stats.decode_runs, 0u);
        continue;
      }
      EXPECT_GT(got.stats.decode_run_steps, 2 * got.stats.decode_runs);
      EXPECT_GT(got.stats.decode_runs, 1u);
      if (GetParam() != ComputingPlatform::Ascend) continue;
      const double single = gap_us(**one, overlap), run = gap_us(**e, overlap);
      // Overlap hides what the host does behind a step that is long enough, and an eager one is as long as its
      // launches.
      if (overlap || mode.decode == GraphMode::Eager)
        EXPECT_LT(run, single + 2);
      else
        EXPECT_LT(run, 0.4 * single);
    }
  }
}

// What the steps of a run leave in pages is what others find there, also where the run went on behind an answer's end.
TEST_P(DecodeRunsOnDevice, PagesThatAreKeptAreThoseOfStepsOneByOne) {
  const Mode whole{engine::GraphPolicy::Auto, GraphMode::Whole};
  auto e = open(whole, 4), one = open(whole, 1);
  ASSERT_TRUE(e.is_ok() && one.is_ok()) << e.status().message() << one.status().message();
  for (const bool overlap : {true, false}) {
    SCOPED_TRACE(overlap);
    SchedulerStats single, runs;
    const auto expected = serve_twice(**one, overlap, single), got = serve_twice(**e, overlap, runs);
    EXPECT_EQ(got, expected);
    EXPECT_GE(runs.cached_tokens, 3u * 60);
    EXPECT_EQ(single.decode_runs, 0u);
    if (GetParam() != ComputingPlatform::Cpu) EXPECT_GT(runs.decode_runs, 10u);
  }
}

class DecodeRunsOnFailingDevice : public DecodeRunsOnDevice {};

// The steps behind it in its run have read what it left. All are computed again, and nothing shows but the size that is
// taken out of service.
TEST_P(DecodeRunsOnFailingDevice, AFailedReplayIsComputedAgainAndSoIsTheRestOfItsRun) {
  const Mode whole{engine::GraphPolicy::Auto, GraphMode::Whole};
  auto good = open(whole, 4);
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  const int64_t opened = taken_.ran;
  const Outcome expected = serve(**good, true);
  const int64_t all = taken_.ran - opened;
  size_t recovered = 0;
  for (int64_t at = all / 4; at < all; at += all / 7) {
    SCOPED_TRACE(at);
    auto e = open(whole, 4);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    taken_.fail_at = taken_.ran + at;
    const Outcome got = serve(**e, true);
    EXPECT_EQ(got.tokens, expected.tokens);
    recovered += (*e)->runner("decode")->quarantined().size() + (*e)->runner("prefill")->quarantined().size();
  }
  EXPECT_GT(recovered, 3u);
}

class DecodeRunsOnAscend : public DecodeRunsOnDevice {};

// Steps of runs are timed by the device's marks and others by the host's clock, which has the host's part besides. One
// file keeps both, and neither is taken for the other.
TEST_P(DecodeRunsOnAscend, TimesOfRunsAreLearnedApart) {
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("reprise-runs-{}", ::getpid());
  std::filesystem::remove_all(folder);
  learned_dir_ = folder.string();
  const auto replays = [](const Engine& e) {
    std::vector<std::pair<double, uint32_t>> out;
    for (const auto& entry : e.runner("decode")->costs().entries(engine::StepKind::Replay))
      out.emplace_back(entry.microseconds, entry.count);
    return out;
  };
  std::vector<std::pair<double, uint32_t>> learned[2], nothing(5);
  for (const int time : {0, 1})
    for (const int runs : {0, 1}) {
      SCOPED_TRACE(fmt::format("time {}, runs {}", time, runs));
      auto e = open({engine::GraphPolicy::Auto, GraphMode::Whole}, runs ? 4 : 1);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_EQ(replays(**e), time == 0 ? nothing : learned[runs]);
      (void)serve(**e, true);
      learned[runs] = replays(**e);
      for (const size_t size : {2, 4}) EXPECT_GT(learned[runs][size].second, 3u);
    }
  // By the simulator's clock a step takes as long as it takes; the host's is never less.
  for (const size_t size : {2, 4}) EXPECT_LT(learned[1][size].first, learned[0][size].first);
  std::filesystem::remove_all(folder);
}

class DecodeRunsWithoutTimes : public DecodeRunsOnDevice {};

// The device's marks carry no time, and the host's clock is none for steps of a run: nothing is learned, which is told
// once. Steps one by one have the host's.
TEST_P(DecodeRunsWithoutTimes, NothingIsLearnedAndThatIsTold) {
  for (const int64_t steps : {4, 1}) {
    SCOPED_TRACE(steps);
    std::vector<std::string> told;
    Hooks hooks;
    hooks.least = log::Level::Notice;
    hooks.log = [&](log::Level, std::string_view line) {
      if (line.find("no time between two marks") != std::string_view::npos) told.emplace_back(line);
    };
    const HookScope scope(&hooks);
    auto e = open({engine::GraphPolicy::Auto, GraphMode::Whole}, steps);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    (void)serve(**e, true);
    EXPECT_EQ(told.size(), steps > 1 ? 1u : 0u);
    uint32_t learned = 0;
    for (const auto& entry : (*e)->runner("decode")->costs().entries(engine::StepKind::Replay)) learned += entry.count;
    EXPECT_EQ(learned > 0, steps == 1);
  }
}

INSTANTIATE_TEST_SUITE_P(, DecodeRunsWithoutTimes, testing::Values(ComputingPlatform::Remote),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, DecodeRunsOnAscend, testing::Values(ComputingPlatform::Ascend),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, DecodeRunsOnFailingDevice, testing::Values(ComputingPlatform::Remote),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, DecodeRunsOnDevice, testing_support::kComputingPlatforms,
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::decode_runs_test
