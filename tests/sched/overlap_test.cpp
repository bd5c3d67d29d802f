// The next batch is formed, staged and submitted while the current one runs; its tokens are those of the steps taken
// one by one. On the fake executor, on a device that does all work as late as it may, and on Ascend's simulator, whose
// clock shows what is gained.
#include <gtest/gtest.h>

#include <map>

#include "engine/local_world.h"
#include "sched/scheduler_fixture.h"
#include "support/ascend_engine.h"
#include "support/computing_platforms.h"
#include "support/executor_proxy.h"
#include "support/tiny_models.h"

namespace reprise::sched::overlap_test {
namespace {

using engine::Engine;
using engine::StepItem;
using engine::StepOutput;
using testing_support::ComputingPlatform;

struct Overlap : SchedulerTest {
  void make_beside(FakeExecutor::Limits limits, SchedulerOptions options = {}) {
    make(limits, options);
    executor->runs_beside = true;
  }
};

TEST_F(Overlap, TwoStepsAreInFlightAndTheTokensAreThoseOfOne) {
  for (const bool overlap : {true, false}) {
    make_beside({4, 64, 40, 1000}, {.overlap = overlap});
    auto a = add(forever(count_up(5), 9));
    auto b = add(forever(count_up(150, 3), 12));  // three chunks
    auto c = add(forever(count_up(126, 4), 7));   // over the border of a page
    run_out();
    EXPECT_EQ(executor->most_in_flight, overlap ? 2 : 1);
    EXPECT_EQ(a->tokens, expected(count_up(5), 9, true));
    EXPECT_EQ(b->tokens, expected(count_up(150, 3), 12, true));
    EXPECT_EQ(c->tokens, expected(count_up(126, 4), 7, true));
  }
}

TEST_F(Overlap, ALastTokenByLengthIsNotFollowedByARow) {
  make_beside({4, 64, 40, 1000});
  auto a = add(forever(count_up(5), 6));
  run_out();
  EXPECT_EQ(a->tokens.size(), 6u);
  EXPECT_EQ(executor->steps, 6);
}

// Whether the token ends the answer is known a step late; the row that was computed meanwhile is nobody's.
TEST_F(Overlap, AnAnswerThatEndsByItselfCostsOneRowAndLeavesNoTrace) {
  for (const bool by_sink : {true, false}) {
    make_beside({4, 64, 6, 1000});
    Tokens prompt = count_up(5);
    Tokens alone = expected(prompt, 40, by_sink);
    for (int32_t start = 0; !by_sink && alone.size() >= 40; ++start)
      alone = expected(prompt = count_up(5, start), 40, false);
    Asked asked = by_sink ? forever(prompt, 40) : ask(prompt, 40);
    asked.answer->stop_after = by_sink ? 4 : -1;
    auto a = add(std::move(asked));
    auto b = add(forever(count_up(9, 2), 50));
    run_out();
    const size_t n = by_sink ? 4 : alone.size();
    EXPECT_EQ(a->tokens, Tokens(alone.begin(), alone.begin() + static_cast<ptrdiff_t>(n)));
    EXPECT_EQ(a->result->finish, FinishReason::Stop);
    EXPECT_EQ(b->tokens, expected(count_up(9, 2), 50, true));
    // What it left in the cache is right: whoever continues it gets the same tokens.
    Tokens longer = prompt;
    longer.insert(longer.end(), a->tokens.begin(), a->tokens.end());
    longer.push_back(3);
    auto next = add(forever(longer, 5));
    run_out();
    EXPECT_EQ(next->tokens, expected(longer, 5, true));
    scheduler->flush_cache();
    EXPECT_EQ(executor->kv_pool().free_pages(), 6);
  }
}

// The host draws its token, so the step after it waits.
TEST_F(Overlap, SampledRowsAreDrawnBeforeTheNextBatch) {
  make_beside({4, 64, 40, 1000});
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

TEST_F(Overlap, CancelledWhileItsNextRowRuns) {
  make_beside({4, 64, 6, 1000});
  auto a = add(forever(count_up(5), 100));
  const RequestId id = last_id;
  auto b = add(forever(count_up(9, 2), 30));
  for (int i = 0; i < 5; ++i) step();
  scheduler->cancel(id);
  step();
  ASSERT_TRUE(a->result.has_value());
  EXPECT_EQ(a->result->finish, FinishReason::Cancelled);
  auto c = add(forever(count_up(130, 1), 9));  // takes its pages at once
  run_out();
  EXPECT_EQ(b->tokens, expected(count_up(9, 2), 30, true));
  EXPECT_EQ(c->tokens, expected(count_up(130, 1), 9, true));
}

TEST_F(Overlap, AFailedStepEndsItsRequestsAlone) {
  make_beside({4, 64, 20, 1000});
  executor->fail_at = 4;
  auto a = add(forever(count_up(10), 20));
  for (int i = 0; i < 4; ++i) step();
  auto b = add(forever(count_up(30, 3), 20));  // is first in the step after the one that fails
  run_out();
  EXPECT_EQ(a->result->status.code(), Code::Device);
  EXPECT_EQ(b->tokens, expected(count_up(30, 3), 20, true));
  EXPECT_EQ(scheduler->stats().failed_steps, 1u);
}

TEST_F(Overlap, ALostDeviceEndsAll) {
  make_beside({4, 64, 20, 1000});
  executor->fail_at = 5;
  executor->fail_code = Code::DeviceLost;
  auto a = add(forever(count_up(10), 20));
  auto b = add(forever(count_up(30, 3), 20));
  scheduler->run();  // returns by itself
  for (const auto& one : {a, b}) {
    ASSERT_TRUE(one->result.has_value());
    EXPECT_EQ(one->times_finished, 1);
    EXPECT_EQ(one->result->status.code(), Code::DeviceLost);
  }
  EXPECT_TRUE(scheduler->check_integrity().is_ok());
}

TEST_F(Overlap, PostedWorkFindsTheExecutorIdle) {
  make_beside({4, 64, 20, 1000});
  auto a = add(forever(count_up(10), 20));
  for (int i = 0; i < 3; ++i) step();
  int64_t in_flight = -1;
  scheduler->post([&] { in_flight = executor->in_flight(); });
  step();
  EXPECT_EQ(in_flight, 0);
  run_out();
  EXPECT_EQ(a->tokens, expected(count_up(10), 20, true));
}

// Notes what was in flight when a step was submitted, and how long the device had nothing to do before it.
class Watched final : public testing_support::ExecutorProxy {
 public:
  Watched(Engine& inner, const std::vector<uint32_t>& launched) : ExecutorProxy(inner), launched_(launched) {}
  Result<engine::Ticket> submit(std::span<const StepItem> items, StepOutput output) override {
    const size_t before = launched_.size();
    auto ticket = ExecutorProxy::submit(items, output);
    if (launched_.size() == before) ++idle_submits;
    ++submits;
    const bool behind = in_flight++ > 0;
    ahead += behind;
    if (ticket) steps[*ticket] = {.behind = behind};
    return ticket;
  }
  Result<engine::StepResult> wait(engine::Ticket ticket) override {
    --in_flight;
    auto result = ExecutorProxy::wait(ticket);
    if (result) steps[ticket].gap_us = result->gap_us;
    return result;
  }

  int64_t submits = 0, ahead = 0, in_flight = 0;
  int64_t idle_submits = 0;  // during which the device launched nothing
  struct Step {
    bool behind = false;  // submitted while another one was in flight
    std::optional<double> gap_us = {};
  };
  std::map<engine::Ticket, Step> steps;
  double gaps_us() const {
    double sum = 0;
    for (const auto& [ticket, step] : steps) sum += step.gap_us.value_or(0);
    return sum;
  }

 private:
  const std::vector<uint32_t>& launched_;
};

struct Mode {
  engine::GraphPolicy policy;
  GraphMode decode;
};

// Every step but the first of an engine has a gap behind the step before, on a device that tells times; none is
// negative.
void expect_gaps(const Watched& watched, bool told) {
  for (const auto& [ticket, step] : watched.steps) {
    EXPECT_EQ(step.gap_us.has_value(), told && ticket > 1) << ticket;
    EXPECT_GE(step.gap_us.value_or(0), 0) << ticket;
  }
}

// On the simulator's clock, where what the host does takes its time and a captured step waits in the device's queue for
// the one before: a step that was submitted behind another follows it at once, and every other one leaves a gap.
void expect_no_gaps_behind(const Watched& watched) {
  for (const auto& [ticket, step] : watched.steps) {
    if (!step.gap_us) continue;
    if (step.behind)
      EXPECT_EQ(*step.gap_us, 0) << ticket;
    else
      EXPECT_GT(*step.gap_us, 0) << ticket;
  }
}

class OverlapOnDevice : public testing::TestWithParam<ComputingPlatform> {
 protected:
  Result<std::unique_ptr<Engine>> open(const Mode& mode, const std::string& model) {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path(model);
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
    taken_.launched = &launched_;
    ASSIGN_OR_RETURN(Platform p, testing_support::make_computing_platform(GetParam(), taken_));
    return Engine::create(o, std::move(p));
  }

  static constexpr int64_t kRequests = 6;
  struct Outcome {
    std::vector<Tokens> tokens;
    double clock_us = 0;
  };
  // Requests that come one by one; some begin alike, one is sampled in the middle.
  Outcome serve(Engine& e, Watched& watched, bool overlap, bool sampled) {
    Outcome out;
    Scheduler scheduler(watched, {.overlap = overlap});
    std::vector<std::shared_ptr<Answer>> answers;
    const double begin = e.device().clock_us().value_or(0);
    while (answers.size() < kRequests || !scheduler.idle()) {
      if (answers.size() < kRequests) {
        const auto i = static_cast<int64_t>(answers.size());
        Asked a = forever(count_up(3 + i * 29 % 150, static_cast<int32_t>(i % 3)), 12);
        if (sampled && i == 3) {
          a.request.sampling.temperature = 0.7;
          a.request.sampling.seed = 11;
        }
        answers.push_back(a.answer);
        EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
      }
      scheduler.step();
      const Status whole = scheduler.check_integrity();
      EXPECT_TRUE(whole.is_ok()) << whole.message();
    }
    out.clock_us = e.device().clock_us().value_or(0) - begin;
    for (auto& a : answers) {
      EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
      out.tokens.push_back(a->tokens);
    }
    return out;
  }

  testing_support::Taken taken_;
  std::vector<uint32_t> launched_;
};

TEST_P(OverlapOnDevice, TokensAreThoseOfStepsOneByOne) {
  const bool overlaps = GetParam() != ComputingPlatform::Cpu;
  for (const char* model : {"qwen3_tied", "qwen3_moe_norm"}) {
    if (GetParam() == ComputingPlatform::Remote && std::string(model) != "qwen3_tied") continue;  // plain kernels
    std::vector<Tokens> first[2];
    for (const Mode mode :
         {Mode{engine::GraphPolicy::Off, GraphMode::Eager}, Mode{engine::GraphPolicy::Auto, GraphMode::Whole},
          Mode{engine::GraphPolicy::Auto, GraphMode::Piecewise}}) {
      SCOPED_TRACE(fmt::format("{} {}", model, graph_mode_name(mode.decode)));
      auto e = open(mode, model);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      ASSERT_EQ((*e)->overlaps(), overlaps);
      EXPECT_EQ((*e)->has_sampled_steps(), GetParam() != ComputingPlatform::Ascend);
      for (const bool sampled : {false, true}) {
        Watched one_by_one(**e, launched_), ahead(**e, launched_);
        const Outcome expected = serve(**e, one_by_one, false, sampled);
        const Outcome got = serve(**e, ahead, true, sampled);
        EXPECT_EQ(got.tokens, expected.tokens);
        if (first[sampled].empty()) first[sampled] = expected.tokens;
        EXPECT_EQ(expected.tokens, first[sampled]);
        EXPECT_EQ(one_by_one.ahead, 0);
        // The host's clock tells of steps that are over when they were submitted; between marks the device's must.
        for (const Watched* w : {&one_by_one, &ahead}) {
          expect_gaps(*w, GetParam() != ComputingPlatform::Remote);
          if (GetParam() == ComputingPlatform::Ascend && mode.policy != engine::GraphPolicy::Off)
            expect_no_gaps_behind(*w);
        }
        if (!overlaps) {
          EXPECT_EQ(ahead.ahead, 0);
          continue;
        }
        const bool host_draws = sampled && !(*e)->has_sampled_steps();
        EXPECT_GT(ahead.ahead, ahead.submits / (host_draws ? 3 : 2)) << "of " << ahead.submits;
        if (GetParam() == ComputingPlatform::Remote) {
          EXPECT_EQ(ahead.idle_submits, ahead.submits) << "a batch is staged before anything of it, or before it, runs";
        } else if (!sampled) {
          EXPECT_LT(got.clock_us, 0.95 * expected.clock_us);
          EXPECT_LT(ahead.gaps_us(), one_by_one.gaps_us());
          EXPECT_LT(one_by_one.gaps_us(), expected.clock_us) << "they are a part of the time";
        }
      }
    }
  }
}

class OverlapOverRanks : public OverlapOnDevice {
 protected:
  // Cards of the simulator; 1: without ranks.
  static Result<std::unique_ptr<Engine>> open_card(GraphMode decode, std::shared_ptr<ranks::Member> member) {
    testing_support::AscendOptions o{.decode_sizes = {2, 4}, .prefill_sizes = {32, 64}, .context = 256};
    o.decode = decode;
    o.policy = decode == GraphMode::Eager ? engine::GraphPolicy::Off : engine::GraphPolicy::Auto;
    o.member = std::move(member);
    return testing_support::open_ascend(testing_support::tiny_model_path("qwen3_tied"), o);
  }
  static Result<std::unique_ptr<engine::LocalWorld>> open_cards(GraphMode decode, int cards) {
    return engine::LocalWorld::start(
        cards, [=](std::shared_ptr<ranks::Member> member) { return open_card(decode, std::move(member)); });
  }
};

// Followers have the inputs of the next step while they compute one, and its tokens from their own result.
TEST_P(OverlapOverRanks, TokensAreThoseOfOneCard) {
  for (const GraphMode decode : {GraphMode::Whole, GraphMode::Piecewise, GraphMode::Eager}) {
    SCOPED_TRACE(graph_mode_name(decode));
    auto alone = open_card(decode, nullptr);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    auto world = open_cards(decode, 2);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    Engine& front = (*world)->front();
    ASSERT_TRUE(front.overlaps());
    for (const bool sampled : {false, true}) {
      Watched one(**alone, launched_), one_by_one(front, launched_), ahead(front, launched_);
      const Outcome expected = serve(**alone, one, true, sampled);
      const Outcome single = serve(front, one_by_one, false, sampled), got = serve(front, ahead, true, sampled);
      EXPECT_EQ(single.tokens, expected.tokens);
      EXPECT_EQ(got.tokens, expected.tokens);
      EXPECT_EQ(one_by_one.ahead, 0);
      EXPECT_GT(ahead.ahead, ahead.submits / (sampled ? 3 : 2)) << "of " << ahead.submits;
      if (!sampled) EXPECT_LT(got.clock_us, single.clock_us);
    }
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

// With steps in flight, a world that ends fails the requests, and all ranks end.
TEST_P(OverlapOverRanks, AWorldThatEndsFailsWhatIsInFlight) {
  auto world = open_cards(GraphMode::Whole, 2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  Engine& front = (*world)->front();
  Scheduler scheduler(front, {});
  Asked a = forever(count_up(5), 100);
  ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  for (int step = 0; step < 6; ++step) scheduler.step();
  EXPECT_GT(a.answer->tokens.size(), 2u);
  front.options().member->abort("rank 1 ended: signal 9");
  for (int step = 0; step < 50 && !scheduler.idle(); ++step) scheduler.step();
  ASSERT_TRUE(a.answer->result.has_value());
  EXPECT_EQ(a.answer->result->status.code(), Code::DeviceLost) << a.answer->result->status.message();
  EXPECT_NE(a.answer->result->status.message().find("rank 1 ended: signal 9"), std::string::npos)
      << a.answer->result->status.message();
  const std::vector<Status> ends = (*world)->stop();
  EXPECT_FALSE(ends.back().is_ok());
}

INSTANTIATE_TEST_SUITE_P(, OverlapOverRanks, testing::Values(ComputingPlatform::Ascend),
                         testing_support::computing_platform_name);

class OverlapOnFailingDevice : public OverlapOnDevice {};

// The step after it was to read its tokens. Both are computed again, and nothing shows but the size that is taken out
// of service.
TEST_P(OverlapOnFailingDevice, AFailedReplayIsComputedAgainAndSoIsTheStepBehindIt) {
  const Mode whole{engine::GraphPolicy::Auto, GraphMode::Whole};
  auto good = open(whole, "qwen3_tied");
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  Watched watched(**good, launched_);
  const int64_t opened = taken_.ran;
  const Outcome expected = serve(**good, watched, true, false);
  const int64_t all = taken_.ran - opened;
  int64_t recovered = 0;
  for (int64_t at = all / 4; at < all; at += all / 7) {
    SCOPED_TRACE(at);
    auto e = open(whole, "qwen3_tied");
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    Watched ahead(**e, launched_);
    taken_.fail_at = taken_.ran + at;
    const Outcome got = serve(**e, ahead, true, false);
    EXPECT_EQ(got.tokens, expected.tokens);
    recovered += static_cast<int64_t>((*e)->runner("decode")->quarantined().size() +
                                      (*e)->runner("prefill")->quarantined().size());
  }
  EXPECT_GT(recovered, 3);
}

// Where graphs are required nothing is computed again. The device tells of the failure when its stream is waited for,
// and the error of the request says which replay that was.
TEST_P(OverlapOnFailingDevice, ARequiredReplayThatFailsIsNamed) {
  for (const int64_t decode_steps : {0, 3}) {
    auto e = open({engine::GraphPolicy::Required, GraphMode::Whole}, "qwen3_tied");
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    Scheduler scheduler(**e, {.log_failures = false});
    Asked a = forever(count_up(5), 9);
    ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    while (static_cast<int64_t>(a.answer->tokens.size()) < decode_steps) scheduler.step();
    taken_.fail_at = taken_.ran + 1;
    while (!scheduler.idle()) scheduler.step();
    ASSERT_TRUE(a.answer->result.has_value());
    EXPECT_EQ(a.answer->result->status.message(),
              fmt::format("{}: launch {} has failed", decode_steps == 0 ? "prefill, size 32" : "decode, size 2",
                          taken_.fail_at));
  }
}

INSTANTIATE_TEST_SUITE_P(, OverlapOnFailingDevice, testing::Values(ComputingPlatform::Remote),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, OverlapOnDevice, testing_support::kComputingPlatforms,
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::overlap_test
