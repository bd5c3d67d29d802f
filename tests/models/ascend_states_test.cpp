// Models with states on the Ascend backend over the simulator: the prefix cache, whose states are kept and gone on from
// on the card, and steps that are checked, which read a state twice.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"
#include "support/served.h"

namespace reprise::ascend_states_test {
namespace {

using sched::Scheduler;
using sched::serve;
using sched::Served;
using sched::Tokens;
using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::same_bits;

class AscendStates : public testing::TestWithParam<std::string> {
 protected:
  static Result<std::unique_ptr<engine::Engine>> open(const AscendOptions& options) {
    return testing_support::open_ascend(testing_support::tiny_model_path(GetParam()), options);
  }
  static Tokens text(int64_t n) {
    Tokens t;
    for (int64_t i = 0; i < n; ++i) t.push_back(static_cast<int32_t>((i * i + 31 * i) % 131 + 3));
    return t;
  }
};

// As on the CPU (tests/sched/kept_states_test.cpp): a hit has the tokens and log-probabilities of the prompt alone.
// States are kept where steps do not overlap.
TEST_P(AscendStates, APromptGoesOnFromAStateThatIsKept) {
  auto e = open({.prefill_sizes = {64, 128}});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto alone = [&](const Tokens& prompt) {
    Scheduler without(**e, {.prefix_cache = false, .overlap = false});
    return serve(without, prompt);
  };
  const auto expect_same = [](const Served& want, const Served& got) {
    EXPECT_EQ(want.tokens, got.tokens);
    EXPECT_EQ(want.logprobs, got.logprobs);
  };
  const Tokens prompt = text(270);
  const Served key = alone(prompt);
  // The next turn of a conversation begins with this one; what differs before the border has to be computed.
  Tokens next = prompt, other = prompt;
  next.insert(next.end(), key.tokens.begin(), key.tokens.end());
  next.insert(next.end(), {9, 10, 11});
  other[200] = 140;
  const Served key_of_next = alone(next), key_of_other = alone(other);
  {
    Scheduler with(**e, {.overlap = false});
    const Served miss = serve(with, prompt), hit = serve(with, prompt), turn = serve(with, next),
                 different = serve(with, other);
    EXPECT_EQ(miss.cached, 0);
    EXPECT_EQ(hit.cached, 256);
    EXPECT_EQ(turn.cached, 256);
    EXPECT_EQ(different.cached, 0);
    expect_same(key, miss);
    expect_same(key, hit);
    expect_same(key_of_next, turn);
    expect_same(key_of_other, different);
  }
  EXPECT_EQ((*e)->state_pool().kept(), 0);
  EXPECT_EQ((*e)->state_pool().free_slots(), (*e)->state_pool().slots() - 2) << "all slots come back";
}

TEST_P(AscendStates, AStepThatIsCheckedHasTheSameBits) {
  std::vector<float> want;
  for (const auto& [verify, fault] : {std::pair{0, ""}, std::pair{1, ""}, std::pair{1, "stale-input@3"}}) {
    SCOPED_TRACE(fault);
    std::vector<std::string> faults;
    if (*fault) faults.emplace_back(fault);
    auto e = open({.prefill_sizes = {64, 128}, .verify_replay = verify, .faults = faults});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const std::vector<float> got = decode_traffic(**e, 4);
    if (want.empty()) want = got;
    EXPECT_TRUE(same_bits(want, got));
    EXPECT_EQ((*e)->counters().checked > 0, verify > 0);
    EXPECT_EQ((*e)->counters().differences, *fault ? 1u : 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AscendStates, testing::Values("qwen3_5", "granite_hybrid"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::ascend_states_test
