// Replay is eager, bit for bit: whole, piecewise and eager programs on every size and between sizes, alone and in
// batches (F01, F06, F08-F10, F22, F25, F29, F33), and what the counters say about it.
#include <gtest/gtest.h>

#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::graph_modes_test {
namespace {

using engine::GraphPolicy;
using testing_support::same_bits;

// Behind a model's name: on that device, over the simulator.
constexpr std::string_view kOnAscend = "@ascend";

struct Modes {
  GraphPolicy policy = GraphPolicy::Auto;
  GraphMode decode = GraphMode::Whole;
  GraphMode prefill = GraphMode::Piecewise;
  std::vector<int64_t> decode_sizes = {}, prefill_sizes = {};
  bool padding = true;
};

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const Modes& m) {
  const bool ascend = model.ends_with(kOnAscend);
  DeviceOptions device{ascend ? DeviceKind::Ascend : DeviceKind::Cpu, "auto", 2, false};
  device.ascend_runtime = "sim";
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model.substr(0, model.size() - (ascend ? kOnAscend.size() : 0)));
  if (ascend) o.dtype = DType::BF16;
  o.chunked_prefill_size = 200;
  o.max_running_requests = 20;
  o.max_total_tokens = 20 * 256;
  o.graph.policy = m.policy;
  o.graph.decode = m.decode;
  o.graph.prefill = m.prefill;
  o.graph.decode_sizes = m.decode_sizes;
  o.graph.prefill_sizes = m.prefill_sizes;
  o.graph.padding = m.padding;
  return engine::Engine::create(o, std::move(platform));
}

// Prefills `batch` prompts of different lengths, then decodes three steps with fixed tokens; every logit that came out.
std::vector<float> traffic(engine::Engine& e, int64_t batch) {
  return testing_support::Traffic(e, testing_support::lengths(batch, 1, 1, 9), 3).run(3);
}

class GraphModesTest : public testing::TestWithParam<std::string> {};

TEST_P(GraphModesTest, AllModesGiveTheSameBitsAtEveryBatch) {
  auto eager = open(GetParam(), {.policy = GraphPolicy::Off});
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  const std::vector<Modes> modes{{},
                                 {.decode = GraphMode::Piecewise, .prefill = GraphMode::Whole},
                                 {.decode = GraphMode::Eager, .prefill = GraphMode::Eager},
                                 {.decode_sizes = {3, 7}, .prefill_sizes = {5, 40}},
                                 {.decode_sizes = {1, 4}, .padding = false}};
  std::vector<std::vector<float>> expected;
  for (int64_t batch = 1; batch <= 20; ++batch) expected.push_back(traffic(**eager, batch));
  for (const Modes& m : modes) {
    auto e = open(GetParam(), m);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    for (int64_t batch = 1; batch <= 20; ++batch)
      EXPECT_TRUE(same_bits(expected[static_cast<size_t>(batch - 1)], traffic(**e, batch))) << "batch " << batch;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GraphModesTest,
                         testing::Values("llama_gqa3_tied", "qwen2_untied", "qwen3_tied", "mistral_window24",
                                         "deepseek_v2_dense", "deepseek_v3_dense", "mixtral_top2", "qwen3_moe_norm",
                                         "qwen3_moe_top8", "qwen2_moe_shared", "deepseek_v2_lite", "deepseek_v3_moe",
                                         "llama_gqa3_tied@ascend", "qwen2_untied@ascend", "qwen3_tied@ascend",
                                         "qwen3_moe_norm@ascend"));

TEST(GraphCounters, ReplaysPaddingAndFallbacksAreCountedWithReasons) {
  auto e = open("qwen3_tied", {.decode_sizes = {1, 4, 8}});
  ASSERT_TRUE(e.is_ok());
  (void)traffic(**e, 3);   // three decode steps of 3 in size 4
  (void)traffic(**e, 12);  // three decode steps beyond the largest size
  const engine::StepRunner& decode = *(*e)->runner("decode");
  EXPECT_EQ(decode.stats().replays, 3u);
  EXPECT_EQ(decode.stats().padded_rows, 3u);
  ASSERT_EQ(decode.stats().fallbacks.size(), 1u);
  EXPECT_EQ(decode.stats().fallbacks.begin()->first, "larger than the largest captured size 8");
  EXPECT_EQ(decode.stats().fallbacks.begin()->second, 3u);
  EXPECT_EQ(decode.mode(), GraphMode::Whole);
  EXPECT_EQ((*e)->runner("prefill")->mode(), GraphMode::Piecewise);
}

// F58: tables and lengths stay where they are; no step copies anything, captured or not.
TEST(GraphCounters, NoStepCopiesToTheHost) {
  Modes modes, eager;
  eager.policy = GraphPolicy::Off;
  for (const Modes& m : {modes, eager}) {
    auto e = open("qwen3_tied", m);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    traffic(**e, 5);
    const StreamStats s = (*e)->stream_stats();
    EXPECT_EQ(s.copies_to_host, 0u);
    EXPECT_EQ(s.copies_to_device, 0u);
    EXPECT_EQ(s.copies_on_device, 0u);
    EXPECT_EQ(s.replays > 0, m.policy == GraphPolicy::Auto);
    EXPECT_GT(s.launches, 0u);  // attention between the pieces of the prefill
    for (const engine::StepRunner* runner : {(*e)->runner("decode"), (*e)->runner("prefill")})
      for (const CompiledModel* m : runner->models()) EXPECT_EQ(m->graph_stats().copies_to_host, 0u);
  }
}

TEST(GraphCounters, PiecesAlternateAroundAttention) {
  auto e = open("qwen3_tied", {});
  ASSERT_TRUE(e.is_ok());
  const auto& pieces = (*e)->runner("prefill")->model().pieces();
  const auto layers = static_cast<size_t>((*e)->config().num_hidden_layers);
  constexpr size_t heads = 3;  // logits, next tokens, drawn tokens; pooled rows are of other models
  ASSERT_EQ(pieces.size(), 2 * layers + 1 + heads);
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].captured, i > 2 * layers || i % 2 == 0);
    EXPECT_EQ(pieces[i].heads == kAllHeads, i <= 2 * layers);
    if (i > 2 * layers) continue;
    if (i % 2) {
      EXPECT_EQ(pieces[i].thunks.size(), 1u);
    }
  }
  EXPECT_EQ((*e)->runner("decode")->model().pieces().size(), 1 + heads);
}

TEST(GraphPolicyTest, RequiredRefusesWhatWouldRunUncaptured) {
  auto e = open("qwen3_tied", {.policy = GraphPolicy::Required, .decode_sizes = {1, 2}});
  ASSERT_TRUE(e.is_ok());
  std::vector<engine::Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.emplace_back(std::vector<int32_t>{1});
  std::vector<engine::StepItem> items;
  for (auto& s : sequences) {
    ASSERT_TRUE((*e)->reserve(s, 1).is_ok());
    items.push_back({&s, 1, 1});
  }
  auto logits = (*e)->step(items);
  ASSERT_FALSE(logits.is_ok());
  EXPECT_NE(logits.status().message().find("`graph` required"), std::string::npos) << logits.status().message();
  items.resize(2);
  EXPECT_TRUE((*e)->step(items).is_ok());
  for (auto& s : sequences) (*e)->release(s);
}

TEST(GraphPolicyTest, NamesAreChecked) {
  EXPECT_TRUE(engine::parse_graph_policy("required").is_ok());
  EXPECT_NE(engine::parse_graph_policy("on").status().message().find("auto, off, required"), std::string::npos);
  EXPECT_NE(engine::parse_phase_mode("`graph_decode`", "full").status().message().find("whole, piecewise, off"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise::graph_modes_test
