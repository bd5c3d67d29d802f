// Two models on one GPU, of which one drafts for the other: a second model, a layer of the checkpoint, a head of EAGLE.
// On the executor that stands in for a GPU.
#include <gtest/gtest.h>

#include "backends/all.h"
#include "sched/model_drafter.h"
#include "sched/scheduler.h"
#include "simt/kernels.h"
#include "support/answers.h"
#include "support/heads.h"

namespace reprise::simt::drafts_test {
namespace {

using sched::Tokens;

struct Outcome {
  std::vector<Tokens> answers;
  sched::SpeculationStats stats;
};

// A greedy and a drawn answer.
Outcome answer(engine::Engine& e, engine::Executor* draft) {
  sched::SchedulerOptions o;
  o.speculation.adaptive = false;
  o.speculation.draft_tokens = 4;
  if (draft)
    o.drafter = [&] {
      return std::make_unique<sched::ModelDrafter>(*draft, sched::ModelDrafterOptions{.most_drafts = 3});
    };
  sched::Scheduler scheduler(e, o);
  std::vector<std::shared_ptr<sched::Answer>> answers;
  for (int32_t i = 0; i < 2; ++i) {
    sched::Asked a = sched::ask(sched::count_up(4 + 5 * i, i), 7);
    a.request.sampling.ignore_eos = true;
    if (i == 1) a.request.sampling.temperature = 0.7, a.request.sampling.seed = 3;
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  while (!scheduler.idle()) scheduler.step();
  Outcome out{{}, scheduler.stats().speculation};
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(a->tokens);
  }
  return out;
}

TEST(CudaDrafts, AnswersAreThoseWithoutAHead) {
  for (const auto& [model, head] : {std::pair("glm4_moe", "glm4_moe"), std::pair("llama", "llama_eagle"),
                                    std::pair("llama", "llama_full_eagle3")}) {
    SCOPED_TRACE(head);
    auto e = testing_support::open_with_head({.model = model,
                                              .head = head,
                                              .policy = engine::GraphPolicy::Required,
                                              .pages = 4,
                                              .chunk = 16,
                                              .rows = 2,
                                              .context = 64,
                                              .device = DeviceKind::Cuda,
                                              .cuda = &stand_in()});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_EQ(&static_cast<engine::Engine*>((*e)->draft())->device(), &(*e)->device());
    const Outcome plain = answer(**e, nullptr), drafted = answer(**e, (*e)->draft());
    EXPECT_EQ(drafted.answers, plain.answers);
    EXPECT_GT(drafted.stats.draft_tokens, 5u);
  }
}

// With these sizes the second one has no steps with several rows of a text, and reads what came true before.
// The model itself drafts: what it draws is what it drew before, so that every draft comes true.
TEST(CudaDrafts, AModelDraftsForItself) {
  DeviceOptions device;
  device.kind = DeviceKind::Cuda;
  device.cuda_stand_in = &stand_in();
  std::vector<std::unique_ptr<engine::Engine>> engines;
  for (const bool second : {false, true}) {
    auto platform = make_platform(device);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    device.shared = platform->device;
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("llama_gqa3_tied");
    o.dtype = DType::BF16;
    o.context_length = 64;
    o.chunked_prefill_size = 16;
    o.max_running_requests = 2;
    o.max_total_tokens = 4 * kv::kPageTokens;
    o.graph.decode_sizes = {2};
    o.graph.prefill_sizes = {16};
    o.graph.verify = {4, true, second ? engine::VerifyRows::kSequences : 0};
    auto e = engine::Engine::create(o, std::move(*platform));
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    engines.push_back(std::move(*e));
  }
  const Outcome plain = answer(*engines[0], nullptr), drafted = answer(*engines[0], engines[1].get());
  EXPECT_EQ(drafted.answers, plain.answers);
  EXPECT_GT(drafted.stats.draft_tokens, 5u);
  EXPECT_EQ(drafted.stats.accepted_tokens, drafted.stats.draft_tokens);
}

}  // namespace
}  // namespace reprise::simt::drafts_test
