// Engines on the Ascend backend over the simulator: attention's host lengths follow every step through task updates,
// old and new runtimes, and the operator pair before the fused attention.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"

namespace reprise {
namespace {

using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::same_bits;
using testing_support::Setting;

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const AscendOptions& options) {
  return testing_support::open_ascend(testing_support::tiny_model_path(model), options);
}

constexpr int kSteps = 20;  // past the end of a page of 128

// F15: every step's lengths reach every layer, over page borders, and nothing is captured again.
TEST(AscendUpdates, LengthsChangeEveryStepWithoutCapturingAgain) {
  auto eager = open("qwen3_tied", {.policy = engine::GraphPolicy::Off});
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  const std::vector<float> expected = decode_traffic(**eager, kSteps);
  for (GraphMode prefill : {GraphMode::Piecewise, GraphMode::Whole}) {
    auto e = open("qwen3_tied", {.prefill = prefill});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const engine::StepRunner& runner = *(*e)->decode_runner();
    const uint64_t captures = runner.captures();
    EXPECT_TRUE(same_bits(expected, decode_traffic(**e, kSteps)));
    EXPECT_EQ(runner.stats().replays, static_cast<uint64_t>(kSteps));
    EXPECT_TRUE(runner.stats().fallbacks.empty());
    EXPECT_EQ(runner.captures(), captures);
  }
}

// CANN 8.1.RC1 has no waits for memory and no operator for caches: updates come before the replay, rows are scattered.
TEST(AscendUpdates, OldRuntimesGiveTheSame) {
  std::vector<float> expected;
  {
    auto e = open("qwen3_tied", {});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    expected = decode_traffic(**e, kSteps);
  }
  const Setting old("ASCEND_SIM_CANN", "8.1");
  auto e = open("qwen3_tied", {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_TRUE(same_bits(expected, decode_traffic(**e, kSteps)));
  EXPECT_EQ((*e)->decode_runner()->stats().replays, static_cast<uint64_t>(kSteps));
}

// F46: the pair of operators before the fused one.
TEST(AscendAttention, TheOlderPairIsEqual) {
  std::vector<float> expected;
  {
    auto e = open("llama_gqa3_tied", {});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    expected = decode_traffic(**e, kSteps);
  }
  auto e = open("llama_gqa3_tied", {.fia = false});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_TRUE(same_bits(expected, decode_traffic(**e, kSteps)));
}

}  // namespace
}  // namespace reprise
