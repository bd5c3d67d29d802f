// What benchmarks are made of: known answers as drafts, cases of ops, levels of caches, the system's page cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/all.h"
#include "measurement/cache_probe.h"
#include "measurement/known_text.h"
#include "measurement/machine_probe.h"
#include "measurement/op_bench.h"
#include "measurement/op_cases.h"
#include "measurement/page_cache.h"
#include "support/folder.h"

namespace reprise::measurement::bench_test {
namespace {

using testing_support::content_of;
using testing_support::Folder;

TEST(BenchOneBatch, KnownAnswersAreDraftedWithAChanceToBeRight) {
  // Of 2,000 places, whichever drafts are made of them: the same ones again.
  KnownText::Texts texts{{7, {}}};
  for (int32_t i = 0; i < 2000; ++i) texts[7].push_back(i % 11);
  KnownText drafter(texts, 0.8, 11, 3);
  spec::Proposal all, some;
  const auto propose = [&](uint64_t id, size_t known, int64_t most, spec::Proposal& out) {
    const spec::Wish wish{id, std::span(texts[7]).first(known), most};
    drafter.propose({&wish, 1}, {&out, 1});
  };
  propose(7, 0, 2000, all);
  ASSERT_EQ(all.tokens.size(), 2000u);
  int64_t right = 0;
  for (size_t i = 0; i < all.tokens.size(); ++i) {
    right += all.tokens[i] == texts[7][i];
    EXPECT_TRUE(all.tokens[i] >= 0 && all.tokens[i] < 11);
  }
  EXPECT_NEAR(static_cast<double>(right), 1600, 4 * std::sqrt(2000 * 0.8 * 0.2));
  propose(7, 1996, 7, some);
  EXPECT_TRUE(std::equal(some.tokens.begin(), some.tokens.end(), all.tokens.end() - 4, all.tokens.end()));
  EXPECT_NEAR(some.survival[2], 0.8 * 0.8 * 0.8, 1e-6);
  propose(8, 5, 3, some);
  EXPECT_TRUE(some.tokens.empty());
}

// What an extension brings has no place in a model; it runs on its own example.
TEST(BenchOps, UnknownFusedOpsHaveTheirExamples) {
  nn::FusedOps fused = nn::fused_ops();
  nn::FusedOp op = *fused.find("silu_mul");
  op.decl = "silu_mul_again(Tensor gate_up) -> Tensor";
  fused.add(op);
  const std::vector<OpCase> cases = op_cases("silu_mul_again", fused, 9);
  ASSERT_EQ(cases.size(), op.examples.size());
  EXPECT_EQ(cases[0].model, "example");
  EXPECT_TRUE(cases[0].fused);
  EXPECT_EQ(cases[0].live(4).value[1], 4);
  EXPECT_EQ(cases[0].bounds().value[1], 9);
  EXPECT_EQ(benchmarked_ops(fused).at(fused.all().size() - 1), "silu_mul_again");
}

TEST(BenchOps, ModelsAreThoseThatCasesHave) {
  const auto models = benchmarked_models(nn::fused_ops());
  for (const char* name : {"SmolLM2-135M", "gpt-oss-20b", "Gemma-2-2B", "Qwen3-Next-80B-A3B", "launch-bound"})
    EXPECT_EQ(std::count(models.begin(), models.end(), name), 1) << name;
  EXPECT_EQ(std::count(models.begin(), models.end(), "example"), 0);
}

// The limit of attention counts the keys that are seen: within the window, and of a prompt no later ones.
TEST(BenchOps, AttentionIsLimitedByWhatItSees) {
  DeviceOptions device;
  device.threads = 1;
  auto platform = make_platform(device);
  ASSERT_TRUE(platform.is_ok()) << platform.status().message();
  const nn::FusedOps fused = nn::fused_ops();
  see::MachineSpeed slow;
  slow.fp32_gflops = 1;
  CacheSpeeds caches;
  caches.threads = 1;
  caches.levels = {{"memory", 0, 0, 1e6}};
  constexpr double kToken = 2 * 64 * 4, kPair = 2 * 2 * (64 + 64);  // bytes; operations of both heads
  int steps = 0, prompts = 0;
  for (OpCase c : op_cases("paged_attention", fused, 200)) {
    if (c.model != "launch-bound" || !c.attrs.find("window")) continue;  // the one without sinks has none
    const auto limit = [&](int64_t window, int64_t tokens) {
      c.attrs.set("window", window);
      auto bench = OpBench::make(c, DType::F32, fused, *platform);
      EXPECT_TRUE(bench.is_ok()) << bench.status().message();
      return bench.is_ok() ? (*bench)->limit(tokens, slow, caches) : OpLimit{};
    };
    const OpLimit all = limit(0, 3), windowed = limit(128, 3);
    if (c.one_sequence) {
      ++prompts;
      EXPECT_EQ(all.bytes, windowed.bytes);
      EXPECT_NEAR(limit(0, 200).us, 200 * 201 / 2 * kPair * 1e-3, 1e-6);
      EXPECT_NEAR(limit(128, 200).us, (128 * 129 / 2 + 72 * 128) * kPair * 1e-3, 1e-6);
    } else {
      ++steps;
      EXPECT_EQ(all.bytes - windowed.bytes, 3 * 128 * kToken);
      EXPECT_NEAR(windowed.us, 3 * 128 * kPair * 1e-3, 1e-6);
    }
  }
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(prompts, 1);
}

TEST(CacheSpeeds, TheLevelIsTheOneTheBytesFitIn) {
  CacheSpeeds s;
  s.threads = 2;
  s.levels = {{"L1", 0, 0, 4}, {"L2", 100, 0, 3}, {"memory", 1000, 0, 1}};
  EXPECT_EQ(s.level_for(0).name, "L1");
  EXPECT_EQ(s.level_for(200).name, "L1");
  EXPECT_EQ(s.level_for(201).name, "L2");
  EXPECT_EQ(s.level_for(2000).name, "L2");
  EXPECT_EQ(s.level_for(1e9).name, "memory");
}

TEST(PageCache, CountsWhatIsInMemory) {
  const Folder folder;
  EXPECT_EQ(page_cache_share(folder.path()), 0) << "no files";
  EXPECT_EQ(page_cache_share(folder / "none"), 0);
  folder.write("a", std::string(100'001, 'a'));
  std::filesystem::create_directories(folder / "sub");
  folder.write("sub/b", std::string(5000, 'b'));
  EXPECT_EQ(page_cache_share(folder.path()), 1);
  EXPECT_EQ(page_cache_share(folder / "a"), 1);
  evict_from_page_cache(folder.path());  // a file system in memory keeps them
  const double left = page_cache_share(folder.path());
  EXPECT_TRUE(left >= 0 && left <= 1) << left;
  EXPECT_EQ(content_of(folder / "sub/b"), std::string(5000, 'b'));
}

TEST(MachineJson, WarnsOfOtherLoad) {
  see::MachineSpeed speed;
  EXPECT_TRUE(machine_json({}, speed)["warnings"].empty());
  speed.other_load = 1;
  EXPECT_EQ(machine_json({}, speed)["warnings"].size(), 1u);
}

}  // namespace
}  // namespace reprise::measurement::bench_test
