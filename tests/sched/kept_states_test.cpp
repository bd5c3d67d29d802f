// The prefix cache of a model with states (Qwen3.5): prompts that begin alike go on from a state that is kept behind a
// border of a page. Tokens and log-probabilities are those of the same request without a cache; slots and pages come
// back.
#include <gtest/gtest.h>

#include "engine/local_world.h"
#include "support/drafters.h"
#include "support/served.h"
#include "support/tiny_models.h"

namespace reprise::sched::kept_states_test {
namespace {

class KeptStates : public testing::TestWithParam<std::string> {
 protected:
  static Result<std::unique_ptr<engine::Engine>> engine_of(int64_t rows, int64_t pages, int64_t drafts,
                                                           std::shared_ptr<ranks::Member> member) {
    DeviceOptions device{DeviceKind::Cpu, "auto", member ? 1 : 2, false};
    device.member = member;
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path(GetParam());
    o.dtype = DType::BF16;
    o.context_length = 512;
    o.max_running_requests = rows;
    o.chunked_prefill_size = 256;
    o.max_total_tokens = pages * 128;
    o.most_drafts = drafts;
    o.member = std::move(member);
    ASSIGN_OR_RETURN(Platform platform, make_platform(device));
    return engine::Engine::create(o, std::move(platform));
  }
  void open(int64_t rows = 4, int64_t pages = 40, int64_t drafts = 0) {
    auto e = engine_of(rows, pages, drafts, nullptr);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    engine_ = std::move(*e);
  }
  void TearDown() override {
    if (engine_) expect_all_back(*engine_);
  }
  static void expect_all_back(engine::Engine& e) {
    EXPECT_EQ(e.state_pool().free_slots(), e.state_pool().slots() - 2) << "all slots come back";
    EXPECT_EQ(e.state_pool().kept(), 0);
    EXPECT_EQ(e.free_pages(), e.kv_pool().total_pages());
  }

  Served alone(const Tokens& prompt, int64_t most = 5) {
    Scheduler without(*engine_, {.prefix_cache = false});
    const Served s = serve(without, prompt, most);
    EXPECT_EQ(s.cached, 0);
    return s;
  }
  // Options whose drafts are this text's, but for one in four.
  static SchedulerOptions drafting(std::vector<Tokens> texts) {
    SchedulerOptions o;
    o.speculation.adaptive = false;
    o.speculation.draft_tokens = 6;
    o.drafter = [texts = std::move(texts)] {
      return std::make_unique<testing_support::TestDrafter>(testing_support::TestDrafter::Options{.wrong = 0.25},
                                                            testing_support::from_script(texts));
    };
    return o;
  }
  static Tokens with_answer(Tokens prompt, const Served& answer) {
    prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
    return prompt;
  }

  static void expect_same(const Served& a, const Served& b, const std::string& what) {
    EXPECT_EQ(a.tokens, b.tokens) << what;
    EXPECT_EQ(a.logprobs, b.logprobs) << what;
  }

  // Prompts are of 131 different tokens, none of them special.
  static Tokens text(int64_t n, int32_t seed = 1) {
    Tokens t;
    for (int64_t i = 0; i < n; ++i) t.push_back(static_cast<int32_t>((i * i + 31 * i + seed * 7) % 131 + 3));
    return t;
  }

  std::unique_ptr<engine::Engine> engine_;
};

TEST_P(KeptStates, APromptGoesOnFromTheLastBorderOfAnEqualOne) {
  open();
  const Tokens first = text(300);
  for (const int64_t length : {40, 128, 129, 130, 256, 257, 300}) {
    const Tokens prompt(first.begin(), first.begin() + length);
    const Served key = alone(prompt);
    Scheduler with(*engine_, {});
    const Served miss = serve(with, prompt), hit = serve(with, prompt);
    EXPECT_EQ(miss.cached, 0);
    EXPECT_EQ(hit.cached, (length - 1) / 128 * 128) << length;
    expect_same(key, miss, fmt::format("miss {}", length));
    expect_same(key, hit, fmt::format("hit {}", length));
  }
}

// The state that is kept is at a border: what two prompts share beyond it is computed, and less than that is of no use.
TEST_P(KeptStates, AMatchEndsWhereAStateIs) {
  open();
  const Tokens first = text(300);
  for (const int64_t shared : {100, 128, 200, 255, 256, 257, 299}) {
    Tokens prompt(first.begin(), first.begin() + shared);
    for (int i = 0; i < 30; ++i) prompt.push_back(140 - i % 5);
    const Served key = alone(prompt);
    Scheduler with(*engine_, {});
    EXPECT_EQ(serve(with, first).cached, 0);
    const Served hit = serve(with, prompt);
    EXPECT_EQ(hit.cached, shared >= 256 ? 256 : 0) << shared;
    expect_same(key, hit, fmt::format("shared {}", shared));
  }
}

// A conversation: the next prompt begins with the answer, and finds the state behind the last border inside of it.
TEST_P(KeptStates, AnAnswerIsGoneOnFrom) {
  open();
  const Tokens prompt = text(200, 5);
  Tokens next = prompt;
  for (const int32_t t : alone(prompt, 100).tokens) next.push_back(t);
  for (int i = 0; i < 20; ++i) next.push_back(9 + i);
  const Served key = alone(next);
  Scheduler with(*engine_, {});
  (void)serve(with, prompt, 100);
  const Served hit = serve(with, next);
  EXPECT_EQ(hit.cached, 256);
  expect_same(key, hit, "the second turn");
}

TEST_P(KeptStates, AnswersOfOneRequestShareTheirPrompt) {
  open();
  const Tokens prompt = text(270, 9);
  const Served key = alone(prompt);
  Scheduler with(*engine_, {});
  std::vector<Asked> all;
  for (int i = 0; i < 4; ++i) {
    Asked a = ask_with_logprobs(prompt, 5);
    a.request.several = true;
    a.request.call = 3;
    ASSERT_TRUE(with.add(std::move(a.request)).is_ok());
    all.push_back(std::move(a));
  }
  run_whole(with);
  int64_t cached = 0;
  for (const Asked& a : all) {
    const Served s = served(a);
    cached += s.cached;
    expect_same(key, s, "one of four");
  }
  EXPECT_EQ(cached, 3 * 256) << "one of them reads the prompt";
}

// Few slots and few pages: states and pages are given up, requests are preempted, and nothing else changes.
TEST_P(KeptStates, WithoutRoomStatesGoAndBitsStay) {
  open(2, 9, 3);
  std::vector<Tokens> prompts, texts;
  for (int32_t i = 0; i < 7; ++i) prompts.push_back(text(150 + 40 * (i % 4), i % 5));
  prompts.push_back(prompts.back());
  std::vector<Served> keys;
  for (const Tokens& p : prompts) keys.push_back(alone(p, 30)), texts.push_back(with_answer(p, keys.back()));
  SchedulerOptions options = drafting(texts);
  options.preemption_threshold = 0;
  Scheduler with(*engine_, options);
  for (int round = 0; round < 2; ++round) {
    std::vector<Asked> all;
    for (size_t i = 0; i < prompts.size(); ++i) {
      Asked a = ask_with_logprobs(prompts[i], 30);
      a.request.priority = static_cast<int64_t>(i / 3);
      ASSERT_TRUE(with.add(std::move(a.request)).is_ok());
      all.push_back(std::move(a));
      for (int s = 0; s < 9; ++s) {
        with.step();
        const Status whole = with.check_integrity();
        ASSERT_TRUE(whole.is_ok()) << whole.message();
      }
    }
    run_whole(with);
    for (size_t i = 0; i < all.size(); ++i) expect_same(keys[i], served(all[i]), fmt::format("{} of {}", i, round));
  }
  EXPECT_GT(with.stats().cached_tokens, 0u);
  EXPECT_GT(with.stats().preemptions, 0u);
  EXPECT_GT(with.stats().evicted_pages, 0u);
  EXPECT_GT(with.stats().speculation.accepted_tokens, 0u);
  with.flush_cache();
  EXPECT_EQ(engine_->state_pool().kept(), 0);
}

// Steps with drafts go over borders of pages only where a plain step would leave a state, so the next turn finds it;
// what is gone on from has none of the drafts that were wrong.
TEST_P(KeptStates, DraftsLeaveStatesAtTheSameBorders) {
  open(16, 40, 5);
  const Tokens prompt = text(120, 5);
  const Served answer = alone(prompt, 150);
  Tokens next = with_answer(prompt, answer);
  for (int i = 0; i < 20; ++i) next.push_back(9 + i);
  const Served key = alone(next, 20);
  Scheduler with(*engine_, drafting({with_answer(prompt, answer), with_answer(next, key)}));
  expect_same(answer, serve(with, prompt, 150), "the first turn");
  for (int turn = 0; turn < 2; ++turn) {
    const Served hit = serve(with, next, 20);
    EXPECT_EQ(hit.cached, 256);
    expect_same(key, hit, "the second turn");
  }
  const SpeculationStats s = with.stats().speculation;
  EXPECT_GT(s.accepted_tokens, 60u);
  EXPECT_GT(s.draft_tokens, s.accepted_tokens);
}

// The front alone knows of slots: what followers go on from, keep and draft behind is what the step's inputs say.
TEST_P(KeptStates, OverRanksStatesAreGoneOnFromAsOnOne) {
  open(16, 40, 5);
  const Tokens prompt = text(200, 5);
  const Served answer = alone(prompt, 100);
  Tokens next = with_answer(prompt, answer);
  for (int i = 0; i < 20; ++i) next.push_back(9 + i);
  const Served key = alone(next, 20);
  auto world = engine::LocalWorld::start(
      2, [](std::shared_ptr<ranks::Member> member) { return engine_of(16, 40, 5, std::move(member)); });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  for (const bool drafts : {false, true}) {
    const auto script = drafting({with_answer(prompt, answer), with_answer(next, key)});
    Scheduler with(front, drafts ? script : SchedulerOptions{});
    expect_same(answer, serve(with, prompt, 100), "the first turn");
    for (int turn = 0; turn < 2; ++turn) {
      const Served hit = serve(with, next, 20);
      EXPECT_EQ(hit.cached, 256);
      expect_same(key, hit, "the second turn");
    }
    EXPECT_EQ(with.stats().speculation.accepted_tokens > 20, drafts);
  }
  expect_all_back(front);
  EXPECT_EQ((*world)->at(1).state_pool().slots(), front.state_pool().slots());
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

INSTANTIATE_TEST_SUITE_P(Tiny, KeptStates, testing::Values("qwen3_5", "qwen3_next", "granite_hybrid"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::sched::kept_states_test
