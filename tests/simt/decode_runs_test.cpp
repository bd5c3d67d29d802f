// Runs of decode steps on the CUDA device: steps that are submitted together take their tokens from each other on the
// device, and give what steps one by one give. On the executor that stands in for a GPU.
#include <gtest/gtest.h>

#include "backends/all.h"
#include "engine/local_world.h"
#include "sched/scheduler.h"
#include "simt/kernels.h"
#include "support/answers.h"
#include "support/tiny_models.h"

namespace reprise::simt::decode_runs_test {
namespace {

Result<std::unique_ptr<engine::Engine>> open(int64_t steps, engine::GraphPolicy policy,
                                             std::shared_ptr<ranks::Member> member = nullptr) {
  DeviceOptions device;
  device.kind = DeviceKind::Cuda;
  device.cuda_stand_in = &stand_in();
  device.member = member;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("llama_gqa3_tied");
  o.dtype = DType::BF16;
  o.context_length = 160;
  o.chunked_prefill_size = 16;
  o.max_running_requests = 3;
  o.max_total_tokens = 5 * kv::kPageTokens;
  o.graph.policy = policy;
  o.graph.decode_sizes = {3};
  o.graph.prefill_sizes = {16};
  o.steps_ahead = steps;
  o.member = std::move(member);
  return engine::Engine::create(o, std::move(platform));
}

struct Outcome {
  std::vector<sched::Tokens> answers;
  sched::SchedulerStats stats;
};

// Of other lengths than runs have; one is drawn, and one ended by its sink.
Outcome answer(engine::Engine& e) {
  sched::Scheduler scheduler(e, {});
  std::vector<std::shared_ptr<sched::Answer>> answers;
  for (int32_t i = 0; i < 3; ++i) {
    sched::Asked a = sched::ask(sched::count_up(5 + 6 * i, i), 13 - i);
    a.request.sampling.ignore_eos = true;
    if (i == 1) a.request.sampling.temperature = 0.7, a.request.sampling.seed = 3;
    if (i == 2) a.answer->stop_after = 6;
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  while (!scheduler.idle()) scheduler.step();
  Outcome out{{}, scheduler.stats()};
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(a->tokens);
  }
  return out;
}

TEST(CudaDecodeRuns, AnswersAreThoseOfStepsOneByOne) {
  for (const engine::GraphPolicy policy : {engine::GraphPolicy::Required, engine::GraphPolicy::Off}) {
    SCOPED_TRACE(policy == engine::GraphPolicy::Off ? "eager" : "captured");
    auto one = open(1, policy), runs = open(4, policy);
    ASSERT_TRUE(one.is_ok() && runs.is_ok()) << one.status().message() << runs.status().message();
    const Outcome expected = answer(**one), got = answer(**runs);
    EXPECT_EQ(expected.answers[2].size(), 6u);
    EXPECT_EQ(got.answers, expected.answers);
    EXPECT_EQ(expected.stats.decode_runs, 0u);
    EXPECT_EQ(got.stats.decode_steps, 4);
    EXPECT_GE(got.stats.decode_runs, 2u);
    EXPECT_GT(got.stats.decode_run_steps, 2 * got.stats.decode_runs);
  }
}

// Over ranks the next step is submitted while the one before runs, too; followers have its tokens on their own device.
TEST(CudaStepsAhead, OverRanksGiveTheAnswersOfOne) {
  auto one = open(1, engine::GraphPolicy::Required);
  ASSERT_TRUE(one.is_ok()) << one.status().message();
  const Outcome expected = answer(**one);
  auto world = engine::LocalWorld::start(2, [](std::shared_ptr<ranks::Member> member) {
    return open(4, engine::GraphPolicy::Required, std::move(member));
  });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  EXPECT_TRUE((*world)->front().overlaps());
  EXPECT_EQ(answer((*world)->front()).answers, expected.answers);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

}  // namespace
}  // namespace reprise::simt::decode_runs_test
