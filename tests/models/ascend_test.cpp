// Engines on the Ascend backend over the simulator: attention's host lengths follow every step through task updates,
// old and new runtimes, the operator pair before the fused attention, and layers that keep a state for each sequence.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"
#include "support/goldens.h"

namespace reprise::ascend_test {
namespace {

using testing_support::all_logits;
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

// The operator that writes the cache wants a slot of its own for every row (cache-slot-twice), those of the padding
// among them, of which there may be more than a page has.
TEST(AscendCaches, EveryRowOfALongPaddingHasASlotOfItsOwn) {
  const AscendOptions one_size{
      .decode_sizes = {200}, .prefill_sizes = {512}, .context = 512, .chunk = 512, .sequences = 200};
  AscendOptions without = one_size;
  without.policy = engine::GraphPolicy::Off;
  auto eager = open("qwen3_tied", without), e = open("qwen3_tied", one_size);
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  for (const size_t length : {1, 127, 128, 129, 300, 384, 511, 512}) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + 11) % 97));
    EXPECT_TRUE(same_bits(all_logits(**eager, tokens, 512), all_logits(**e, tokens, 512))) << length;
  }
  EXPECT_TRUE(same_bits(decode_traffic(**eager, 3), decode_traffic(**e, 3)));
  for (const char* phase : {"prefill", "decode"}) {
    const engine::StepRunner& runner = *(*e)->runner(phase);
    EXPECT_TRUE(runner.quarantined().empty()) << runner.quarantined().begin()->second;
    EXPECT_TRUE(runner.stats().fallbacks.empty()) << phase;
    EXPECT_GT(runner.stats().replays, 0u) << phase;
  }
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

// Layers with states: steps behind a prompt against transformers, prompts that are cut, batches, and what is refused.
class AscendStateModels : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return testing_support::tiny_model_path(GetParam()); }
  Result<std::unique_ptr<engine::Engine>> open(const AscendOptions& options) const {
    return testing_support::open_ascend(folder(), options);
  }
};

// Logits of the last `steps` tokens, each of a step of its own behind the others in pieces of `chunk`.
std::vector<float> stepped(engine::Engine& e, const std::vector<int32_t>& tokens, int64_t steps, int64_t chunk) {
  engine::Sequence s(tokens);
  std::vector<float> out;
  EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
  while (s.uncached() > 0) {
    const bool last = s.uncached() <= steps;
    const engine::StepItem item{&s, last ? 1 : std::min(chunk, s.uncached() - steps), last ? 1 : 0};
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    if (last) out.insert(out.end(), logits->begin(), logits->end());
  }
  e.release(s);
  return out;
}

TEST_P(AscendStateModels, StepsBehindAPromptAreThoseOfTheReferenceHoweverItIsCut) {
  const auto goldens = testing_support::read_goldens(folder());
  auto e = open({});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
  size_t compared = 0;
  for (const auto& [length, g] : goldens) {
    if (g.stepped.empty()) continue;
    const auto steps = static_cast<int64_t>(g.stepped.size() / vocab);
    const std::vector<float> logits = stepped(**e, g.tokens, steps, 128);
    ASSERT_EQ(logits.size(), g.stepped.size());
    double largest = 0, worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(g.stepped[i])));
      worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - static_cast<double>(g.stepped[i])));
    }
    EXPECT_LE(worst, 2e-2 * largest) << "length " << length;
    for (const int64_t chunk : {1, 50, 64})
      EXPECT_TRUE(same_bits(logits, stepped(**e, g.tokens, steps, chunk))) << chunk;
    ++compared;
  }
  EXPECT_GE(compared, 2u);
}

// Every graph mode; prompts of several sequences in one step; rows of no sequence behind them.
TEST_P(AscendStateModels, PromptsTogetherAreThoseAlone) {
  const std::vector<size_t> lengths{3, 41, 1, 20};
  std::vector<std::vector<int32_t>> prompts;
  for (const size_t n : lengths)
    for (prompts.emplace_back(); prompts.back().size() < n;)
      prompts.back().push_back(static_cast<int32_t>(7 + (prompts.back().size() * 13 + n) % 100));
  std::vector<float> alone;
  for (const auto& [decode, prefill, policy] :
       {std::tuple{GraphMode::Whole, GraphMode::Piecewise, engine::GraphPolicy::Off},
        std::tuple{GraphMode::Whole, GraphMode::Piecewise, engine::GraphPolicy::Required},
        std::tuple{GraphMode::Piecewise, GraphMode::Whole, engine::GraphPolicy::Required}}) {
    auto e = open({.policy = policy, .prefill = prefill, .prefill_sizes = {64, 128}, .decode = decode});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    if (alone.empty())
      for (const auto& p : prompts) {
        const std::vector<float> all = all_logits(**e, p, 1000);
        const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
        alone.insert(alone.end(), all.end() - static_cast<std::ptrdiff_t>(vocab), all.end());
      }
    std::vector<engine::Sequence> sequences;
    for (const auto& p : prompts) sequences.emplace_back(p);
    std::vector<engine::StepItem> items;
    for (auto& s : sequences) {
      ASSERT_TRUE((*e)->reserve(s, s.size()).is_ok());
      items.push_back({&s, s.size(), 1});
    }
    const auto logits = (*e)->step(items);
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    EXPECT_TRUE(same_bits(alone, *logits));
    for (auto& s : sequences) (*e)->release(s);
  }
}

TEST_P(AscendStateModels, OldRuntimesAndOtherTypesAreRefused) {
  for (const DType dtype : {DType::F16, DType::F32}) {
    const auto e = open({.dtype = dtype});
    ASSERT_FALSE(e.is_ok());
    EXPECT_EQ(e.status().code(), Code::Unsupported);
    EXPECT_TRUE(e.status().message().ends_with("in it; allowed: auto, bfloat16")) << e.status().message();
  }
  for (const char* cann : {"8.1", "8.5"}) {
    const Setting old("ASCEND_SIM_CANN", cann);
    const auto e = open({});
    ASSERT_FALSE(e.is_ok()) << cann;
    EXPECT_EQ(e.status().code(), Code::Unsupported);
    EXPECT_NE(e.status().message().find("aclnnRecurrentGatedDeltaRule"), std::string::npos) << e.status().message();
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AscendStateModels,
                         testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe_text_of_images", "granite_hybrid",
                                         "nemotron_h"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::ascend_test
