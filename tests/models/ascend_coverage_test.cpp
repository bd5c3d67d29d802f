// Models of every kind on the Ascend backend over the simulator, in every graph mode and on both generations of chips;
// no call that the runtime refuses, and no more updates than layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "backends/ascend/library.h"
#include "base/json.h"
#include "support/ascend_engine.h"

namespace reprise::ascend_coverage_test {
namespace {

using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::same_bits;
using testing_support::Setting;

constexpr int kSteps = 20;  // past the end of a page of 128

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const AscendOptions& options) {
  return testing_support::open_ascend(testing_support::tiny_model_path(model), options);
}

// One model of every kind that runs there, "+w8a8" quantised at load: all modes, on an Atlas A2 and an A3.
class AscendCoverage : public testing::TestWithParam<std::string> {};

TEST_P(AscendCoverage, EveryModeOnEveryGenerationGivesTheSameBits) {
  const std::string suffix = "+w8a8";
  std::string model = GetParam();
  AscendOptions options{.prefill_sizes = {64, 128}};
  if (model.ends_with(suffix)) {
    model.resize(model.size() - suffix.size());
    options.quantization = checkpoint::Quantization::W8A8Int8;
  }
  std::vector<float> expected;
  for (const std::string soc : {"Ascend910B3", "Ascend910_9391"}) {
    const Setting chip("ASCEND_SIM_SOC", soc);
    for (const auto& [policy, decode_mode, prefill_mode] :
         {std::tuple{engine::GraphPolicy::Off, GraphMode::Whole, GraphMode::Piecewise},
          std::tuple{engine::GraphPolicy::Required, GraphMode::Whole, GraphMode::Piecewise},
          std::tuple{engine::GraphPolicy::Required, GraphMode::Piecewise, GraphMode::Whole}}) {
      SCOPED_TRACE(fmt::format("{}, decode {}", soc,
                               policy == engine::GraphPolicy::Off ? "eager" : graph_mode_name(decode_mode)));
      options.policy = policy;
      options.decode = decode_mode;
      options.prefill = prefill_mode;
      auto e = open(model, options);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_EQ((*e)->device().info().isa, soc);
      const std::vector<float> got = decode_traffic(**e, 4);
      if (expected.empty()) expected = got;
      EXPECT_TRUE(same_bits(expected, got));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AscendCoverage,
                         testing::Values("llama_gqa3_tied", "llama_rope_llama3", "qwen2_untied", "qwen3_tied",
                                         "mistral_full", "mixtral_top2", "qwen2_moe_shared", "qwen3_moe_norm",
                                         "qwen3_tied+w8a8", "qwen2_untied+w8a8", "qwen2_moe_shared+w8a8",
                                         "mixtral_top2+w8a8", "qwen3_next", "qwen3_5", "granite_hybrid", "nemotron_h",
                                         "qwen3_next+w8a8", "gemma3", "mistral_window24", "mistral_layer_types",
                                         "cohere2", "exaone4_window", "olmo3", "phi3_partial", "starcoder2", "gpt_oss"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

// What the simulator has counted since it was opened.
OrderedJson counted(const ascend::Library& library) {
  const auto stats = reinterpret_cast<int (*)(char*, size_t)>(library.symbol("ascendSimStats"));
  if (!stats) return {};
  std::string text(size_t{1} << 16, ' ');
  text.resize(static_cast<size_t>(stats(text.data(), text.size())));
  auto json = parse_ordered_json(text, "ascendSimStats");
  return json.is_ok() ? *json : OrderedJson();
}

// The documented rules of captures, updates and destroyed objects (docs/ascend-coverage.md) have tests of their own in
// tests/sim. Here: from an engine's start to its end, in every mode, on every runtime, the backend makes no call that
// is refused, leaves no work unordered, and gives everything back. The older pair of attention operators runs once per
// prompt, so no graph can hold it for prefill; it is held to the same in eager and piecewise runs.
TEST(AscendLegality, NothingIsRefusedAndNothingIsLeft) {
  const Setting races("ASCEND_SIM_RACES", "1");
  for (const std::string cann : {"8.5", "8.1"})
    for (const std::string stack : {"old", "new"}) {
      SCOPED_TRACE(cann + " " + stack);
      const Setting version("ASCEND_SIM_CANN", cann), driver("ASCEND_SIM_STACK", stack);
      auto library = ascend::Library::open("sim");  // outlives the engines, and its counts with it
      ASSERT_TRUE(library.is_ok()) << library.status().message();
      const std::vector<int64_t> prompts{16, 64};
      const AscendOptions eager{.policy = engine::GraphPolicy::Off}, usual{.prefill_sizes = prompts},
          turned{.prefill = GraphMode::Whole, .prefill_sizes = prompts, .decode = GraphMode::Piecewise},
          pair{.fia = false, .prefill_sizes = prompts};
      uint64_t replays = 0;
      for (const AscendOptions* options : {&eager, &usual, &turned, &pair}) {
        auto e = open("qwen3_tied", *options);
        ASSERT_TRUE(e.is_ok()) << e.status().message();
        EXPECT_FALSE(decode_traffic(**e, 3).empty());
        replays += (*e)->runner("decode")->stats().replays;
      }
      EXPECT_EQ(replays, 3u * 3);
      OrderedJson seen = counted(**library);
      ASSERT_TRUE(seen.contains("refused")) << seen;
      seen["refused"].erase("107002");                     // so a thread learns that it has no device yet
      if (cann == "8.1") seen["refused"].erase("207000");  // and so, that a function is not there
      EXPECT_EQ(seen["refused"], OrderedJson::object());
      EXPECT_EQ(seen["races"], 0);
      EXPECT_GT(seen["updates"], 0);
      for (const char* what : {"graphs", "groups", "events"}) EXPECT_EQ(seen[what], 0) << what;
    }
}

// F16: one thread rewrites what changed: the attention of every layer, no more and no less.
TEST(AscendUpdates, EveryLayerIsRewrittenOnceAStep) {
  auto library = ascend::Library::open("sim");
  ASSERT_TRUE(library.is_ok()) << library.status().message();
  auto e = open("qwen3_tied", {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const std::vector<float> warm = decode_traffic(**e, 2);
  const int64_t layers = (*e)->config().num_hidden_layers;
  const OrderedJson before = counted(**library);
  EXPECT_FALSE(decode_traffic(**e, kSteps).empty());
  const OrderedJson after = counted(**library);
  EXPECT_EQ(after["updates"].get<int64_t>() - before["updates"].get<int64_t>(), layers * kSteps);
  EXPECT_EQ(after["graphs"], before["graphs"]) << "and nothing is captured again";
}

}  // namespace
}  // namespace reprise::ascend_coverage_test
