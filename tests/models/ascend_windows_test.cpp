// Sliding windows and attention sinks on the Ascend backend over the simulator: steps of one token behind prompts
// longer than the window are those of Hugging Face, and older runtimes refuse such models by name.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"
#include "support/goldens.h"

namespace reprise::ascend_windows_test {
namespace {

using testing_support::all_logits;
using testing_support::AscendOptions;
using testing_support::Golden;
using testing_support::same_bits;
using testing_support::Setting;

std::string data(const std::string& folder) { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + folder; }

// The largest distance to the golden logits over the largest of them.
double distance(const Golden& g, const std::vector<float>& logits, size_t vocab) {
  EXPECT_EQ(logits.size(), g.tokens.size() * vocab);
  double largest = 0, worst = 0;
  for (const float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  for (size_t i = 0; i < g.positions.size(); ++i)
    for (size_t v = 0; v < vocab; ++v)
      worst = std::max(worst, std::fabs(static_cast<double>(logits[static_cast<size_t>(g.positions[i]) * vocab + v]) -
                                        static_cast<double>(g.logits[i * vocab + v])));
  return worst / largest;
}

// Windows of 24 tokens in all layers, in some of them, and with sinks; experts in MXFP4 are unpacked.
class AscendWindows : public testing::TestWithParam<std::string> {};

TEST_P(AscendWindows, StepsAreThoseOfTheReference) {
  const std::string folder = data(GetParam());
  const auto goldens = testing_support::read_goldens(folder);
  const Golden& g = goldens.at(131);
  for (const DType dtype : {DType::BF16, DType::F16}) {
    SCOPED_TRACE(dtype_name(dtype));
    AscendOptions options{.dtype = dtype};
    options.prefill_sizes = {64, 128};
    auto e = testing_support::open_ascend(folder, options);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
    const std::vector<float> steps = all_logits(**e, g.tokens, 1);
    EXPECT_LE(distance(g, steps, vocab), 2e-2);
    EXPECT_TRUE(same_bits(steps, all_logits(**e, g.tokens, 50))) << "prompts in parts";
    options.policy = engine::GraphPolicy::Off;
    auto eager = testing_support::open_ascend(folder, options);
    ASSERT_TRUE(eager.is_ok()) << eager.status().message();
    EXPECT_TRUE(same_bits(steps, all_logits(**eager, g.tokens, 1000))) << "eager";
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AscendWindows,
                         testing::Values("models/gemma3", "models/mistral_window24", "models/cohere2", "models/gpt_oss",
                                         "mxfp4"),
                         [](const auto& info) {
                           const size_t slash = info.param.find('/');
                           return slash == std::string::npos ? info.param : info.param.substr(slash + 1);
                         });

std::string refusal(const std::string& model, bool fia = true) {
  const auto e = testing_support::open_ascend(data("models/" + model), {.fia = fia});
  EXPECT_FALSE(e.is_ok()) << model;
  if (e.is_ok()) return {};
  EXPECT_EQ(e.status().code(), Code::Unsupported);
  return e.status().message();
}

TEST(AscendWindowsOfOldRuntimes, AreRefusedByName) {
  const auto has = [](const std::string& text, const std::string& word) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  has(refusal("mistral_window24", false), "a sliding window of 24 tokens");
  has(refusal("gpt_oss", false), "attention with sinks");
  has(refusal("gemma2"), "scores under a cap of 6");
  {
    const Setting old("ASCEND_SIM_CANN", "8.5");
    has(refusal("mistral_window24"), "no attention kernels for heads of this size; it has for 64, 128");
  }
  const Setting old("ASCEND_SIM_CANN", "8.1");
  const std::string windows = refusal("mistral_window24"), sinks = refusal("gpt_oss");
  has(windows, "a sliding window of 24 tokens");
  has(windows, "rule attention-joined-pages");
  has(sinks, "aclnnFusedInferAttentionScoreV4");
}

}  // namespace
}  // namespace reprise::ascend_windows_test
