// Engines on the Ascend backend over the simulator: attention's host lengths follow every step through task updates,
// old and new runtimes, and the operator pair before the fused attention.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"

namespace reprise::ascend_test {
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
    const engine::StepRunner& runner = *(*e)->runner("decode");
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
  EXPECT_EQ((*e)->runner("decode")->stats().replays, static_cast<uint64_t>(kSteps));
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

// The pair's operator for prompts runs once for each, so a whole graph is refused when it is captured, not replayed.
TEST(AscendAttention, NoWholeGraphHoldsTheOlderPairsPrompts) {
  std::vector<float> expected;
  {
    auto e = open("llama_gqa3_tied", {});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    expected = decode_traffic(**e, 2);
  }
  const AscendOptions whole{.prefill = GraphMode::Whole, .fia = false, .prefill_sizes = {16, 64, 128}};
  auto e = open("llama_gqa3_tied", whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_TRUE(same_bits(expected, decode_traffic(**e, 2)));
  const engine::StepRunner& runner = *(*e)->runner("prefill");
  EXPECT_EQ(runner.mode(), GraphMode::Piecewise);
  EXPECT_TRUE(runner.quarantined().empty()) << runner.quarantined().begin()->second;
  EXPECT_GT(runner.stats().replays, 0u);
  EXPECT_EQ((*e)->runner("decode")->mode(), GraphMode::Whole);

  // One of as many tokens as sequences is none of a decode step, which the pair could hold.
  const auto small = open("llama_gqa3_tied", {.prefill = GraphMode::Whole, .fia = false, .prefill_sizes = {4}});
  ASSERT_TRUE(small.is_ok()) << small.status().message();
  EXPECT_EQ((*small)->runner("prefill")->mode(), GraphMode::Piecewise);

  AscendOptions required = whole;
  required.policy = engine::GraphPolicy::Required;
  const auto refused = open("llama_gqa3_tied", required);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("once per prompt, which no graph can hold"), std::string::npos)
      << refused.status().message();
}

// What the fused operator of an older CANN refuses in prompts is run by the one before it; steps stay fused where they
// can.
TEST(AscendAttention, PromptsThatAnOldCannRefusesRunByTheOlderOperator) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    std::vector<float> expected;
    {
      auto e = open("llama_gqa3_tied", {.dtype = dtype});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      expected = decode_traffic(**e, kSteps);
    }
    for (const char* cann : {"8.1", "8.5"}) {
      SCOPED_TRACE(fmt::format("{} {}", cann, dtype_name(dtype)));
      const Setting old("ASCEND_SIM_CANN", cann);
      auto e = open("llama_gqa3_tied", {.dtype = dtype});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_TRUE(same_bits(expected, decode_traffic(**e, kSteps)));
      EXPECT_GT((*e)->runner("decode")->stats().replays, 0u);
    }
  }
}

// Its workspace is enough for the longest prompt that a step takes, alone or among others.
TEST(AscendAttention, TheOlderPairHasRoomForTheLongestPrompt) {
  std::vector<int32_t> prompt(128);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i % 50) + 1;
  std::vector<float> logits[2];
  for (const bool fia : {true, false}) {
    auto e = open("llama_gqa3_tied", {.policy = engine::GraphPolicy::Off, .fia = fia});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    engine::Sequence sequence(prompt);
    ASSERT_TRUE((*e)->reserve(sequence, 128).is_ok());
    const engine::StepItem item{&sequence, 128, 1};
    auto found = (*e)->step({&item, 1});
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    logits[fia].assign(found->begin(), found->end());
    (*e)->release(sequence);
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

}  // namespace
}  // namespace reprise::ascend_test
