// The scheduler on real engines. On a device that runs by itself (Ascend's simulator) new requests are admitted within
// a step, before its results are read; on the CPU they are not. The answers are those of each request alone on both.
#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/tiny_models.h"

namespace reprise::sched::device_test {
namespace {

struct BesideSteps final : Observer {
  void stepped(const StepRecord& step) override {
    ++steps;
    beside += step.beside_s > 0;
  }
  int64_t steps = 0, beside = 0;
};

class SchedulerOnDevice : public testing::TestWithParam<DeviceKind> {};

TEST_P(SchedulerOnDevice, AnswersAsEachRequestWouldAlone) {
  const bool own = GetParam() != DeviceKind::Cpu;
  auto engine = testing_support::open_engine(
      testing_support::tiny_model_path("llama_gqa3_tied"),
      {.dtype = DType::BF16, .device = GetParam(), .rows = 4, .context = 256, .total_tokens = 8 * 128});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const auto prompt_of = [&](int64_t i) { return count_up(3 + i * 29 % 150, static_cast<int32_t>(i)); };
  const auto asked = [&](int64_t i) {
    Asked a = ask(prompt_of(i), 9);
    a.request.sampling.ignore_eos = true;
    return a;
  };
  constexpr int64_t kRequests = 7;
  std::vector<Tokens> alone;
  for (int64_t i = 0; i < kRequests; ++i) {
    Scheduler one(**engine, {.prefix_cache = false});
    Asked a = asked(i);
    ASSERT_TRUE(one.add(std::move(a.request)).is_ok());
    while (!one.idle()) one.step();
    ASSERT_TRUE(a.answer->result->status.is_ok()) << a.answer->result->status.message();
    alone.push_back(a.answer->tokens);
  }

  BesideSteps seen;
  std::vector<std::shared_ptr<Answer>> answers;
  Scheduler scheduler(**engine, {}, &seen);
  while (answers.size() < kRequests || !scheduler.idle()) {
    if (answers.size() < kRequests) {
      Asked a = asked(static_cast<int64_t>(answers.size()));
      answers.push_back(a.answer);
      ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    }
    scheduler.step();
    ASSERT_TRUE(scheduler.check_integrity().is_ok());
  }
  for (size_t i = 0; i < kRequests; ++i) EXPECT_EQ(answers[i]->tokens, alone[i]) << "request " << i;
  EXPECT_EQ(seen.beside, own ? seen.steps : 0);
}

INSTANTIATE_TEST_SUITE_P(, SchedulerOnDevice, testing::Values(DeviceKind::Cpu, DeviceKind::Ascend),
                         [](const auto& p) { return std::string(p.param == DeviceKind::Cpu ? "Cpu" : "Ascend"); });

}  // namespace
}  // namespace reprise::sched::device_test
