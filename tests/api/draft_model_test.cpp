// A second model that drafts: opened beside the first one, with a pool for as many tokens, and refused where its
// vocabulary is another.
#include "api/draft_model.h"

#include <gtest/gtest.h>

#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "sched/generator.h"
#include "sched/together.h"

namespace reprise::api {
namespace {

std::string tiny(const std::string& name) { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/" + name; }

ModelSettings with_draft(const std::string& name) {
  ModelSettings s;
  s.model_path = tiny("llama_gqa3_tied");
  s.device = "cpu";
  s.threads = 1;
  s.max_total_tokens = 1024;
  s.speculation.algorithm = "STANDALONE";
  s.speculation.draft_model_path = tiny(name);
  return s;
}

TEST(DraftModel, IsOpenedBesideTheModel) {
  ModelSettings s = with_draft("llama_mha_untied");
  ASSERT_TRUE(s.check().is_ok());
  auto engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  engine::Engine* draft = (*engine)->draft();
  ASSERT_NE(draft, nullptr);
  EXPECT_EQ(&draft->device(), &(*engine)->device());  // one team of threads
  EXPECT_EQ(draft->memory().kv_pages, (*engine)->memory().kv_pages);
  EXPECT_EQ((*engine)->memory().kv_pages, 8);
  EXPECT_GT(draft->memory().weight_bytes, 0u);
  s.speculation = {};
  auto alone = open_engine(s);
  ASSERT_TRUE(alone.is_ok());
  EXPECT_EQ((*alone)->draft(), nullptr);
}

TEST(DraftModel, MayBeALayerOfTheCheckpoint) {
  for (const std::string& name : std::vector<std::string>{"deepseek_v3", "qwen3_next"}) {
    SCOPED_TRACE(name);
    ModelSettings s = with_draft("");
    s.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/" + name;
    s.speculation.algorithm = "NEXTN";
    s.speculation.draft_model_path = {};
    auto engine = open_engine(s);
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    ASSERT_NE((*engine)->draft(), nullptr);
    EXPECT_TRUE((*engine)->draft()->reads_source());
    EXPECT_EQ((*engine)->options().kept_rows, engine::KeptRows::Last);
    EXPECT_TRUE((*engine)->options().prediction_beside);
    EXPECT_EQ((*engine)->verify_refusal(), "");
    if (!(*engine)->has_states()) continue;
    EXPECT_EQ((*engine)->max_drafts(), 3) << "as many as the settings say fit a state";
    s.speculation.algorithm = "none";
    auto alone = open_engine(s);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    EXPECT_EQ((*alone)->max_drafts(), 0);
    EXPECT_LT((*alone)->memory().state_bytes, (*engine)->memory().state_bytes);
  }
}

// What both models and both pools take is within the fraction: the second model's share is not given out twice.
TEST(DraftModel, MemoryOfBothIsPlanned) {
  ModelSettings s = with_draft("llama_mha_untied");
  s.max_total_tokens = 0;
  auto engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const engine::Beside& beside = (*engine)->options().beside;
  const engine::MemoryReport draft = (*engine)->draft()->memory();
  EXPECT_EQ(beside.bytes, draft.weight_bytes + draft.activation_bytes);
  EXPECT_EQ(beside.page_bytes, draft.kv_page_bytes);
  EXPECT_EQ(draft.kv_pages, (*engine)->memory().kv_pages);
}

// Both on one card. What a head of three layers needs, it does not do: the model is served without drafts.
TEST(DraftModel, IsOnTheCardOfTheModel) {
  ModelSettings s = with_draft("llama_mha_untied");
  s.device = "ascend";
  s.ascend_runtime = "sim";
  s.dtype = "bfloat16";
  s.max_running_requests = 2;
  s.chunked_prefill_size = 16;
  s.graph.graph = "off";
  auto engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  ASSERT_NE((*engine)->draft(), nullptr);
  EXPECT_EQ(&(*engine)->draft()->device(), &(*engine)->device());
  EXPECT_GT((*engine)->max_verify_rows(), 2);
  EXPECT_EQ((*engine)->draft()->max_verify_rows(), 2);  // its steps have no more rows than sequences
  s.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/llama";
  s.speculation.algorithm = "EAGLE3";
  s.speculation.draft_model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/llama_eagle3";
  engine = open_engine(s);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  ASSERT_NE((*engine)->draft(), nullptr);
  EXPECT_EQ(&(*engine)->draft()->device(), &(*engine)->device());
  EXPECT_GT((*engine)->max_verify_rows(), 2);
  s.speculation.exact = "required";
  EXPECT_FALSE(open_engine(s).is_ok());
}

TEST(DraftModel, OfAnotherVocabularyIsAnError) {
  const auto engine = open_engine(with_draft("qwen3_tied"));
  ASSERT_FALSE(engine.is_ok());
  const std::string& message = engine.status().message();
  EXPECT_NE(message.find("its vocabulary has 307 tokens and that of the model 263; allowed: a model of the same"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("`speculative_draft_model_path`"), std::string::npos) << message;
}

struct Guessed {
  std::vector<std::vector<int32_t>> answers;
  uint64_t drafts = 0, accepted = 0;
  bool operator==(const Guessed&) const = default;
};

// Answers of some tokens to prompts of 5, 5 + `more`, ... tokens.
Guessed guesses(engine::Engine& e, const ModelSettings& s, size_t prompts, int32_t more, int64_t tokens) {
  sched::GeneratorOptions o;
  const auto speculation = s.speculation.options();
  EXPECT_TRUE(speculation.is_ok()) << speculation.status().message();
  o.speculation = *speculation;
  o.speculation.adaptive = false;
  sched::Generator generator(e, o);
  std::vector<sched::GenerationRequest> requests(prompts);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int32_t t = 0; t < 5 + more * static_cast<int32_t>(i); ++t)
      requests[i].prompt.push_back(3 + (t * t + 7 * t) % 120);
    requests[i].sampling.max_new_tokens = tokens;
    requests[i].sampling.ignore_eos = true;
  }
  const auto results = generator.run(requests);
  EXPECT_TRUE(results.is_ok()) << results.status().message();
  Guessed out;
  if (results.is_ok())
    for (const auto& r : *results) out.answers.push_back(r.tokens);
  out.drafts = generator.speculation().draft_tokens;
  out.accepted = generator.speculation().accepted_tokens;
  return out;
}

Result<std::unique_ptr<engine::LocalWorld>> open_world(ModelSettings s, int ranks) {
  s.tp_size = ranks;
  RETURN_IF_ERROR(s.check());
  return engine::LocalWorld::start(
      ranks,
      [s](std::shared_ptr<ranks::Member> member) {
        ModelSettings mine = s;
        mine.member = std::move(member);
        return open_engine(mine);
      },
      std::chrono::seconds(120));
}

// Every rank has a part of both models; what is guessed, and how much of it comes true, is what one rank guesses.
TEST(DraftModel, GuessesOverRanksAsOnOne) {
  for (const std::string name : {"llama_gqa3_tied", "llama_mha_untied"}) {
    SCOPED_TRACE(name);
    const ModelSettings s = with_draft(name);
    auto alone = open_engine(s);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    const Guessed one = guesses(**alone, s, 3, 40, 20);
    EXPECT_GT(one.drafts, 20u);
    auto world = open_world(s, 3);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& front = (*world)->front();
    EXPECT_EQ(guesses(front, s, 3, 40, 20), one);
    EXPECT_LT(front.draft()->memory().weight_bytes, (*alone)->draft()->memory().weight_bytes);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ((*world)->at(rank).draft()->memory().kv_pages, front.memory().kv_pages) << rank;
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

// Likewise on simulated cards, whose steps run beside the host and are captured for drafts; the model itself drafts, so
// that most of what it guesses comes true.
TEST(DraftModel, GuessesOverCardsAsOnOne) {
  ModelSettings s = with_draft("llama_gqa3_tied");
  s.device = "ascend";
  s.ascend_runtime = "sim";
  s.dtype = "bfloat16";
  s.context_length = 64;
  s.max_running_requests = 2;
  s.chunked_prefill_size = 16;
  auto alone = open_engine(s);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Guessed one = guesses(**alone, s, 2, 6, 9);
  EXPECT_GT(one.accepted, 5u);
  auto world = open_world(s, 2);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  EXPECT_EQ(&front.draft()->device(), &front.device());
  EXPECT_TRUE(front.overlaps() && front.draft()->overlaps());
  EXPECT_EQ(guesses(front, s, 2, 6, 9), one);
  EXPECT_GT(front.runner("verify")->stats().replays, 0u);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  ModelSettings plain = s;
  plain.speculation = {};
  auto without = open_world(plain, 2);
  ASSERT_TRUE(without.is_ok()) << without.status().message();
  EXPECT_EQ(guesses((*without)->front(), plain, 2, 6, 9).answers, one.answers);
}

struct Kept final : sched::RequestSink {
  explicit Kept(std::vector<int32_t>& out) : tokens(out) {}
  bool token(const sched::SampledToken& t, sched::FinishReason) override { return tokens.push_back(t.token), true; }
  void finished(const sched::RequestResult& r) override { EXPECT_TRUE(r.status.is_ok()) << r.status.message(); }
  std::vector<int32_t>& tokens;
};

// Ranks in parts, of which the last one has no requests, answer as one rank; each part drafts for its own requests. How
// many drafts came true in the parts that have some.
std::vector<uint64_t> expect_guesses_in_parts(ModelSettings s, int ranks, int parts, int64_t experts = 1) {
  const auto speculation = s.speculation.options();
  EXPECT_TRUE(speculation.is_ok()) << speculation.status().message();
  auto alone = open_engine(s);
  EXPECT_TRUE(alone.is_ok()) << alone.status().message();
  s.serving = s.enable_dp_attention = true;
  s.dp_size = parts;
  s.ep_size = experts;
  auto world = open_world(s, ranks);
  EXPECT_TRUE(world.is_ok()) << world.status().message();
  if (!alone.is_ok() || !world.is_ok()) return {};
  const Guessed one = guesses(**alone, s, 4, 13, 12);
  engine::SharedStep step((*world)->front());
  sched::Bell bell;
  sched::SchedulerOptions o;
  o.bell = &bell;
  o.speculation = *speculation;
  o.speculation.adaptive = false;
  std::vector<std::unique_ptr<sched::Scheduler>> owned;
  std::vector<sched::Scheduler*> all;
  for (int part = 0; part < parts; ++part) {
    owned.push_back(std::make_unique<sched::Scheduler>(step.part(part), o));
    all.push_back(owned.back().get());
  }
  sched::Together together(all, bell);
  std::vector<std::vector<int32_t>> answers(one.answers.size());
  const size_t busy = parts > 2 ? 2 : 1;
  for (size_t i = 0; i < answers.size(); ++i) {
    sched::Request r;
    for (int32_t t = 0; t < 5 + 13 * static_cast<int32_t>(i); ++t) r.prompt.push_back(3 + (t * t + 7 * t) % 120);
    r.sampling.max_new_tokens = 12;
    r.sampling.ignore_eos = true;
    r.sampling.temperature = 0;
    r.sink = std::make_unique<Kept>(answers[i]);
    EXPECT_TRUE(all[i % busy]->add(std::move(r)).is_ok());
  }
  while (!std::all_of(all.begin(), all.end(), [](const sched::Scheduler* p) { return p->idle(); })) together.step();
  EXPECT_EQ(answers, one.answers);
  std::vector<uint64_t> accepted;
  for (size_t part = 0; part < busy; ++part) {
    EXPECT_TRUE(all[part]->check_integrity().is_ok()) << all[part]->check_integrity().message();
    EXPECT_GT(all[part]->stats().speculation.draft_tokens, 10u);
    accepted.push_back(all[part]->stats().speculation.accepted_tokens);
  }
  EXPECT_GT((*world)->front().draft()->counters().idle_steps.back(), 5u);
  return accepted;
}

// Ranks that share out requests share out those of the draft model as well: each part drafts for its own, with its own
// pages, while the others are idle.
TEST(DraftModel, GuessesInPartsAsOnOneRank) {
  ModelSettings s = with_draft("llama_gqa3_tied");
  s.max_running_requests = 24;
  s.chunked_prefill_size = 24;
  for (const uint64_t accepted : expect_guesses_in_parts(s, 3, 3)) EXPECT_GT(accepted, 5u);
}

// Simulated cards, whose graphs freeze the sizes of steps with drafts.
TEST(DraftModel, GuessesInPartsOfCardsAsOnOne) {
  ModelSettings s = with_draft("llama_gqa3_tied");
  s.device = "ascend";
  s.ascend_runtime = "sim";
  s.dtype = "bfloat16";
  s.context_length = 64;
  s.max_running_requests = 8;
  s.chunked_prefill_size = 32;
  for (const uint64_t accepted : expect_guesses_in_parts(s, 3, 3)) EXPECT_GT(accepted, 5u);
}

// A head reads rows that the model keeps in the pages of a part; experts of both are shared out.
TEST(DraftModel, HeadsGuessInPartsAsOnOneRank) {
  const std::string heads = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/";
  ModelSettings s = with_draft("");
  s.max_running_requests = 24;
  s.chunked_prefill_size = 24;
  s.context_length = 256;
  s.max_total_tokens = 2048;
  s.model_path = heads + "deepseek_v3";
  s.speculation.algorithm = "NEXTN";
  s.speculation.draft_model_path = {};
  expect_guesses_in_parts(s, 2, 2);
  expect_guesses_in_parts(s, 4, 2, 4);
  s.model_path = heads + "llama";
  s.speculation.algorithm = "EAGLE";
  s.speculation.draft_model_path = heads + "llama_eagle";
  expect_guesses_in_parts(s, 2, 2);
}

// States are not shared out, so neither is a head of a model that keeps some.
TEST(DraftModel, HeadsOfModelsWithStatesAreRefusedInParts) {
  ModelSettings s = with_draft("");
  s.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/qwen3_next";
  s.speculation.algorithm = "NEXTN";
  s.speculation.draft_model_path = {};
  s.dp_size = 2;
  s.serving = s.enable_dp_attention = true;
  const auto world = open_world(s, 2);
  ASSERT_FALSE(world.is_ok());
  EXPECT_NE(world.status().message().find("`enable_dp_attention`: Qwen3NextForCausalLM keeps a state"),
            std::string::npos)
      << world.status().message();
}

// On one card such a model would be served without drafts; in a world that has ended with a rank nothing is.
TEST(DraftModel, OverCardsADraftModelWithoutKernelsIsAnError) {
  ModelSettings s = with_draft("gemma2");
  s.model_path = tiny("olmo2");
  s.device = "ascend";
  s.ascend_runtime = "sim";
  s.dtype = "bfloat16";
  s.max_running_requests = 2;
  s.chunked_prefill_size = 16;
  s.graph.graph = "off";
  auto alone = open_engine(s);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  EXPECT_EQ((*alone)->draft(), nullptr);
  const auto world = open_world(s, 2);
  ASSERT_FALSE(world.is_ok());
  EXPECT_NE(world.status().message().find("draft model "), std::string::npos) << world.status().message();
  EXPECT_NE(world.status().message().find("gemma2"), std::string::npos) << world.status().message();
}

TEST(DraftModel, WhatRanksDoNotDraftIsRefused) {
  // A number of ranks that the model can be cut for and the draft model cannot.
  const auto world = open_world(with_draft("llama_mha_untied"), 6);
  ASSERT_FALSE(world.is_ok());
  EXPECT_NE(world.status().message().find("`tp_size` 6: LlamaForCausalLM has 5 query heads; allowed: 1, 2, 3, 4, 5"),
            std::string::npos)
      << world.status().message();
}

}  // namespace
}  // namespace reprise::api
