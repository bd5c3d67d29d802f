// Mixtures of experts and families of small differences from GGUF: files that the gguf package wrote of tiny
// checkpoints (tools/golden/make_gguf_models.py) give the logits of those checkpoints, and the bits of the same weights
// read from safetensors.
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/gguf.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::gguf_experts_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::open_engine;
using testing_support::same_bits;
using testing_support::tiny_model_path;

// Mixtral and Llama interleave the rows of queries and keys; DeepSeek-V2-Lite has kv_b_proj in two tensors, V3 in one.
// Qwen3.5's heads of values are tiled: two of each of two key heads; the other one has three of either.
const char* const kModels[] = {"mixtral_top2",
                               "qwen2_moe_shared",
                               "qwen3_moe_norm",
                               "deepseek_v2_lite",
                               "deepseek_v3_moe",
                               "gemma2",
                               "gemma3_text_of_images",
                               "phi3_partial",
                               "phi3_longrope",
                               "glm4",
                               "olmo2",
                               "granite",
                               "granite_moe",
                               "smollm3",
                               "cohere",
                               "cohere2",
                               "starcoder2",
                               "exaone4_window",
                               "ernie",
                               "seed_oss",
                               "hunyuan",
                               "llama_gqa3_tied",
                               "glm4_moe",
                               "ernie_moe",
                               "minimax_m2",
                               "qwen3_next",
                               "qwen3_5",
                               "qwen3_5_moe_text_of_images",
                               "granite_hybrid",
                               "nemotron_h",
                               "nemotron_h_moe",
                               "ministral3",
                               "hunyuan_moe",
                               "llama4",
                               "olmoe",
                               "gemma",
                               "arcee"};

std::string gguf_path(const std::string& name) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/" + name + ".gguf";
}

class GgufExperts : public testing::TestWithParam<const char*> {};

TEST_P(GgufExperts, LogitsAreThoseOfTheReferenceAndBitsThoseOfTheCheckpoint) {
  const std::string folder = tiny_model_path(GetParam());
  const auto goldens = testing_support::read_goldens(folder);
  ASSERT_FALSE(goldens.empty());
  EngineSetup setup;
  setup.context = 0;
  for (auto& [length, g] : goldens) setup.context = std::max(setup.context, length);
  setup.total_tokens = 4096;
  auto from_folder = open_engine(folder, setup);
  // Files of Llama 4 do not say these numbers: those of the published models are taken.
  if (GetParam() == std::string_view("llama4"))
    setup.overrides = {"attention_chunk_size=48", "floor_scale=20", "attn_scale=0.3"};
  auto from_gguf = open_engine(gguf_path(GetParam()), setup);
  ASSERT_TRUE(from_gguf.is_ok()) << from_gguf.status().message();
  ASSERT_TRUE(from_folder.is_ok()) << from_folder.status().message();
  EXPECT_EQ((*from_gguf)->config().architecture, (*from_folder)->config().architecture);
  // Hunyuan's base is multiplied before it is written, and is a float there; of a decay the file has the exponential.
  // What Llama 4's frequencies are divided by is rounded to floats.
  const std::string_view name = GetParam();
  const bool exact = !name.starts_with("hunyuan") && !name.starts_with("qwen3_next") && !name.starts_with("qwen3_5") &&
                     name != "granite_hybrid" && !name.starts_with("nemotron_h") && name != "llama4";
  const auto vocab = static_cast<size_t>((*from_gguf)->config().vocab_size);
  for (auto& [length, g] : goldens) {
    const std::vector<float> logits = all_logits(**from_gguf, g.tokens, 1000);
    ASSERT_EQ(logits.size(), g.tokens.size() * vocab);
    EXPECT_TRUE(!exact || same_bits(logits, all_logits(**from_folder, g.tokens, 1000))) << "length " << length;
    double largest = 0, worst = 0;
    for (float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
    for (size_t i = 0; i < g.positions.size(); ++i)
      for (size_t v = 0; v < vocab; ++v)
        worst = std::max(worst, std::fabs(static_cast<double>(logits[static_cast<size_t>(g.positions[i]) * vocab + v]) -
                                          static_cast<double>(g.logits[i * vocab + v])));
    EXPECT_LE(worst, 1e-4 * largest) << "length " << length;
    EXPECT_FALSE(std::isnan(worst));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufExperts, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param); });

// One tensor with the gates and, behind them, the ups of all experts, as newer files may have it.
TEST(GgufJoinedExperts, HaveTheBitsOfThoseApart) {
  const std::string joined = gguf_path("qwen3_moe_joined");
  const auto file = checkpoint::GgufFile::open(joined);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_NE((*file).find("blk.1.ffn_gate_up_exps.weight"), nullptr);
  EXPECT_EQ((*file).find("blk.1.ffn_gate_exps.weight"), nullptr);
  const auto goldens = testing_support::read_goldens(tiny_model_path("qwen3_moe_norm"));
  ASSERT_FALSE(goldens.empty());
  EngineSetup setup;
  setup.total_tokens = 4096;
  setup.context = goldens.rbegin()->first;
  auto together = open_engine(joined, setup), apart = open_engine(gguf_path("qwen3_moe_norm"), setup);
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  ASSERT_TRUE(apart.is_ok()) << apart.status().message();
  for (const auto& [length, g] : goldens)
    EXPECT_TRUE(same_bits(all_logits(**together, g.tokens, 1000), all_logits(**apart, g.tokens, 1000)))
        << "length " << length;
}

}  // namespace
}  // namespace reprise::gguf_experts_test
