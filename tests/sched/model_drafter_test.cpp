// A second model that drafts: what it guesses, what it reads, what it keeps, and that answers stay what they are. On
// the fake executor a key that is stale, lost or another text's changes what is guessed.
#include "sched/model_drafter.h"

#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/executor_proxy.h"
#include "support/tiny_models.h"

namespace reprise::sched::model_drafter_test {
namespace {

struct Direct {
  explicit Direct(FakeExecutor::Limits limits = {}, ModelDrafterOptions options = {}, bool beside = false)
      : model(limits), drafter(model, options) {
    model.runs_beside = beside;
  }
  spec::Proposal propose(uint64_t id, const Tokens& text, int64_t most) {
    const spec::Wish wish{id, text, most};
    spec::Proposal out;
    drafter.propose({&wish, 1}, {&out, 1});
    const Status whole = drafter.check_integrity();
    EXPECT_TRUE(whole.is_ok()) << whole.message();
    EXPECT_EQ(out.tokens.size(), out.survival.size());
    return out;
  }
  FakeExecutor model;
  ModelDrafter drafter;
};

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_guesses_of_its_model(bool beside) {
  Direct d({}, {}, beside);
  d.drafter.begin({.id = 1});
  Tokens text = count_up(20);
  // Then one of the guesses comes true, then none of them, then all.
  for (const int64_t kept : {1, 0, 4}) {
    const spec::Proposal p = d.propose(1, text, 4);
    EXPECT_EQ(p.tokens, expected(text, 4, true));
    const Tokens other{p.tokens.empty() ? 3 : 2 + (p.tokens[static_cast<size_t>(kept % 4)] + 1) % 20};
    text = joined(joined(text, {p.tokens.begin(), p.tokens.begin() + kept}), other);
  }
  EXPECT_EQ(d.propose(1, text, 4).tokens, expected(text, 4, true));
  // The text that went on as guessed, and no further.
  const Tokens guessed = d.propose(1, text, 4).tokens;
  text = joined(text, {guessed.begin(), guessed.begin() + 2});
  EXPECT_EQ(d.propose(1, text, 3).tokens, expected(text, 3, true));
  d.drafter.end(1, {});
  d.drafter.end(1, {});  // unknown by now
  EXPECT_EQ(d.model.most_in_flight, beside ? 2 : 1);
}

TEST(ModelDrafter, GuessesWhatItsModelAnswers) {
  for (const bool beside : {false, true}) expect_guesses_of_its_model(beside);
}

TEST(ModelDrafter, ATextIsReadOnceForItsSalt) {
  for (const bool prefix_cache : {true, false}) {
    Direct d({.rows = 4, .tokens = 400, .pages = 20}, {.prefix_cache = prefix_cache});
    const Tokens text = count_up(300);
    d.drafter.begin({.id = 1, .salt = "a"});
    EXPECT_EQ(d.propose(1, text, 2).tokens, expected(text, 2, true));
    EXPECT_EQ(d.drafter.tokens_read(), 299u);
    // Another answer to the same prompt, while the first one lives and when it has ended.
    d.drafter.begin({.id = 2, .salt = "a"});
    EXPECT_EQ(d.propose(2, text, 2).tokens, expected(text, 2, true));
    const uint64_t again = d.drafter.tokens_read() - 299;
    EXPECT_EQ(again, prefix_cache ? 299u - 256u : 299u);
    d.drafter.end(1, {});
    d.drafter.begin({.id = 3, .salt = "a"});
    EXPECT_EQ(d.propose(3, text, 2).tokens, expected(text, 2, true));
    EXPECT_EQ(d.drafter.tokens_read() - 299 - again, prefix_cache ? 0u : 299u);
    d.drafter.begin({.id = 4, .salt = "b"});
    const uint64_t before = d.drafter.tokens_read();
    EXPECT_EQ(d.propose(4, text, 2).tokens, expected(text, 2, true));
    EXPECT_EQ(d.drafter.tokens_read() - before, 299u);
  }
}

TEST(ModelDrafter, LongTextsAreReadInPartsBesideOthers) {
  Direct d({.rows = 4, .tokens = 200, .pages = 30}, {.read_tokens = 50});
  const Tokens small = count_up(4), large = count_up(420, 7);
  d.drafter.begin({.id = 1});
  d.drafter.begin({.id = 2});
  const std::vector<spec::Wish> both{{1, small, 2}, {2, large, 2}};
  std::vector<spec::Proposal> out(2);
  for (int turn = 1; turn <= 8; ++turn) {
    d.drafter.propose(both, out);
    EXPECT_EQ(out[0].tokens, expected(small, 2, true));
    EXPECT_TRUE(out[1].tokens.empty()) << turn;
    EXPECT_EQ(d.drafter.tokens_read(), 50u * static_cast<uint64_t>(turn));
  }
  d.drafter.propose(both, out);
  EXPECT_EQ(out[1].tokens, expected(large, 2, true));
  // Alone it is read at full width.
  const Tokens alone = count_up(390, 11);
  d.drafter.begin({.id = 3});
  EXPECT_TRUE(d.propose(3, alone, 2).tokens.empty());
  EXPECT_EQ(d.propose(3, alone, 2).tokens, expected(alone, 2, true));
}

TEST(ModelDrafter, WhoWaitsGivesUpItsPages) {
  Direct d({.rows = 4, .tokens = 400, .pages = 5});
  const Tokens a = count_up(300), b = count_up(290, 9);
  d.drafter.begin({.id = 1});
  d.drafter.begin({.id = 2});
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(d.propose(1, a, 3).tokens, expected(a, 3, true));
    EXPECT_EQ(d.propose(2, b, 3).tokens, expected(b, 3, true));
  }
  // More than the pool holds, of which nothing comes.
  const Tokens large = count_up(700);
  d.drafter.begin({.id = 3});
  for (int turn = 0; turn < 4; ++turn) EXPECT_TRUE(d.propose(3, large, 3).tokens.empty());
  EXPECT_EQ(d.propose(1, a, 3).tokens, expected(a, 3, true));
}

TEST(ModelDrafter, WhatItsModelCannotTakeHasNoDrafts) {
  Direct d({.context = 24});
  d.drafter.begin({.id = 1});
  const Tokens text = count_up(22);
  EXPECT_EQ(d.propose(1, text, 5).tokens, expected(text, 3, true));  // the last draft needs no place
  EXPECT_EQ(d.propose(1, joined(text, count_up(3)), 5).tokens.size(), 0u);
  d.drafter.begin({.id = 2});
  Tokens strange = count_up(10);
  strange[4] = FakeExecutor::kVocab;
  EXPECT_TRUE(d.propose(2, strange, 3).tokens.empty());
  spec::Proposal foreseen;
  const spec::Wish wish{2, strange, 3};
  EXPECT_TRUE(d.drafter.foresee({&wish, 1}, {&foreseen, 1}));
  EXPECT_TRUE(foreseen.survival.empty());
}

TEST(ModelDrafter, AStepThatFailsCostsItsDraftsAlone) {
  for (const auto& [spoils, beside] : {std::pair(false, false), {true, false}, {false, true}, {true, true}})
    for (int64_t at = 1; at <= 4; ++at) {
      Direct d({.rows = 4, .tokens = 64, .pages = 20}, {}, beside);
      (spoils ? d.model.spoil_at : d.model.fail_at) = at;
      const Tokens text = count_up(40);
      d.drafter.begin({.id = 1});
      int without = 0;
      for (int turn = 0; turn < 4; ++turn) {
        const Tokens got = d.propose(1, text, 3).tokens;
        if (got.empty())
          ++without;
        else
          EXPECT_EQ(got, expected(text, 3, true));
      }
      EXPECT_EQ(without, 1) << spoils << " " << at;
      EXPECT_EQ(d.model.in_flight(), 0);
    }
}

// Sizes that were asked for may leave it no step with several rows of a text.
TEST(ModelDrafter, WithoutStepsOfSeveralRowsTextsAreReadBefore) {
  struct Without : testing_support::ExecutorProxy {
    using ExecutorProxy::ExecutorProxy;
    int64_t max_verify_rows() const override { return 0; }
  };
  FakeExecutor model({});
  Without without(model);
  ModelDrafter drafter(without, {});
  drafter.begin({.id = 1});
  for (Tokens text = count_up(20); text.size() < 40; text = joined(text, {3, 4, 5})) {
    const spec::Wish wish{1, text, 3};
    spec::Proposal out;
    drafter.propose({&wish, 1}, {&out, 1});
    EXPECT_EQ(out.tokens, expected(text, 3, true));
  }
  EXPECT_EQ(model.verify_steps, 0);
}

// Requests of a scheduler whose drafts the fake model makes for itself: all of them come true.
TEST(ModelDrafter, OfTheSameModelEveryDraftComesTrue) {
  for (const int64_t draft_pages : {40, 6}) {
    FakeExecutor target({.rows = 24, .tokens = 64, .pages = 9}),
        draft({.rows = 24, .tokens = 64, .pages = draft_pages});
    target.runs_beside = draft.runs_beside = draft_pages == 6;
    SchedulerOptions o;
    o.eos_tokens = {FakeExecutor::kEos};
    o.speculation.adaptive = false;
    o.preemption_threshold = 0;
    const ModelDrafter* drafter = nullptr;
    o.drafter = [&] {
      auto made = std::make_unique<ModelDrafter>(draft, ModelDrafterOptions{});
      drafter = made.get();
      return made;
    };
    Scheduler scheduler(target, o);
    std::vector<Asked> asked;
    for (int32_t i = 0; i < 6; ++i) asked.push_back(ask(count_up(20 + 31 * i % 120, i), 60));
    for (Asked& a : asked) a.request.sampling.ignore_eos = true;
    std::vector<Tokens> want;
    for (Asked& a : asked) {
      want.push_back(expected(a.request.prompt, 60, true));
      ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    }
    const auto gone = scheduler.add(ask(count_up(9, 3), 200).request);
    for (int i = 0; !scheduler.idle(); ++i) {
      if (i == 12) scheduler.cancel(*gone);
      if (i == 15) {
        Asked important = ask(count_up(200, 5), 3);
        important.request.priority = 5;
        ASSERT_TRUE(scheduler.add(std::move(important.request)).is_ok());
      }
      scheduler.step();
      for (const Status& ok : {scheduler.check_integrity(), drafter->check_integrity()})
        ASSERT_TRUE(ok.is_ok()) << ok.message();
    }
    for (size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(asked[i].answer->tokens, want[i]);
    const SchedulerStats stats = scheduler.stats();
    EXPECT_GT(stats.preemptions, 0u);
    EXPECT_GT(stats.speculation.draft_tokens, 50u);
    EXPECT_EQ(stats.speculation.accepted_tokens, stats.speculation.draft_tokens);
  }
}

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, DType dtype) {
  return testing_support::open_engine(testing_support::tiny_model_path(model), {.dtype = dtype, .rows = 16});
}

// The model's own words, token by token.
Tokens greedy(engine::Engine& e, Tokens history, int64_t most) {
  Tokens out;
  while (static_cast<int64_t>(out.size()) < most) {
    const auto logits = testing_support::all_logits(e, history, 256);
    const auto row = logits.end() - e.vocab_size();
    out.push_back(static_cast<int32_t>(std::max_element(row, logits.end()) - row));
    history.push_back(out.back());
  }
  return out;
}

// Steps, drafts and what came true at each place, as a loop over plain decoding of both models counts them.
TEST(ModelDrafter, AcceptanceIsThatOfAPlainSimulation) {
  constexpr int64_t kTokens = 40, kDrafts = 3;
  for (const std::string draft_name : {"llama_gqa3_tied", "llama_mha_untied"}) {
    auto target = open("llama_gqa3_tied", DType::F32);
    auto draft = open(draft_name, DType::BF16);
    ASSERT_TRUE(target.is_ok() && draft.is_ok());
    const Tokens prompt = count_up(30);
    const Tokens answer = greedy(**target, prompt, kTokens);
    uint64_t steps = 0, drafted = 0;
    std::vector<int64_t> came_true(kDrafts);
    // The first token comes of the prompt's step. Each later step gives one token besides the drafts that come true.
    for (int64_t have = 1; have < kTokens; ++have) {
      const int64_t most = std::min(kDrafts, kTokens - have - 1);
      if (most == 0) break;
      const Tokens guessed = greedy(**draft, joined(prompt, {answer.begin(), answer.begin() + have}), most);
      ++steps;
      drafted += static_cast<uint64_t>(most);
      for (int64_t i = 0; i < most && guessed[static_cast<size_t>(i)] == answer[static_cast<size_t>(have)]; ++i, ++have)
        ++came_true[static_cast<size_t>(i)];
    }
    SchedulerOptions o;
    o.speculation.adaptive = false;
    o.speculation.draft_tokens = kDrafts + 1;
    o.drafter = [&] { return std::make_unique<ModelDrafter>(**draft, ModelDrafterOptions{.most_drafts = kDrafts}); };
    Scheduler scheduler(**target, o);
    Asked a = ask(prompt, kTokens);
    a.request.sampling.ignore_eos = true;
    ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    while (!scheduler.idle()) scheduler.step();
    EXPECT_EQ(a.answer->tokens, answer);
    const SpeculationStats s = scheduler.stats().speculation;
    EXPECT_EQ(s.drafts, steps) << draft_name;
    EXPECT_EQ(s.draft_tokens, drafted);
    for (size_t i = 0; i < came_true.size(); ++i)
      EXPECT_EQ(s.places.accepted.at(i), came_true[i]) << draft_name << ", " << i;
    if (draft_name == "llama_gqa3_tied") {
      EXPECT_GT(s.accepted_tokens, 10u);
    } else {
      EXPECT_LT(s.accepted_tokens, s.draft_tokens / 2);
    }
  }
}

// Measured times say that rounds of the draft model do not pay: then it is not asked.
TEST(ModelDrafter, RoundsThatDoNotPayAreNotRun) {
  FakeExecutor target({.rows = 24, .tokens = 64, .pages = 20}), draft({.rows = 24, .tokens = 64, .pages = 20});
  target.cost = [](int64_t rows) { return std::optional(0.001 * static_cast<double>(rows)); };  // less than any round
  SchedulerOptions o;
  o.drafter = [&] { return std::make_unique<ModelDrafter>(draft, ModelDrafterOptions{}); };
  Scheduler scheduler(target, o);
  Asked a = ask(count_up(20), 200);
  a.request.sampling.ignore_eos = true;
  ASSERT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  while (!scheduler.idle()) scheduler.step();
  EXPECT_LT(scheduler.stats().speculation.drafts, 5u);
  EXPECT_LT(draft.steps, 30);
  EXPECT_GT(scheduler.stats().speculation.off[static_cast<size_t>(SpecOff::Cost)], 150u);
}

}  // namespace
}  // namespace reprise::sched::model_drafter_test
