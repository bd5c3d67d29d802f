// Requests of a model whose sequences have states: chunks beside decode rows, preemption and recomputation, equal
// prompts, two steps in flight, and failures that compute steps again. Every token is the one that the model gives to a
// sequence read anew, which reads no state.
#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/computing_platforms.h"
#include "support/state_model.h"
#include "support/tiny_models.h"

namespace reprise::sched::states_test {
namespace {

using engine::Engine;
using testing_support::ComputingPlatform;

struct Case {
  Tokens prompt;
  int64_t most;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {count_up(120), 14}, {count_up(9, 3), 12}, {count_up(118, 5), 13}, {count_up(9, 3), 12}, {count_up(40, 9), 15}};
  return all;
}

class States : public testing::TestWithParam<ComputingPlatform> {
 protected:
  Result<std::unique_ptr<Engine>> open(bool eager = false) {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("qwen3_tied");
    o.families = {&testing_support::state_model()};
    o.dtype = DType::F32;
    o.context_length = 256;
    o.max_running_requests = 4;
    o.chunked_prefill_size = eager ? 256 : 48;
    o.max_total_tokens = 5 * 128;
    o.graph.decode_sizes = {2, 4};
    o.graph.prefill_sizes = {16, 48};
    o.graph.choose_by_cost = false;
    if (eager) o.graph.policy = engine::GraphPolicy::Off, o.graph.prefill_sizes = {};
    ASSIGN_OR_RETURN(Platform p, testing_support::make_computing_platform(GetParam(), taken_));
    testing_support::add_state_ops(p);
    return Engine::create(o, std::move(p));
  }

  // The greedy answer, from a sequence that is read in one step for every token of it.
  Tokens read_anew(Engine& e, const Case& c) {
    Tokens history = c.prompt;
    while (history.size() < c.prompt.size() + static_cast<size_t>(c.most)) {
      engine::Sequence s(history);
      EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
      const engine::StepItem item{&s, s.size(), 1};
      const auto row = e.step({&item, 1});
      EXPECT_TRUE(row.is_ok()) << row.status().message();
      if (!row.is_ok()) return {};
      history.push_back(static_cast<int32_t>(std::max_element(row->begin(), row->end()) - row->begin()));
      e.release(s);
    }
    return {history.begin() + static_cast<ptrdiff_t>(c.prompt.size()), history.end()};
  }
  const std::vector<Tokens>& expected_tokens() {
    static std::map<ComputingPlatform, std::vector<Tokens>> known;  // of every platform: kernels round differently
    std::vector<Tokens>& out = known[GetParam()];
    if (!out.empty()) return out;
    auto e = open(true);
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    for (const Case& c : cases()) out.push_back(read_anew(**e, c));
    return out;
  }

  struct Outcome {
    std::vector<Tokens> tokens;
    uint64_t preemptions = 0;
  };
  Outcome serve(Engine& e, bool overlap) {
    Outcome out;
    std::vector<std::shared_ptr<Answer>> answers;
    {
      SchedulerOptions options;
      options.overlap = overlap;
      options.max_running = 3;
      options.preemption_threshold = 0;
      Scheduler scheduler(e, options);
      while (answers.size() < cases().size() || !scheduler.idle()) {
        if (answers.size() < cases().size()) {
          const Case& c = cases()[answers.size()];
          Asked a = ask(c.prompt, c.most);
          a.request.sampling.ignore_eos = true;
          a.request.priority = static_cast<int64_t>(answers.size() / 3);  // the last ones preempt
          answers.push_back(a.answer);
          EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
        }
        scheduler.step();
        const Status whole = scheduler.check_integrity();
        EXPECT_TRUE(whole.is_ok()) << whole.message();
      }
      out.preemptions = scheduler.stats().preemptions;
    }
    for (auto& a : answers) {
      EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
      EXPECT_EQ(a->result->cached_tokens, 0) << "pages of a prefix say nothing of its state";
      out.tokens.push_back(a->tokens);
    }
    EXPECT_EQ(e.state_pool().free_slots(), e.state_pool().slots() - 2) << "all slots come back";
    return out;
  }

  testing_support::Taken taken_;
};

TEST_P(States, TokensAreThoseOfSequencesReadAnew) {
  auto e = open();
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  ASSERT_TRUE((*e)->has_states());
  for (const bool overlap : {false, true}) {
    const Outcome got = serve(**e, overlap);
    EXPECT_EQ(got.tokens, expected_tokens());
    EXPECT_GT(got.preemptions, 0u);
  }
  EXPECT_GT((*e)->runner("decode")->stats().replays, 0u);
  EXPECT_EQ((*e)->overlaps(), GetParam() == ComputingPlatform::Remote);
}

class StatesOnFailingDevice : public States {};

// With two steps in flight the one that failed finds the state before it, although the step behind it has run.
TEST_P(StatesOnFailingDevice, AFailedReplayIsComputedAgainFromTheStateBeforeIt) {
  auto good = open();
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  const int64_t opened = taken_.ran;
  EXPECT_EQ(serve(**good, true).tokens, expected_tokens());
  const int64_t all = taken_.ran - opened;
  size_t recovered = 0;
  for (int64_t at = all / 9; at < all; at += all / 9) {
    SCOPED_TRACE(at);
    auto e = open();
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    taken_.fail_at = taken_.ran + at;
    EXPECT_EQ(serve(**e, true).tokens, expected_tokens());
    recovered += (*e)->runner("decode")->quarantined().size() + (*e)->runner("prefill")->quarantined().size();
  }
  EXPECT_GT(recovered, 1u);
}

INSTANTIATE_TEST_SUITE_P(, States, testing::Values(ComputingPlatform::Cpu, ComputingPlatform::Remote),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, StatesOnFailingDevice, testing::Values(ComputingPlatform::Remote),
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::states_test
