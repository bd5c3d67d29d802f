// Two models on one GPU, of which one drafts for the other: a second model, a layer of the checkpoint, a head of EAGLE.
// And drafts of models that keep states. On the executor that stands in for a GPU.
#include <gtest/gtest.h>

#include "backends/all.h"
#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "sched/scheduler.h"
#include "sched/together.h"
#include "simt/kernels.h"
#include "support/chained_rounds.h"
#include "support/drafters.h"
#include "support/heads.h"
#include "support/lost_rank.h"

namespace reprise::simt::drafts_test {
namespace {

using sched::Tokens;

struct Outcome {
  std::vector<Tokens> prompts, answers;
  sched::SpeculationStats stats;
  std::vector<Tokens> guesses = {};  // in their order
};

// Keeps what is proposed: untrained heads are seldom right, so answers and counts say little of it.
class Overheard final : public spec::Drafter {
 public:
  Overheard(std::unique_ptr<spec::Drafter> inner, std::vector<Tokens>& guesses)
      : inner_(std::move(inner)), guesses_(guesses) {}
  void begin(const spec::Start& start) override { inner_->begin(start); }
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    inner_->propose(wishes, out);
    for (size_t i = 0; i < wishes.size(); ++i) guesses_.push_back(out[i].tokens);
  }
  bool foresee(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    return inner_->foresee(wishes, out);
  }
  void judged(uint64_t id, int64_t verified, int64_t accepted) override { inner_->judged(id, verified, accepted); }
  void end(uint64_t id, std::span<const int32_t> answer) override { inner_->end(id, answer); }

 private:
  std::unique_ptr<spec::Drafter> inner_;
  std::vector<Tokens>& guesses_;
};

// A greedy and a drawn answer.
Outcome answer(engine::Engine& e, sched::SchedulerOptions o = {}) {
  o.speculation.adaptive = false;
  o.speculation.draft_tokens = 4;
  sched::Scheduler scheduler(e, o);
  std::vector<std::shared_ptr<sched::Answer>> answers;
  std::vector<Tokens> prompts;
  for (int32_t i = 0; i < 2; ++i) {
    sched::Asked a = sched::ask(sched::count_up(4 + 5 * i, i), 7);
    a.request.sampling.ignore_eos = true;
    if (i == 1) a.request.sampling.temperature = 0.7, a.request.sampling.seed = 3;
    answers.push_back(a.answer);
    prompts.push_back(a.request.prompt);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  while (!scheduler.idle()) scheduler.step();
  Outcome out{std::move(prompts), {}, scheduler.stats().speculation};
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(a->tokens);
  }
  return out;
}

sched::SchedulerOptions drafts_of(engine::Executor& draft) {
  sched::SchedulerOptions o;
  o.drafter = [&draft] {
    return std::make_unique<sched::ModelDrafter>(draft, sched::ModelDrafterOptions{.most_drafts = 3});
  };
  return o;
}

// With drafts of the engine's own.
Outcome draft_and_answer(engine::Engine& e) {
  std::vector<Tokens> guesses;
  sched::SchedulerOptions o;
  o.drafter = [&] {
    return std::make_unique<Overheard>(
        std::make_unique<sched::ModelDrafter>(*e.draft(), sched::ModelDrafterOptions{.most_drafts = 3}), guesses);
  };
  Outcome out = answer(e, o);
  out.guesses = std::move(guesses);
  return out;
}

TEST(CudaDrafts, AnswersAreThoseWithoutAHead) {
  for (const auto& [model, head] : {std::pair("glm4_moe", "glm4_moe"), std::pair("llama", "llama_eagle"),
                                    std::pair("llama", "llama_full_eagle3"), std::pair("qwen3_next", "qwen3_next")}) {
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
    const Outcome plain = answer(**e), drafted = answer(**e, drafts_of(*(*e)->draft()));
    EXPECT_EQ(drafted.answers, plain.answers);
    EXPECT_GT(drafted.stats.draft_tokens, 5u);
  }
}

testing_support::HeadSetup small_with_head(const char* model, const char* head) {
  return {.model = model,
          .head = head,
          .policy = engine::GraphPolicy::Required,
          .pages = 4,
          .chunk = 16,
          .rows = 2,
          .context = 64,
          .device = DeviceKind::Cuda,
          .cuda = &stand_in()};
}

Result<std::unique_ptr<engine::LocalWorld>> open_over_ranks(const testing_support::HeadSetup& setup) {
  return engine::LocalWorld::start(2, [setup](std::shared_ptr<ranks::Member> member) {
    testing_support::HeadSetup mine = setup;
    mine.member = std::move(member);
    return testing_support::open_with_head(mine);
  });
}

// The world's answers, drafts and what came true of them are those of one rank; then the world ends.
void expect_drafts_of_one(engine::LocalWorld& world, const Outcome& one) {
  engine::Engine& front = world.front();
  ASSERT_TRUE(front.overlaps() && front.draft()->overlaps());
  const Outcome plain = answer(front), drafted = draft_and_answer(front);
  EXPECT_EQ(plain.answers, one.answers);
  EXPECT_EQ(drafted.answers, one.answers);
  EXPECT_EQ(drafted.guesses, one.guesses);
  EXPECT_EQ(drafted.stats.draft_tokens, one.stats.draft_tokens);
  EXPECT_EQ(drafted.stats.accepted_tokens, one.stats.accepted_tokens);
  EXPECT_GT(front.runner("verify")->stats().replays, 0u);
  for (const Status& end : world.stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

// Graphs freeze how many rows a head may read; also those that were recorded before the model's pool has grown.
TEST(CudaDrafts, CapturedHeadsGuessAsEagerOnes) {
  testing_support::HeadSetup setup = small_with_head("llama", "llama_eagle");
  auto captured = testing_support::open_with_head(setup);
  ASSERT_TRUE(captured.is_ok()) << captured.status().message();
  setup.policy = engine::GraphPolicy::Off;
  auto eager = testing_support::open_with_head(setup);
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  const Outcome want = draft_and_answer(**eager);
  EXPECT_EQ(draft_and_answer(**captured).guesses, want.guesses);
  ASSERT_TRUE((*captured)->resize_kv(9 * kv::kPageTokens).is_ok());
  kv::KvPool& pool = (*captured)->kv_pool();
  auto old = pool.allocate(9);
  ASSERT_TRUE(old.is_ok()) << old.status().message();
  const auto fresh = std::partition(old->begin(), old->end(), [](kv::PageId page) { return page <= 4; });
  pool.release({fresh, old->end()});  // for requests
  old->erase(fresh, old->end());
  const Outcome got = draft_and_answer(**captured);
  EXPECT_EQ(got.answers, want.answers);
  EXPECT_EQ(got.guesses, want.guesses);
  pool.release(*old);
}

// Two ranks have a part each of the model and of its head, and meet by one communicator in steps of both, which run
// beside the host.
TEST(CudaDrafts, OverRanksHeadsDraftAsOnOne) {
  for (const auto& [model, head] : {std::pair("llama", "llama_eagle"), std::pair("qwen3_next", "qwen3_next")}) {
    SCOPED_TRACE(head);
    const testing_support::HeadSetup setup = small_with_head(model, head);
    auto alone = testing_support::open_with_head(setup);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    const Outcome one = draft_and_answer(**alone);
    EXPECT_GT(one.stats.draft_tokens, 5u);
    auto world = open_over_ranks(setup);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    expect_drafts_of_one(**world, one);
  }
}

// A greedy and a drawn request in two parts of a world, each with drafts of its own part.
Outcome answer_in_parts(engine::Engine& front) {
  engine::SharedStep step(front);
  sched::Bell bell;
  std::vector<std::unique_ptr<sched::Scheduler>> parts;
  std::vector<std::shared_ptr<sched::Answer>> answers;
  for (int32_t i = 0; i < 2; ++i) {
    sched::SchedulerOptions o = drafts_of(*step.part(i).draft());
    o.bell = &bell;
    o.speculation.adaptive = false;
    o.speculation.draft_tokens = 4;
    parts.push_back(std::make_unique<sched::Scheduler>(step.part(i), o));
    sched::Asked a = sched::ask(sched::count_up(4 + 5 * i, i), 7);
    a.request.sampling.ignore_eos = true;
    if (i == 1) a.request.sampling.temperature = 0.7, a.request.sampling.seed = 3;
    answers.push_back(a.answer);
    EXPECT_TRUE(parts.back()->add(std::move(a.request)).is_ok());
  }
  sched::Together together({parts[0].get(), parts[1].get()}, bell);
  while (!parts[0]->idle() || !parts[1]->idle()) together.step();
  Outcome out;
  for (const auto& part : parts) {
    out.stats.draft_tokens += part->stats().speculation.draft_tokens;
    out.stats.accepted_tokens += part->stats().speculation.accepted_tokens;
  }
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(a->tokens);
  }
  return out;
}

// Ranks that share out requests: a head reads the rows that its part of the model has kept.
TEST(CudaDrafts, InPartsHeadsGuessAsOnOneRank) {
  for (const auto& [model, head] : {std::pair("deepseek_v3", "deepseek_v3"), std::pair("llama", "llama_eagle")}) {
    SCOPED_TRACE(head);
    testing_support::HeadSetup setup = small_with_head(model, head);
    setup.rows = 8, setup.chunk = 32;
    auto alone = testing_support::open_with_head(setup);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    const Outcome plain = answer(**alone);
    setup.parts = 2;
    if (model == head) setup.ep_size = 2;
    auto world = open_over_ranks(setup);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& front = (*world)->front();
    {
      const Tokens longer = sched::count_up(9), shorter = sched::count_up(5, 3);
      testing_support::HeldText first(front, longer, 3, 0), second(front, shorter, 3, 1);
      for (const auto& [text, held] : {std::pair(&longer, &first), {&shorter, &second}, {&longer, &first}}) {
        const testing_support::Guess want = testing_support::guess(**alone, *text, 3), got = held->guess();
        EXPECT_TRUE(testing_support::same_bits(got.logits, want.logits)) << text->size();
        EXPECT_TRUE(testing_support::same_bits(got.chain_logits, want.chain_logits)) << text->size();
      }
    }
    const Outcome many = answer_in_parts(front);
    EXPECT_EQ(many.answers, plain.answers);
    EXPECT_GT(many.stats.draft_tokens, 5u);
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

TEST(CudaDrafts, ARankThatIsLostInADraftEndsAll) {
  for (const int step : {1, 2, 4}) {
    SCOPED_TRACE(step);
    auto world = open_over_ranks(small_with_head("llama", "llama_eagle"));
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    testing_support::expect_end_in_a_draft(**world, step);
  }
}

engine::EngineOptions options_for(const std::string& model) {
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.dtype = DType::BF16;
  o.context_length = 64;
  o.chunked_prefill_size = 16;
  o.max_running_requests = 2;
  o.max_total_tokens = 4 * kv::kPageTokens;
  o.graph.policy = engine::GraphPolicy::Required;
  o.graph.decode_sizes = {2};
  o.graph.prefill_sizes = {16};
  return o;
}

Result<std::unique_ptr<engine::Engine>> open_on_stand_in(engine::EngineOptions o) {
  DeviceOptions device;
  device.kind = DeviceKind::Cuda;
  device.cuda_stand_in = &stand_in();
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  return engine::Engine::create(std::move(o), std::move(platform));
}

// What a step leaves in a state are its own tokens; drafts of it that came true come with the next step. Steps of one
// sequence follow each other on the device, and those of both are submitted ahead.
TEST(CudaDrafts, AModelWithStatesTakesBackWhatWasWrong) {
  for (const char* model : {"qwen3_next", "qwen3_5", "granite_hybrid"}) {
    SCOPED_TRACE(model);
    engine::EngineOptions o = options_for(model);
    o.most_drafts = 3;
    o.graph.verify = {4, true, 0};
    auto e = open_on_stand_in(std::move(o));
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    ASSERT_TRUE((*e)->has_states() && (*e)->overlaps());
    EXPECT_EQ((*e)->verify_refusal(), "");
    EXPECT_EQ((*e)->max_drafts(), 3);
    const Outcome plain = answer(**e);
    std::vector<Tokens> texts = plain.prompts;
    for (size_t i = 0; i < texts.size(); ++i)
      texts[i].insert(texts[i].end(), plain.answers[i].begin(), plain.answers[i].end());
    sched::SchedulerOptions options;
    options.drafter = [&] {
      return std::make_unique<testing_support::TestDrafter>(
          testing_support::TestDrafter::Options{.wrong = 0.4, .vocab = static_cast<int32_t>((*e)->vocab_size())},
          testing_support::from_script(texts));
    };
    const Outcome drafted = answer(**e, options);
    EXPECT_EQ(drafted.answers, plain.answers);
    EXPECT_GT(drafted.stats.accepted_tokens, 2u);
    EXPECT_GT(drafted.stats.draft_tokens, drafted.stats.accepted_tokens);
    EXPECT_GT((*e)->runner("verify")->stats().replays, 0u);
    EXPECT_TRUE((*e)->runner("verify")->stats().fallbacks.empty());
    EXPECT_EQ((*e)->state_pool().free_slots(), (*e)->state_pool().slots() - 2);
  }
}

TEST(CudaDrafts, WithoutSizesForDraftsAModelWithStatesSaysSo) {
  engine::EngineOptions o = options_for("qwen3_5");
  o.most_drafts = 3;
  const auto e = open_on_stand_in(std::move(o));
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ((*e)->max_drafts(), 0);
  EXPECT_EQ((*e)->verify_refusal(),
            "the device's graphs freeze the sizes of a step, and it was started without sizes for drafts");
}

// Rounds of a draft model that are submitted before the one in front is waited for, and take its tokens on the device.
TEST(CudaDrafts, ChainedRoundsGuessWhatRoundsOneByOneGuess) {
  engine::EngineOptions o = options_for("qwen3_tied");
  o.max_running_requests = 3;
  o.graph.decode_sizes = {3};
  o.graph.choose_by_cost = false;
  o.graph.verify = {6, true, engine::VerifyRows::kSequences};
  o.max_total_tokens = 8 * kv::kPageTokens;
  auto e = open_on_stand_in(std::move(o));
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  ASSERT_TRUE((*e)->overlaps());
  const std::vector<Tokens> texts{sched::count_up(9), sched::count_up(20, 3), sched::count_up(14, 1)};
  const auto one_by_one = testing_support::draft_rounds(**e, false, texts, 3),
             chained = testing_support::draft_rounds(**e, true, texts, 3);
  EXPECT_EQ(one_by_one.most_in_flight, 1);
  EXPECT_EQ(chained.most_in_flight, 2);
  EXPECT_GT(testing_support::expect_same_guesses(chained, one_by_one), 12u);
  EXPECT_GT((*e)->runner("decode")->stats().replays, 0u);
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
  const Outcome plain = answer(*engines[0]), drafted = answer(*engines[0], drafts_of(*engines[1]));
  EXPECT_EQ(drafted.answers, plain.answers);
  EXPECT_GT(drafted.stats.draft_tokens, 5u);
  EXPECT_EQ(drafted.stats.accepted_tokens, drafted.stats.draft_tokens);
}

// A model, and one of the same files that drafts for it.
Result<std::unique_ptr<engine::Engine>> open_with_itself(std::shared_ptr<ranks::Member> member, int64_t parts = 1) {
  DeviceOptions device;
  device.kind = DeviceKind::Cuda;
  device.cuda_stand_in = &stand_in();
  device.member = member;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  device.shared = platform.device;
  ASSIGN_OR_RETURN(Platform shared, make_platform(device));
  engine::EngineOptions o = options_for("qwen3_tied");
  o.member = std::move(member);
  o.sequence_parts = parts;
  o.graph.verify = {4, true, engine::VerifyRows::kSequences};
  ASSIGN_OR_RETURN(auto draft, engine::Engine::create(o, std::move(shared)));
  o.graph.verify = {4, true, 0};
  ASSIGN_OR_RETURN(auto model, engine::Engine::create(o, std::move(platform)));
  RETURN_IF_ERROR(model->set_draft(std::move(draft)));
  return model;
}

Result<std::unique_ptr<engine::LocalWorld>> open_over_ranks_with_itself(int64_t parts) {
  return engine::LocalWorld::start(
      2, [parts](std::shared_ptr<ranks::Member> member) { return open_with_itself(std::move(member), parts); });
}

TEST(CudaDrafts, OverRanksAModelDraftsAsOnOne) {
  auto alone = open_with_itself(nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Outcome one = draft_and_answer(**alone);
  EXPECT_GT(one.stats.accepted_tokens, 5u);
  auto world = open_over_ranks_with_itself(1);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  expect_drafts_of_one(**world, one);
}

TEST(CudaDrafts, InPartsAModelDraftsAsOnOneRank) {
  auto alone = open_with_itself(nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Outcome one = answer(**alone);
  auto world = open_over_ranks_with_itself(2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Outcome many = answer_in_parts((*world)->front());
  EXPECT_EQ(many.answers, one.answers);
  EXPECT_GT(many.stats.draft_tokens, 5u);
  EXPECT_EQ(many.stats.accepted_tokens, many.stats.draft_tokens);
  EXPECT_GT((*world)->front().runner("verify")->stats().replays, 0u);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

}  // namespace
}  // namespace reprise::simt::drafts_test
