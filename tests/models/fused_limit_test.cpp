// Decode sizes above --torch-compile-max-bs run a plan without fusions, sizes up to it the fused one, with the same
// bits (F32); warm-ups before a capture are counted and change nothing (F11).
#include <gtest/gtest.h>

#include "support/tiny_models.h"

namespace reprise::fused_limit_test {
namespace {

using testing_support::same_bits;

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const engine::GraphOptions& graph) {
  ASSIGN_OR_RETURN(Platform platform, make_platform({DeviceKind::Cpu, "auto", 2, false}));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.chunked_prefill_size = 64;
  o.max_running_requests = 20;
  o.max_total_tokens = 20 * 128;
  o.graph = graph;
  return engine::Engine::create(o, std::move(platform));
}

// One prompt token each, then a decode step of `batch`; its logits.
std::vector<float> decode_step(engine::Engine& e, int64_t batch) {
  std::vector<engine::Sequence> sequences;
  std::vector<engine::StepItem> items;
  for (int64_t i = 0; i < batch; ++i) sequences.emplace_back(std::vector<int32_t>{static_cast<int32_t>(3 + 5 * i)});
  for (auto& s : sequences) {
    EXPECT_TRUE(e.reserve(s, 2).is_ok());
    items.push_back({&s, 1, 1});
  }
  std::vector<float> out;
  for (int step = 0; step < 2; ++step) {
    auto logits = e.step(items);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (logits.is_ok()) out.assign(logits->begin(), logits->end());
    for (auto& s : sequences)
      if (s.size() < 2) s.append(7);
  }
  for (auto& s : sequences) e.release(s);
  return out;
}

int count_fused(const Graph& g) {
  const nn::FusedOps fused = nn::fused_ops();
  int n = 0;
  for (const Node* node = g.first(); node; node = node->next)
    for (const nn::FusedOp& op : fused.all()) n += op.name() == node->op->name;
  return n;
}

TEST(FusedLimit, SizesUpToItRunFusedAndLargerOnesUnfused) {
  for (const char* model : {"qwen3_tied", "llama_gqa3_tied", "qwen2_untied", "qwen2_moe_shared", "mixtral_top2"}) {
    SCOPED_TRACE(model);
    engine::GraphOptions limited;
    limited.fused_decode_max = 9;  // between the sizes 8 and 12
    auto e = open(model, limited);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    auto all = open(model, {});
    ASSERT_TRUE(all.is_ok());
    const auto& runner = *(*e)->runner("decode");
    const CompiledModel& fused = runner.model(9);
    const CompiledModel& unfused = runner.model(10);
    EXPECT_GT(count_fused(fused.graph()), 0);
    EXPECT_EQ(count_fused(unfused.graph()), 0);
    EXPECT_GT(unfused.launches(), fused.launches());
    for (int64_t batch = 1; batch <= 20; ++batch) {
      const uint64_t before[] = {fused.counters().replays, unfused.counters().replays};
      EXPECT_TRUE(same_bits(decode_step(**e, batch), decode_step(**all, batch))) << batch;
      // Two decode steps, each of a body and a head; the size decides, so a batch of 9 runs at 12.
      EXPECT_EQ(fused.counters().replays - before[0], batch <= 8 ? 4u : 0u) << batch;
      EXPECT_EQ(unfused.counters().replays - before[1], batch <= 8 ? 0u : 4u) << batch;
    }
  }
}

TEST(FusedLimit, ALimitAboveTheLargestBatchChangesNothing) {
  engine::GraphOptions o;
  o.fused_decode_max = 20;
  auto e = open("qwen3_tied", o);
  ASSERT_TRUE(e.is_ok());
  const auto& runner = *(*e)->runner("decode");
  EXPECT_EQ(runner.models().size(), 1u);
  EXPECT_GT(count_fused(runner.model(20).graph()), 0);
}

TEST(FusedLimit, EagerStepsObeyItAsWell) {
  engine::GraphOptions o;
  o.fused_decode_max = 4;
  o.decode = GraphMode::Eager;
  auto e = open("qwen3_tied", o);
  ASSERT_TRUE(e.is_ok());
  const auto& runner = *(*e)->runner("decode");
  const CompiledModel& fused = runner.model(4);
  const CompiledModel& unfused = runner.model(5);
  (void)decode_step(**e, 4);
  EXPECT_GT(fused.counters().launches, 0u);
  EXPECT_EQ(unfused.counters().launches, 0u);
  (void)decode_step(**e, 5);
  EXPECT_GT(unfused.counters().launches, 0u);
}

TEST(Warmups, AreCountedAndChangeNoBits) {
  auto plain = open("qwen3_tied", {});
  engine::GraphOptions o;
  o.warmups = 2;
  auto warm = open("qwen3_tied", o);
  ASSERT_TRUE(plain.is_ok() && warm.is_ok());
  for (const auto* runner : {(*plain)->runner("decode"), (*plain)->runner("prefill")})
    EXPECT_EQ(runner->stats().warmups, 0u);
  for (const auto* runner : {(*warm)->runner("decode"), (*warm)->runner("prefill")})
    EXPECT_EQ(runner->stats().warmups, 2u);
  for (int64_t batch : {1, 7, 20}) EXPECT_TRUE(same_bits(decode_step(**plain, batch), decode_step(**warm, batch)));
}

}  // namespace
}  // namespace reprise::fused_limit_test
