// Qwen3-Next, Qwen3.5, Granite 4 and Nemotron-H on the Ascend backend over the simulator: steps behind a prompt against
// transformers, prompts that are cut, batches, steps that run twice, and what the device refuses.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"
#include "support/goldens.h"

namespace reprise::ascend_states_test {
namespace {

using testing_support::all_logits;
using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::same_bits;
using testing_support::Setting;

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

// A check runs a step again, eagerly and unfused, from the slot that is read to the one that is written.
TEST_P(AscendStateModels, AStepThatIsCheckedAndRepeatedHasTheSameBits) {
  const auto plain = open({}), checked = open({.verify_replay = 1});
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  ASSERT_TRUE(checked.is_ok()) << checked.status().message();
  EXPECT_TRUE(same_bits(decode_traffic(**plain, 4), decode_traffic(**checked, 4)));
  EXPECT_GT((*checked)->runner("decode")->stats().replays, 0u);
  EXPECT_TRUE((*checked)->runner("decode")->quarantined().empty());
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
}  // namespace reprise::ascend_states_test
