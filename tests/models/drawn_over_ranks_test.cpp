// Ranks draw tokens without whole logits: the same tokens and log-probabilities as one rank, and logits are gathered
// only for rows that ask for them. The vocabulary is large enough for that, which those of the tiny models are not.
#include <gtest/gtest.h>

#include <set>

#include "support/ranked_engine.h"

namespace reprise::drawn_over_ranks_test {
namespace {

using testing_support::tiny_model_path;

constexpr int64_t kVocabulary = 2100;

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, engine::GraphPolicy policy, int64_t vocabulary,
                                             std::shared_ptr<ranks::Member> member) {
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  device.member = member;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.member = std::move(member);
  o.model_path = tiny_model_path(model);
  o.load_format = engine::LoadFormat::Dummy;
  o.overrides = {fmt::format("vocab_size={}", vocabulary)};
  o.dtype = DType::F32;
  o.context_length = 64;
  o.max_running_requests = 16;
  o.chunked_prefill_size = 64;
  o.max_total_tokens = 2048;
  o.graph.policy = policy;
  return engine::Engine::create(o, std::move(platform));
}

// Each kind of draw; the logits of random weights are close together, so shares of them are of many tokens.
Draw draw_of_kind(size_t kind, int64_t position) {
  Draw d{.scale = 1, .seed = 40 + kind, .position = position};
  if (kind == 0) d.scale = 0;
  if (kind == 2) d.top_k = 40;
  if (kind == 3) d.top_p = 0.9f, d.scale = 4;
  if (kind == 4) d.min_p = 0.05f;
  if (kind == 5) d.top_k = 20, d.top_p = 0.8f;
  if (kind == 6) d.top_p = 0.95f, d.scale = 3;
  if (kind == 7) d.logprobs = 5;
  return d;
}
constexpr size_t kKinds = 8;

struct Answers {
  std::vector<int32_t> tokens;
  std::vector<float> numbers;  // log-probabilities, then logits
  uint64_t gathered = 0;       // in steps whose rows all draw
  uint64_t gathered_too = 0;   // in the last step, where one row's logits are wanted
};

Answers answers_of(engine::Engine& e) {
  Answers a;
  const int64_t vocabulary = e.vocab_size();
  std::vector<engine::Sequence> sequences;
  for (size_t i = 0; i < kKinds; ++i) {
    std::vector<int32_t> tokens;
    for (size_t k = 0; k < 2 + i; ++k) tokens.push_back(static_cast<int32_t>((31 * i + 7 * k) % 300));
    sequences.emplace_back(std::move(tokens));
    EXPECT_TRUE(e.reserve(sequences.back(), 40).is_ok());
  }
  const std::vector<uint64_t> allowed(static_cast<size_t>((vocabulary + 63) / 64), 0xa249249249249249u);
  std::vector<TokenCount> counts;
  std::vector<TokenBias> biases;
  for (int32_t token = 0; token < static_cast<int32_t>(vocabulary); token += 37) {
    counts.push_back({token, token % 3});
    biases.push_back({token, 0.75f});
  }
  const auto step = [&](size_t without_draw) {
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < kKinds; ++i) {
      engine::StepItem item{&sequences[i], sequences[i].uncached(), 1};
      if (i != without_draw) item.draw = draw_of_kind(i, sequences[i].size());
      if (i != without_draw && (i == 2 || i == 5))
        item.edits = {.counts = counts, .repetition = 1.4f, .presence = 0.3f};
      if (i == 6 || i == 7) item.edits = {.allowed = allowed, .biases = biases};
      items.push_back(item);
    }
    const auto ticket = e.submit(items, engine::StepOutput::Sampled);
    EXPECT_TRUE(ticket.is_ok()) << ticket.status().message();
    if (!ticket.is_ok()) return;
    const auto result = e.wait(*ticket);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    if (!result.is_ok()) return;
    for (size_t i = 0; i < kKinds; ++i) {
      if (i != without_draw) a.tokens.push_back(result->tokens[i]);
      sequences[i].append(i == without_draw ? 1 : std::max(0, result->tokens[i]));
    }
    const std::span<const float> logprobs = result->logprobs, top = result->top_logprobs;
    a.numbers.push_back(logprobs[7]);
    for (size_t k = 0; k < 5; ++k) {
      a.numbers.push_back(top[7 * kMostTopTokens + k]);
      a.tokens.push_back(result->top_tokens[7 * kMostTopTokens + k]);
    }
    if (without_draw < kKinds) {
      const auto row =
          result->logits.subspan(without_draw * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary));
      a.numbers.insert(a.numbers.end(), row.begin(), row.end());
    }
  };
  const uint64_t before = e.counters().logits_gathered;
  for (int i = 0; i < 6; ++i) step(kKinds);
  a.gathered = e.counters().logits_gathered - before;
  step(3);
  a.gathered_too = e.counters().logits_gathered - before - a.gathered;
  for (auto& s : sequences) e.release(s);
  return a;
}

void expect_same(const Answers& one, const Answers& many) {
  EXPECT_EQ(one.tokens, many.tokens);
  EXPECT_TRUE(testing_support::same_bits(one.numbers, many.numbers));
}

struct Case {
  std::string model;
  int size;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
};

class DrawnOverRanks : public testing::TestWithParam<Case> {};

TEST_P(DrawnOverRanks, GatherOnlyRowsThatAskForMore) {
  const Case& c = GetParam();
  const auto alone = open(c.model, c.policy, kVocabulary, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  EXPECT_EQ(one.gathered + one.gathered_too, 0u);
  EXPECT_GT(std::set<int32_t>(one.tokens.begin(), one.tokens.end()).size(), 30u);  // they are drawn from many
  const auto world = engine::LocalWorld::start(
      c.size, [&](std::shared_ptr<ranks::Member> m) { return open(c.model, c.policy, kVocabulary, std::move(m)); });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Answers many = answers_of((*world)->front());
  expect_same(one, many);
  EXPECT_EQ(many.gathered, 6u);  // the row with log-probabilities, in each step
  EXPECT_EQ(many.gathered_too, kKinds);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

INSTANTIATE_TEST_SUITE_P(Sizes, DrawnOverRanks,
                         testing::Values(Case{"llama_gqa4_sharded", 2}, Case{"llama_gqa4_sharded", 4},
                                         Case{"llama_gqa3_tied", 3}, Case{"granite", 3},
                                         Case{"llama_gqa4_sharded", 2, engine::GraphPolicy::Off}),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", info.param.model, info.param.size,
                                              info.param.policy == engine::GraphPolicy::Off ? "_eager" : "");
                         });

// What ranks of one host see in their memory, those of another one are sent.
TEST(DrawnOverHosts, GiveTheSame) {
  const char* model = "llama_gqa4_sharded";
  const auto alone = open(model, engine::GraphPolicy::Auto, kVocabulary, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const testing_support::RankedHosts hosts({1, 1});
  std::vector<std::shared_ptr<ranks::Member>> seats{hosts.member(0), hosts.member(1)};
  const auto world = engine::LocalWorld::start(std::move(seats), [&](std::shared_ptr<ranks::Member> m) {
    return open(model, engine::GraphPolicy::Auto, kVocabulary, std::move(m));
  });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Answers many = answers_of((*world)->front());
  expect_same(answers_of(**alone), many);
  EXPECT_EQ(many.gathered, 6u);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

// Too few tokens to cut by whole blocks: all rows of drawn steps are gathered, and counted.
TEST(DrawnFromFewTokens, AllRowsAreGathered) {
  const auto world = engine::LocalWorld::start(2, [&](std::shared_ptr<ranks::Member> m) {
    return open("llama_gqa4_sharded", engine::GraphPolicy::Auto, 1000, std::move(m));
  });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Answers many = answers_of((*world)->front());
  EXPECT_EQ(many.gathered, 6 * kKinds);
  const auto alone = open("llama_gqa4_sharded", engine::GraphPolicy::Auto, 1000, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  expect_same(answers_of(**alone), many);
}

}  // namespace
}  // namespace reprise::drawn_over_ranks_test
