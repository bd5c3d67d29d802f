// F58: what a step copies. Where the host reads and writes the device's memory, nothing; where it does not, one result
// comes back a step and no table, length or position ever does.
#include <gtest/gtest.h>

#include "support/computing_platforms.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::host_copies_test {
namespace {

using testing_support::ComputingPlatform;
using testing_support::Traffic;

Result<std::unique_ptr<engine::Engine>> open(ComputingPlatform kind, testing_support::Taken& taken, bool captured) {
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("qwen3_untied");
  o.dtype = dtype_of(kind);
  o.context_length = 256;
  o.max_running_requests = 3;
  o.chunked_prefill_size = 64;
  o.max_total_tokens = 4 * 256;
  o.graph.decode_sizes = {3};
  o.graph.prefill_sizes = {64};
  if (!captured) o.graph.policy = engine::GraphPolicy::Off;
  ASSIGN_OR_RETURN(Platform p, make_computing_platform(kind, taken));
  return engine::Engine::create(o, std::move(p));
}

class HostCopies : public testing::TestWithParam<ComputingPlatform> {};

TEST_P(HostCopies, AreTheResultAlone) {
  const bool host_visible = GetParam() == ComputingPlatform::Cpu;
  for (const bool captured : {true, false}) {
    SCOPED_TRACE(captured ? "captured" : "eager");
    testing_support::Taken taken;
    auto e = open(GetParam(), taken, captured);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    ASSERT_EQ((*e)->device().info().host_visible, host_visible);
    Traffic traffic(**e, {5, 60, 17}, 12);
    for (const engine::StepItem& prompt : traffic.items()) ASSERT_TRUE((*e)->step({&prompt, 1}).is_ok());
    const auto copies_of = [&](const auto& step) {
      traffic.append();
      const StreamStats before = (*e)->stream_stats();
      step();
      const StreamStats after = (*e)->stream_stats();
      EXPECT_EQ(after.replays > before.replays, captured);
      return std::pair{after.copies_to_host - before.copies_to_host, after.copies_to_device - before.copies_to_device};
    };
    uint64_t inputs = 0;
    for (int i = 0; i < 4; ++i) {
      const auto [logits, sent] = copies_of([&] { ASSERT_TRUE((*e)->step(traffic.items()).is_ok()); });
      EXPECT_EQ(logits, host_visible ? 0u : 1u) << "the logits";
      if (i == 0) inputs = sent;
      EXPECT_EQ(sent, inputs) << "no more inputs than in the step before";
      EXPECT_EQ(sent == 0, host_visible);
    }
    const auto [greedy, sent] = copies_of([&] { ASSERT_TRUE((*e)->step_greedy(traffic.items()).is_ok()); });
    EXPECT_EQ(greedy, host_visible ? 0u : 2u) << "the tokens, and the hidden states that are looked through for NaN";
    EXPECT_EQ(sent, inputs);
    for (const engine::StepRunner* runner : {(*e)->runner("decode"), (*e)->runner("prefill")})
      for (const CompiledModel* m : runner->models()) EXPECT_EQ(m->graph_stats().copies_to_host, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(, HostCopies, testing_support::kComputingPlatforms, testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::host_copies_test
