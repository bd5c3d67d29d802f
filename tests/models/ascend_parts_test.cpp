// Sequences that are shared out over parts of a world of simulated cards (DP attention) give the bits of one card: with
// latents and with keys and values, in every graph mode, with parts that have nothing to do and prompts beside
// decoding.
#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "support/applied.h"
#include "support/ascend_engine.h"
#include "support/wide_latents.h"

namespace reprise::ascend_parts_test {
namespace {

using testing_support::applied;
using testing_support::AscendOptions;
using testing_support::open_ascend;

// Three requests, each in a part: so many tokens of each in every step. The first one decodes while the prompts of the
// others are read in pieces; in the beginning and at the end one of them is alone, and all other parts idle.
constexpr int64_t kSteps[][3] = {{5, 0, 0}, {1, 17, 0}, {1, 23, 20}, {1, 1, 3},
                                 {1, 1, 1}, {0, 0, 1},  {1, 0, 1},   {0, 1, 0}};

std::vector<float> traffic(engine::Engine& e, const std::vector<int>& part) {
  uint32_t seed = 29;
  const auto token = [&] {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(e.vocab_size()));
  };
  std::vector<engine::Sequence> sequences;
  for (const size_t length : {5, 40, 23}) {
    std::vector<int32_t> prompt(length);
    for (int32_t& t : prompt) t = token();
    sequences.emplace_back(prompt);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(e.reserve(sequences[i], 60, part[i]).is_ok());
  std::vector<float> out;
  for (const auto& counts : kSteps) {
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < 3; ++i) {
      if (counts[i] == 0) continue;
      if (sequences[i].uncached() == 0) sequences[i].append(token());
      items.push_back({&sequences[i], counts[i], 1});
      items.back().part = part[i];
    }
    const auto logits = e.step(items);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    out.insert(out.end(), logits->begin(), logits->end());
  }
  for (size_t i = 0; i < 3; ++i) e.release(sequences[i], part[i]);
  return out;
}

struct Shares {
  int cards, parts;
  int64_t experts = 1;
};

void expect_bits_of_one_card(const std::string& folder, AscendOptions options, const Shares& shares) {
  auto alone = open_ascend(folder, options);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const std::vector<float> expected = traffic(**alone, {0, 0, 0});
  alone->reset();
  options.sequence_parts = shares.parts;
  options.ep_size = shares.experts;
  auto world = engine::LocalWorld::start(
      shares.cards,
      [folder, options](std::shared_ptr<ranks::Member> member) {
        AscendOptions own = options;
        own.member = std::move(member);
        return open_ascend(folder, own);
      },
      std::chrono::seconds(120));
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  const int last = shares.parts - 1;
  for (const std::vector<int>& where : {std::vector<int>{0, 0, last}, {0, 1, 1}, {last, last, last}}) {
    const std::vector<float> got = traffic(front, where);
    ASSERT_EQ(got.size(), expected.size());
    const auto [at, wanted] = std::mismatch(got.begin(), got.end(), expected.begin());
    EXPECT_TRUE(at == got.end()) << "requests in " << fmt::format("{}", fmt::join(where, ", ")) << ": logit "
                                 << at - got.begin() << " is " << *at << " instead of " << *wanted;
  }
  EXPECT_GT(applied(front, "rows of part 0 of "), 0);
  EXPECT_GT(front.counters().idle_steps[static_cast<size_t>(last)], 0u);
  if (options.policy != engine::GraphPolicy::Off) {
    EXPECT_GT(front.runner("decode")->stats().replays, 0u);
    EXPECT_GT(front.runner("prefill")->stats().replays, 0u);
  }
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

AscendOptions usual() { return {.prefill_sizes = {64, 128}, .context = 128}; }

void expect_in_every_mode(const std::string& folder, const Shares& shares) {
  AscendOptions eager = usual(), whole = usual(), pieces = usual();
  eager.policy = engine::GraphPolicy::Off;
  whole.prefill = GraphMode::Whole;
  pieces.decode = GraphMode::Piecewise;
  for (const AscendOptions& options : {usual(), eager, whole, pieces}) {
    SCOPED_TRACE(fmt::format("prefill {}, decode {}{}", graph_mode_name(options.prefill),
                             graph_mode_name(options.decode),
                             options.policy == engine::GraphPolicy::Off ? ", no graphs" : ""));
    expect_bits_of_one_card(folder, options, shares);
  }
}

// Sequences of 2, 1 and 3 rows in parts 0, 1 and 1; a part 2 has none.
TEST(AscendParts, ARankSeesTheRowsOfItsPartAlone) {
  const std::vector<int32_t> part_rows{0, 2, 6, 6}, slots{130, 131, 257, 384, 385, 386, -1, -1}, borders{0, 2, 3, 6, 6};
  std::vector<int32_t> own_slots(8), own_cu_seqlens(5), own_rows(8);
  const auto see = [&](int part) {
    models::see_part({part_rows, slots, borders, own_slots, own_cu_seqlens, own_rows}, part, {{}, true});
  };
  using Ints = std::vector<int32_t>;
  see(1);
  EXPECT_EQ(own_slots, (Ints{-1, -1, 257, 384, 385, 386, -1, -1}));
  EXPECT_EQ(own_cu_seqlens, (Ints{2, 2, 3, 6, 6}));
  EXPECT_EQ(own_rows, (Ints{0, 0, 1, 1, 1, 1, 0, 0}));
  see(2);
  EXPECT_EQ(own_slots, Ints(8, -1));
  EXPECT_EQ(own_cu_seqlens, Ints(5, 6));
  EXPECT_EQ(own_rows, Ints(8, 0));
  see(0);
  EXPECT_EQ(own_slots, (Ints{130, 131, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(own_cu_seqlens, (Ints{0, 2, 2, 2, 2}));
  EXPECT_EQ(own_rows, (Ints{1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(AscendParts, LatentsHaveTheBitsOfOneCardInEveryMode) {
  const testing_support::WideLatents wide("deepseek_v3_moe", 8);
  expect_in_every_mode(wide.path(), {2, 2});
}

TEST(AscendParts, ExpertsOverAllCardsKeepTheBits) {
  const testing_support::WideLatents wide("deepseek_v3_moe", 8);
  expect_bits_of_one_card(wide.path(), usual(), {2, 2, 2});
}

// Two cards have the heads of a part, so columns are cut besides rows.
TEST(AscendParts, PartsOfSeveralCardsKeepTheBits) {
  const testing_support::WideLatents wide("deepseek_v3_moe", 8);
  expect_bits_of_one_card(wide.path(), usual(), {4, 2});
  expect_bits_of_one_card(REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied", usual(), {4, 2});
}

TEST(AscendParts, KeysAndValuesHaveTheBitsOfOneCard) {
  expect_in_every_mode(REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied", {2, 2});
}

// To a rank the rows of other parts are rows of no sequence, here more than a page has slots.
TEST(AscendParts, LongPromptsOfAnotherPartHaveSlotsOfTheirOwn) {
  const std::string folder = REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied";
  const AscendOptions options{.prefill_sizes = {512}, .context = 512, .chunk = 512};
  const auto logits_of = [](engine::Engine& e, int part) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 300; ++i) prompt.push_back((i * 37 + 11) % 97);
    engine::Sequence s(prompt);
    EXPECT_TRUE(e.reserve(s, 300, part).is_ok());
    engine::StepItem item{&s, 300, 1};
    item.part = part;
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    std::vector<float> out;
    if (logits.is_ok()) out.assign(logits->begin(), logits->end());
    e.release(s, part);
    return out;
  };
  auto alone = open_ascend(folder, options);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const std::vector<float> expected = logits_of(**alone, 0);
  alone->reset();
  auto world = engine::LocalWorld::start(
      2,
      [folder, options](std::shared_ptr<ranks::Member> member) {
        AscendOptions own = options;
        own.sequence_parts = 2;
        own.member = std::move(member);
        return open_ascend(folder, own);
      },
      std::chrono::seconds(120));
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  for (const int part : {0, 1}) EXPECT_EQ(logits_of((*world)->front(), part), expected) << part;
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

// A padding row of the last part writes over a token of that part, by what each rank stages of it; what it has spoilt
// is computed again.
TEST(AscendParts, ALeakOfAPaddingRowIsFound) {
  const std::string folder = REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied";
  AscendOptions options = usual();
  auto alone = open_ascend(folder, options);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const std::vector<float> expected = traffic(**alone, {0, 0, 0});
  options.sequence_parts = 2;
  options.verify_replay = 1;
  options.faults = {"padding-leak@5"};
  auto world = engine::LocalWorld::start(
      2,
      [folder, options](std::shared_ptr<ranks::Member> member) {
        AscendOptions own = options;
        own.member = std::move(member);
        return open_ascend(folder, own);
      },
      std::chrono::seconds(120));
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& front = (*world)->front();
  EXPECT_EQ(traffic(front, {0, 1, 1}), expected);
  EXPECT_EQ(front.counters().differences, 1u);
  const auto bad = front.runner("decode")->quarantined();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_NE(bad.begin()->second.find("in step 5 on rank "), std::string::npos) << bad.begin()->second;
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

// Logits of two sequences with drafts, and behind those of a prompt. Of parts these are two, which submit both at once.
std::vector<float> drafts_and_prompt(engine::Engine& e, engine::SharedStep* parts) {
  const int reading = parts ? 1 : 0;
  const std::vector<int32_t> drafts{4, 9, 2};
  std::vector<engine::Sequence> two;
  two.emplace_back(std::vector<int32_t>{3, 1, 4, 1, 5});
  two.emplace_back(std::vector<int32_t>{2, 7, 1, 8, 2, 8, 1});
  engine::Sequence prompt(std::vector<int32_t>(20, 6));
  EXPECT_TRUE(e.reserve(prompt, 20, reading).is_ok());
  std::vector<engine::StepItem> items;
  for (engine::Sequence& s : two) {
    EXPECT_TRUE(e.reserve(s, 20).is_ok());
    const engine::StepItem item{&s, s.size() - 1, 0};
    EXPECT_TRUE(e.step({&item, 1}).is_ok());
    items.push_back({.sequence = &s, .count = 4, .logits = 4, .drafts = drafts});
  }
  const engine::StepItem whole{&prompt, 20, 1};
  std::vector<float> out;
  const auto take = [&](const Result<engine::StepResult>& result) {
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    if (result.is_ok()) out.insert(out.end(), result->logits.begin(), result->logits.end());
  };
  constexpr auto kLogits = engine::StepOutput::Logits;
  if (parts) {
    engine::Executor &first = parts->part(0), &second = parts->part(1);
    const auto a = first.submit(items, kLogits), b = second.submit({&whole, 1}, kLogits);
    const auto got = first.wait(*a), more = second.wait(*b);
    take(got), take(more);
  } else {
    take(e.wait(*e.submit(items, kLogits)));
    take(e.wait(*e.submit({&whole, 1}, kLogits)));
  }
  for (engine::Sequence& s : two) e.release(s);
  e.release(prompt, reading);
  return out;
}

// Graphs of prompts have rows with logits for single tokens alone.
TEST(AscendParts, DraftsOfOnePartMeetAPromptOfAnother) {
  const std::string folder = REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied";
  AscendOptions options = usual();
  options.verify = {4};
  auto alone = open_ascend(folder, options);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const std::vector<float> expected = drafts_and_prompt(**alone, nullptr);
  EXPECT_EQ(expected.size(), static_cast<size_t>(9 * (*alone)->vocab_size()));
  alone->reset();
  options.sequence_parts = 2;
  auto world = engine::LocalWorld::start(
      2,
      [folder, options](std::shared_ptr<ranks::Member> member) {
        AscendOptions own = options;
        own.member = std::move(member);
        return open_ascend(folder, own);
      },
      std::chrono::seconds(120));
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::SharedStep parts((*world)->front());
  EXPECT_EQ(drafts_and_prompt((*world)->front(), &parts), expected);
  EXPECT_GT((*world)->front().runner("verify")->stats().replays, 0u);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

// Steps and prompts by the operators before the fused one.
TEST(AscendParts, TheOlderAttentionKeepsTheBits) {
  AscendOptions options = usual();
  options.fia = false;
  expect_bits_of_one_card(REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied", options, {2, 2});
}

}  // namespace
}  // namespace reprise::ascend_parts_test
