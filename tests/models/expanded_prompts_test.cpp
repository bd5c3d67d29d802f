// DeepSeek models whose prompts have keys and values expanded (--mla-prefill expanded): every graph mode and chunk, any
// company, and who refuses it. Logits are held against Hugging Face in golden_test.cpp.
#include <gtest/gtest.h>

#include "support/tiny_models.h"
#include "support/wide_latents.h"

namespace reprise::expanded_prompts_test {
namespace {

using testing_support::all_logits;
using testing_support::same_bits;
using testing_support::tiny_model_path;

const char* const kModels[] = {"deepseek_v2_dense", "deepseek_v2_lite", "deepseek_v3_moe"};

Result<std::unique_ptr<engine::Engine>> open(const std::string& path, DType dtype, engine::EngineOptions o = {},
                                             DeviceOptions device = {}, bool expand = true) {
  device.ascend_runtime = "sim";
  if (device.threads == 0) device.threads = 2;
  device.pin_threads = false;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  o.model_path = path;
  o.dtype = dtype;
  o.chunked_prefill_size = 256;
  o.max_running_requests = 256;
  o.max_total_tokens = 16 * 256;
  o.graph.pipeline.expand_latents = expand;
  return engine::Engine::create(o, std::move(platform));
}

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 7919 + 13) % vocab));
  return tokens;
}

int64_t matches(const PipelineReport* report) {
  for (const PassReport& p : report->passes)
    if (p.name == "expand_latents") return p.matched;
  return -1;
}

TEST(ExpandedPrompts, EveryModeAndChunkGivesTheSameBits) {
  for (const char* model : kModels)
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const std::string what = fmt::format("{} {}", model, dtype_name(dtype));
      engine::EngineOptions eager, whole, pieces, checked;
      eager.graph.policy = engine::GraphPolicy::Off;
      eager.graph.pipeline.passes.enable = {"none"};
      whole.graph.prefill = GraphMode::Whole;
      whole.graph.prefill_sizes = {200};  // chunks of 100 have as many rows of padding
      checked.graph.verify_replay = 1;
      checked.graph.policy = engine::GraphPolicy::Required;
      DeviceOptions frozen, three;
      frozen.live_sizes = false;
      three.threads = 3;
      auto key = open(tiny_model_path(model), dtype, eager);
      ASSERT_TRUE(key.is_ok()) << key.status().message();
      EXPECT_EQ(matches((*key)->passes("prefill")), (*key)->config().num_hidden_layers) << what;
      EXPECT_EQ(matches((*key)->passes("decode")), -1) << what;
      const auto tokens = some_tokens(190, (*key)->config().vocab_size);
      const std::vector<float> want = all_logits(**key, tokens, 1000);
      auto absorbed = open(tiny_model_path(model), dtype, eager, {}, false);
      ASSERT_TRUE(absorbed.is_ok()) << absorbed.status().message();
      EXPECT_FALSE(same_bits(want, all_logits(**absorbed, tokens, 1000))) << what << ": nothing was expanded";
      // The chunks are long enough for the rule to expand each (ops/latent.cpp).
      for (const int64_t chunk : {100, 150}) EXPECT_TRUE(same_bits(want, all_logits(**key, tokens, chunk))) << what;
      for (auto& [options, device] :
           {std::pair{whole, DeviceOptions()}, {whole, frozen}, {pieces, three}, {checked, DeviceOptions()}}) {
        auto other = open(tiny_model_path(model), dtype, options, device);
        ASSERT_TRUE(other.is_ok()) << other.status().message();
        EXPECT_TRUE(same_bits(want, all_logits(**other, tokens, 1000))) << what;
        EXPECT_TRUE(same_bits(want, all_logits(**other, tokens, 100))) << what;
      }
    }
}

// A prompt, a short one and a token being decoded in one step: each as alone.
TEST(ExpandedPrompts, CompanyChangesNothing) {
  for (const char* model : kModels) {
    auto opened = open(tiny_model_path(model), DType::BF16);
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    engine::Engine& e = **opened;
    const auto vocab = static_cast<size_t>(e.config().vocab_size);
    const auto run = [&](const std::vector<int64_t>& lengths) {
      std::vector<engine::Sequence> sequences;
      for (const int64_t n : lengths) sequences.emplace_back(some_tokens(n, e.config().vocab_size));
      std::vector<engine::StepItem> items;
      for (engine::Sequence& s : sequences) {
        EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
        // All but the last token of sequences of 77 come before: that one is decoded.
        if (s.size() == 77) {
          const engine::StepItem before{&s, 76};
          EXPECT_TRUE(e.step({&before, 1}).is_ok());
        }
        items.push_back({&s, s.uncached(), 1});
      }
      auto logits = e.step(items);
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      std::vector<float> out(logits->begin(), logits->end());
      for (engine::Sequence& s : sequences) e.release(s);
      return out;
    };
    const std::vector<int64_t> lengths{120, 77, 9, 40};
    const std::vector<float> all = run(lengths);
    ASSERT_EQ(all.size(), lengths.size() * vocab);
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_TRUE(same_bits(std::span(all).subspan(i * vocab, vocab), run({lengths[i]}))) << model << " " << lengths[i];
  }
}

TEST(ExpandedPrompts, AreRefusedWhereThereIsNothingToExpand) {
  auto llama = open(tiny_model_path("llama_gqa3_tied"), DType::F32);
  ASSERT_FALSE(llama.is_ok());
  EXPECT_NE(llama.status().message().find("`mla_prefill` expanded: LlamaForCausalLM has no latent attention"),
            std::string::npos)
      << llama.status().message();
  DeviceOptions ascend;
  ascend.kind = DeviceKind::Ascend;
  const testing_support::WideLatents wide("deepseek_v2_lite", 2);
  auto other = open(wide.path(), DType::BF16, {}, ascend);
  ASSERT_FALSE(other.is_ok());
  EXPECT_NE(other.status().message().find("`mla_prefill` expanded"), std::string::npos) << other.status().message();
}

}  // namespace
}  // namespace reprise::expanded_prompts_test
