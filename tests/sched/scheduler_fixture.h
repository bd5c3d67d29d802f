// SchedulerTest: a scheduler over the fake executor, stepped by hand, with its integrity checked after every step.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "sched/scheduler.h"
#include "support/answers.h"

namespace reprise::sched {

struct SchedulerTest : testing::Test {
  void make(FakeExecutor::Limits limits, SchedulerOptions options = {}) {
    scheduler.reset();
    executor = std::make_unique<FakeExecutor>(limits);
    options.eos_tokens = {FakeExecutor::kEos};
    scheduler = std::make_unique<Scheduler>(*executor, options);
  }
  std::shared_ptr<Answer> add(Asked asked) {
    auto id = scheduler->add(std::move(asked.request));
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    last_id = id.is_ok() ? *id : 0;
    return asked.answer;
  }
  void step() {
    scheduler->step();
    const Status ok = scheduler->check_integrity();
    ASSERT_TRUE(ok.is_ok()) << ok.message();
  }
  void run_out() {
    for (int i = 0; !scheduler->idle(); ++i) {
      ASSERT_LT(i, 10000) << "it does not come to an end";
      ASSERT_NO_FATAL_FAILURE(step());
    }
  }
  std::unique_ptr<FakeExecutor> executor;
  std::unique_ptr<Scheduler> scheduler;
  RequestId last_id = 0;
};

inline Asked forever(Tokens prompt, int64_t most = 8) {
  Asked a = ask(std::move(prompt), most);
  a.request.sampling.ignore_eos = true;
  return a;
}

}  // namespace reprise::sched
