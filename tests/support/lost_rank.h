// A world that ends while a draft is made: requests end with its reason, and so do the other ranks.
#pragma once

#include <gtest/gtest.h>

#include "engine/local_world.h"
#include "sched/model_drafter.h"
#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/executor_proxy.h"

namespace reprise::testing_support {

// Of what drafts. Another rank is lost behind the submission of step `at`.
class LosesARank final : public ExecutorProxy {
 public:
  LosesARank(engine::Executor& drafts, ranks::Member& member, int at)
      : ExecutorProxy(drafts), member_(member), at_(at) {}
  Result<engine::Ticket> submit(std::span<const engine::StepItem> items, engine::StepOutput output) override {
    auto ticket = ExecutorProxy::submit(items, output);
    if (++steps == at_) member_.abort("rank 1 ended: signal 9");
    return ticket;
  }
  int steps = 0;

 private:
  ranks::Member& member_;
  int at_;
};

// In each of the first steps of what drafts: those that read the text, and rounds.
inline void expect_end_in_a_draft(engine::LocalWorld& world, int at) {
  engine::Engine& front = world.front();
  LosesARank drafts(*front.draft(), *front.options().member, at);
  sched::SchedulerOptions o;
  o.speculation.adaptive = false;
  o.speculation.draft_tokens = 4;
  o.drafter = [&] {
    return std::make_unique<sched::ModelDrafter>(drafts, sched::ModelDrafterOptions{.most_drafts = 3});
  };
  sched::Scheduler scheduler(front, o);
  sched::Asked a = sched::ask(sched::count_up(6), 40);
  a.request.sampling.ignore_eos = true;
  ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  for (int step = 0; step < 60 && !scheduler.idle(); ++step) scheduler.step();
  // A round that was submitted ahead may have failed at once.
  EXPECT_TRUE(drafts.steps == at || drafts.steps == at + 1) << drafts.steps;
  ASSERT_TRUE(a.answer->result.has_value());
  const Status& status = a.answer->result->status;
  EXPECT_EQ(status.code(), Code::DeviceLost) << status.message();
  EXPECT_NE(status.message().find("rank 1 ended: signal 9"), std::string::npos) << status.message();
  for (const Status& end : world.stop()) EXPECT_FALSE(end.is_ok());
}

}  // namespace reprise::testing_support
