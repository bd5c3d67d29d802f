// Tokens that a device draws are those that the host draws from its logits: for the same seed, in every mode and batch,
// under grammars, biases and penalties, beside rows that only the host can draw. On the CPU, and on a device whose
// memory the host cannot touch.
#include <gtest/gtest.h>

#include "compile/memory_plan.h"
#include "sched/scheduler_fixture.h"
#include "support/computing_platforms.h"
#include "support/drafters.h"
#include "support/drawn_rows.h"
#include "support/executor_proxy.h"
#include "support/tiny_models.h"
#include "support/toy_grammar.h"

namespace reprise::sched::sampled_steps_test {
namespace {

using engine::Engine;
using engine::HostDraw;
using engine::SamplingParams;
using testing_support::ByThree;
using testing_support::ComputingPlatform;

struct Kind {
  SamplingParams sampling;
  bool grammar = false;
};

// Of each 14 tokens.
Kind kind(uint64_t seed, double temperature) {
  Kind k;
  k.sampling.temperature = temperature;
  k.sampling.seed = seed;
  k.sampling.max_new_tokens = 14;
  k.sampling.ignore_eos = true;
  return k;
}

// As the logits are.
std::vector<Kind> plain_kinds() {
  std::vector<Kind> out;
  for (size_t i = 0; i < 10; ++i) out.push_back(kind(100 + i, i == 0 ? 0 : 0.5 + 0.3 * static_cast<double>(i)));
  out[2].sampling.top_k = 5;
  out[3].sampling.top_p = 0.8;
  out[4].sampling.min_p = 0.1;
  out[5].sampling.top_k = 40, out[5].sampling.top_p = 0.9, out[5].sampling.min_p = 0.02;
  out[6].sampling.top_k = 1;
  out[7].sampling.top_p = 1e-6;
  out[8].sampling.logprobs = 0;
  out[9].sampling.logprobs = 20, out[9].sampling.top_p = 0.95;
  return out;
}

// Changed first, each in another way.
std::vector<Kind> edited_kinds() {
  std::vector<Kind> out;
  for (size_t i = 0; i < 10; ++i) out.push_back(kind(200 + i, i % 5 == 0 ? 0 : 1.1));
  out[0].grammar = true;
  out[1].grammar = true, out[1].sampling.logprobs = 5;
  out[2].sampling.logit_bias = {{3, 4.0f}, {7, -100.0f}, {11, 2.5f}, {3, 1.0f}};
  out[3].sampling.repetition_penalty = 1.7;
  out[4].sampling.frequency_penalty = 0.9, out[4].sampling.presence_penalty = -0.4;
  out[5].sampling.repetition_penalty = 2, out[5].sampling.logit_bias = {{5, 3.0f}};
  out[6].sampling.min_new_tokens = 9, out[6].sampling.stop_token_ids = {2, 3, 4, 5, 6};
  out[6].sampling.logit_bias = {{4, 30.0f}};
  out[7].grammar = true, out[7].sampling.presence_penalty = 1.5, out[7].sampling.logit_bias = {{9, 6.0f}};
  out[8].sampling.frequency_penalty = 2, out[8].sampling.top_k = 20, out[8].sampling.logprobs = 20;
  out[9].sampling.min_new_tokens = 14, out[9].sampling.stop_token_ids = {1, 2}, out[9].sampling.top_p = 0.9;
  return out;
}

// The engine, with some of what its device can do hidden.
class Less final : public testing_support::ExecutorProxy {
 public:
  Less(Engine& e, bool draws, int64_t words) : ExecutorProxy(e), draws_(draws), words_(words) {}
  bool has_greedy_steps() const override { return draws_; }
  bool has_sampled_steps() const override { return draws_; }
  int64_t edit_words() const override { return words_; }

 private:
  bool draws_;
  int64_t words_;
};

struct Outcome {
  std::vector<Answer> answers;
  SchedulerStats stats;
  uint64_t host_draws(HostDraw why) const { return stats.host_draws[static_cast<size_t>(why)]; }
  uint64_t tokens(size_t answer) const { return answers[answer].tokens.size(); }
  uint64_t all_tokens() const {
    uint64_t sum = 0;
    for (const Answer& a : answers) sum += a.tokens.size();
    return sum;
  }
  uint64_t all_host_draws() const {
    return std::accumulate(stats.host_draws.begin(), stats.host_draws.end(), uint64_t{0});
  }
};

Tokens prompt_of(size_t request) {
  return count_up(3 + static_cast<int64_t>(request) * 17 % 100, static_cast<int32_t>(request));
}

Outcome run(engine::Executor& e, const std::vector<Kind>& kinds, SchedulerOptions options) {
  Scheduler scheduler(e, std::move(options));
  std::vector<std::shared_ptr<Answer>> answers;
  for (size_t i = 0; i < kinds.size(); ++i) {
    Asked a = ask(prompt_of(i));
    a.request.sampling = kinds[i].sampling;
    if (kinds[i].grammar) a.request.constraint = std::make_unique<ByThree>(e.vocab_size());
    answers.push_back(a.answer);
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  }
  while (!scheduler.idle()) scheduler.step();
  scheduler.complete_in_flight();
  Outcome out;
  out.stats = scheduler.stats();
  for (const auto& a : answers) {
    EXPECT_TRUE(a->result->status.is_ok()) << a->result->status.message();
    out.answers.push_back(*a);
  }
  return out;
}

Outcome run(engine::Executor& e, const std::vector<Kind>& kinds, bool overlap = true) {
  return run(e, kinds, SchedulerOptions{.overlap = overlap});
}

// Drafts of the answers that are known, some of their tokens changed.
SchedulerOptions drafts_of(const Outcome& known) {
  std::vector<Tokens> texts;
  for (const Answer& a : known.answers) {
    texts.push_back(prompt_of(texts.size()));
    texts.back().insert(texts.back().end(), a.tokens.begin(), a.tokens.end());
  }
  const auto foresee = [texts](std::span<const int32_t> history, int64_t most) {
    for (const Tokens& text : texts)
      if (text.size() > history.size() && std::equal(history.begin(), history.end(), text.begin())) {
        const auto from = text.begin() + static_cast<ptrdiff_t>(history.size());
        return Tokens(from, from + std::min<ptrdiff_t>(most, text.end() - from));
      }
    return Tokens{};
  };
  SchedulerOptions o;
  o.speculation.draft_tokens = 3;
  o.speculation.adaptive = false;
  o.drafter = [foresee] {
    const testing_support::TestDrafter::Options options{.wrong = 0.2, .vocab = testing_support::kVocabulary};
    return std::make_unique<testing_support::TestDrafter>(options, foresee);
  };
  return o;
}

// `within`: of log-probabilities, which the remote device computes by no rule of ours.
void expect_same(const Outcome& got, const Outcome& expected, double within = 2e-5) {
  ASSERT_EQ(got.answers.size(), expected.answers.size());
  for (size_t i = 0; i < got.answers.size(); ++i) {
    const Answer &g = got.answers[i], &want = expected.answers[i];
    EXPECT_EQ(g.tokens, want.tokens) << i;
    ASSERT_EQ(g.sampled.size(), want.sampled.size()) << i;
    for (size_t t = 0; t < g.sampled.size(); ++t) {
      const SampledToken &a = g.sampled[t], &b = want.sampled[t];
      ASSERT_EQ(a.logprob.has_value(), b.logprob.has_value());
      if (a.logprob) {
        EXPECT_NEAR(*a.logprob, *b.logprob, within);
      }
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t k = 0; k < a.top.size(); ++k) {
        EXPECT_EQ(a.top[k].token, b.top[k].token);
        EXPECT_NEAR(a.top[k].logprob, b.top[k].logprob, within);
      }
    }
  }
}

struct Copied {
  uint64_t to_host, to_device;
};

class SampledSteps : public testing::TestWithParam<ComputingPlatform> {
 protected:
  Result<std::unique_ptr<Engine>> open(engine::GraphPolicy policy, GraphMode decode, int64_t rows = 10) {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("qwen3_tied");
    o.dtype = DType::F32;
    o.context_length = 256;
    o.max_running_requests = rows;
    o.chunked_prefill_size = 64;
    o.max_total_tokens = 24 * 128;
    o.graph.decode_sizes = {rows};
    o.graph.prefill_sizes = {32, 64};
    o.graph.policy = policy;
    o.graph.decode = decode;
    o.graph.choose_by_cost = false;
    ASSIGN_OR_RETURN(Platform p, testing_support::make_computing_platform(GetParam(), taken_));
    return Engine::create(o, std::move(p));
  }

  testing_support::Taken taken_;
};

TEST_P(SampledSteps, TheDeviceDrawsWhatTheHostDraws) {
  for (const auto& kinds : {plain_kinds(), edited_kinds()}) {
    auto eager = open(engine::GraphPolicy::Off, GraphMode::Eager, 3);
    ASSERT_TRUE(eager.is_ok()) << eager.status().message();
    ASSERT_TRUE((*eager)->has_sampled_steps());
    Less by_host(**eager, false, 0);
    const Outcome expected = run(by_host, kinds);
    EXPECT_EQ(expected.stats.device_draws, 0u);
    EXPECT_EQ(expected.host_draws(HostDraw::NoKernel), expected.all_tokens());
    EXPECT_NE(expected.answers[1].tokens, expected.answers[3].tokens);
    expect_same(run(**eager, kinds), expected, GetParam() == ComputingPlatform::Cpu ? 0 : 2e-5);
    for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise}) {
      SCOPED_TRACE(graph_mode_name(mode));
      auto e = open(engine::GraphPolicy::Required, mode);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const Outcome got = run(**e, kinds);
      expect_same(got, expected);
      EXPECT_EQ(got.all_host_draws(), 0u);
      EXPECT_EQ(got.stats.device_draws, expected.all_tokens());
      Less mixed(**e, true, 0), narrow(**e, true, 40), host(**e, false, 0);
      expect_same(run(mixed, kinds), expected);
      expect_same(run(narrow, kinds), expected);
      expect_same(run(host, kinds), expected);
    }
  }
}

TEST_P(SampledSteps, ReasonsOfTheHostAreCounted) {
  auto e = open(engine::GraphPolicy::Auto, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  std::vector<Kind> kinds = edited_kinds();
  kinds[9].sampling.logprobs = 21;
  Less no_edits(**e, true, 0);
  const Outcome all = run(no_edits, kinds);
  EXPECT_EQ(all.host_draws(HostDraw::Grammar), 3 * 14u);
  EXPECT_EQ(all.host_draws(HostDraw::Penalties), 4 * 14u);
  EXPECT_EQ(all.host_draws(HostDraw::LogitBias), 14 + all.tokens(6));
  EXPECT_GE(all.tokens(6), 10u);  // an end token is likely, and comes behind the minimum
  EXPECT_LT(all.tokens(6), 14u);
  EXPECT_EQ(all.host_draws(HostDraw::Logprobs), 14u);
  EXPECT_EQ(all.host_draws(HostDraw::NoRoom), 0u);
  kinds[6].sampling.logit_bias.clear();
  EXPECT_EQ(run(no_edits, kinds).host_draws(HostDraw::MinTokens), 9u);  // the other five are drawn on the device
  // Room for the first mask alone: two biases fit behind it in no step.
  Less narrow(**e, true, (*e)->vocab_size() / 32 + 4);
  const Outcome some = run(narrow, kinds);
  EXPECT_EQ(some.host_draws(HostDraw::Grammar), 0u);
  EXPECT_GT(some.host_draws(HostDraw::NoRoom), 14u);
  EXPECT_GT(some.stats.device_draws, 2 * 14u);
}

TEST_P(SampledSteps, AnswersKeepToTheirGrammar) {
  auto e = open(engine::GraphPolicy::Auto, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const Outcome got = run(**e, edited_kinds());
  for (const size_t i : {0, 1, 7}) {
    int32_t last = 0;
    for (const int32_t token : got.answers[i].tokens) {
      EXPECT_TRUE(ByThree(1).may_follow(last, token)) << i;
      last = token;
    }
  }
}

// Devices whose memory the host does not see.
class SampledStepsApart : public SampledSteps {};

// A mixed batch brings tokens to the host, and of the logits nothing, whatever changes them first.
TEST_P(SampledStepsApart, LogitsStayOnTheDevice) {
  auto e = open(engine::GraphPolicy::Auto, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto copied = [&](engine::Executor& executor, const std::vector<Kind>& kinds) {
    const StreamStats before = (*e)->stream_stats();
    (void)run(executor, kinds, false);
    const StreamStats after = (*e)->stream_stats();
    return Copied{after.bytes_to_host - before.bytes_to_host, after.bytes_to_device - before.bytes_to_device};
  };
  std::vector<Kind> greedy(6, kind(1, 0)), sampled = greedy;
  for (const size_t i : {0, 2, 4}) sampled[i].sampling.temperature = 1;
  std::vector<Kind> edited = sampled;
  edited[0].grammar = edited[1].grammar = true;
  edited[2].sampling.repetition_penalty = 1.3;
  edited[3].sampling.logit_bias = {{3, 1.0f}};
  edited[4].sampling.min_new_tokens = 14;
  edited[4].sampling.stop_token_ids = {3};
  // Of each step the hidden states, which are checked, and the tokens.
  const Copied tokens_alone = copied(**e, greedy), drawn = copied(**e, sampled), changed = copied(**e, edited);
  EXPECT_EQ(drawn.to_host, tokens_alone.to_host);
  EXPECT_EQ(changed.to_host, tokens_alone.to_host);
  Less no_edits(**e, true, 0);
  EXPECT_GT(copied(no_edits, edited).to_host, tokens_alone.to_host);
  // What changes them is sent, and no more: two masks, and 8 bytes for each of the tokens.
  EXPECT_EQ(drawn.to_device, tokens_alone.to_device);
  const int64_t mask = 4 * mask_words((*e)->vocab_size());
  uint64_t sent = 0;
  for (int64_t token = 0; token < 14; ++token) sent += static_cast<uint64_t>(2 * mask + 8 + 8);
  EXPECT_GE(changed.to_device - drawn.to_device, sent);
  EXPECT_LE(changed.to_device - drawn.to_device, sent + 20 * (kArenaAlignment + 8 * (27 + 14)));
}

// Where a grammar or penalties need the token before, the next step waits for it, and that is counted.
TEST_P(SampledStepsApart, StepsThatWaitForATokenAreCounted) {
  auto e = open(engine::GraphPolicy::Auto, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  ASSERT_TRUE((*e)->overlaps());
  const auto stops = [&](const std::vector<Kind>& kinds) {
    const SchedulerStats s = run(**e, kinds).stats;
    std::vector<uint64_t> out;
    for (const auto why : {OverlapStop::HostDraw, OverlapStop::Grammar, OverlapStop::Penalties})
      out.push_back(s.overlap_stops[static_cast<size_t>(why)]);
    return out;
  };
  std::vector<Kind> kinds(3, kind(1, 1));
  kinds[1].sampling.logit_bias = {{3, 1.0f}};
  EXPECT_EQ(stops(kinds), (std::vector<uint64_t>{0, 0, 0}));
  kinds[1].sampling.presence_penalty = 1;
  EXPECT_EQ(stops(kinds), (std::vector<uint64_t>{0, 0, 14}));
  kinds[0].grammar = true;
  EXPECT_EQ(stops(kinds), (std::vector<uint64_t>{0, 14, 0}));
  kinds[2].sampling.logprobs = 21;
  EXPECT_EQ(stops(kinds), (std::vector<uint64_t>{14, 0, 0}));
}

// Two cards, whose hosts draw together from their columns of the logits: what the host of one card draws. Logits are
// gathered nowhere, and what a request has learned of a token is there for the next.
TEST(SampledStepsOverCards, HostsDrawWhatOneHostDraws) {
  const testing_support::DrawnCase cards{"qwen3_tied", 2, engine::GraphPolicy::Required, DeviceKind::Ascend};
  auto alone = open_drawn(cards, testing_support::kVocabulary, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const auto world = engine::LocalWorld::start(cards.size, [&](std::shared_ptr<ranks::Member> m) {
    return open_drawn(cards, testing_support::kVocabulary, std::move(m));
  });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  Engine& front = (*world)->front();
  for (const auto& kinds : {plain_kinds(), edited_kinds()}) {
    const Outcome expected = run(**alone, kinds), got = run(front, kinds);
    expect_same(got, expected, 0);
    EXPECT_EQ(got.host_draws(HostDraw::NoKernel), got.all_tokens());
    EXPECT_EQ(got.stats.device_draws, 0u);
    EXPECT_EQ(got.stats.rows_for_nothing, 0u);  // steps whose tokens hosts draw do not run ahead
  }
  EXPECT_EQ(front.counters().logits_gathered, 0u);
  const Outcome plain = run(front, plain_kinds()), drafted = run(front, plain_kinds(), drafts_of(plain));
  expect_same(drafted, plain, 0);
  EXPECT_GT(drafted.stats.speculation.accepted_tokens, 20u);
  EXPECT_LT(drafted.stats.speculation.accepted_tokens, drafted.stats.speculation.draft_tokens);
  EXPECT_EQ(front.counters().logits_gathered, 0u);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

INSTANTIATE_TEST_SUITE_P(, SampledStepsApart, testing::Values(ComputingPlatform::Remote),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, SampledSteps, testing::Values(ComputingPlatform::Cpu, ComputingPlatform::Remote),
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::sampled_steps_test
