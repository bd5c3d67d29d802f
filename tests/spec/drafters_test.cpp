// What the drafters propose, against a plain search over all places, and the store of answers.
#include <gtest/gtest.h>

#include <random>

#include "base/split_mix.h"
#include "spec/ngram_drafter.h"
#include "spec/suffix_drafter.h"

namespace reprise::spec {
namespace {

using Tokens = std::vector<int32_t>;

Tokens random_text(std::mt19937& rng, size_t size, uint32_t letters) {
  Tokens t(size);
  for (int32_t& v : t) v = static_cast<int32_t>(rng() % letters);
  return t;
}

// Of the last 16 places before the end of `key` at which its last `shortest` tokens stand in `text`: the latest of
// those with the most tokens in common. {0, 0}: there is none.
TextIndex::Match searched(const Tokens& text, size_t end, const Tokens& key, int64_t shortest, int64_t longest) {
  TextIndex::Match best;
  int seen = 0;
  for (auto next = static_cast<int64_t>(end); next >= shortest && seen < 16; --next) {
    int64_t g = 0;
    while (g < longest && g < next && g < static_cast<int64_t>(key.size()) &&
           text[static_cast<size_t>(next - 1 - g)] == key[key.size() - 1 - static_cast<size_t>(g)])
      ++g;
    if (g < shortest) continue;
    ++seen;
    if (g > best.length) best = {g, next};
  }
  return best;
}

Proposal propose(Drafter& drafter, uint64_t id, const Tokens& tokens, int64_t most = 8) {
  const Wish wish{id, tokens, most};
  Proposal out;
  drafter.propose({&wish, 1}, {&out, 1});
  return out;
}

TEST(NgramDrafter, TakesTheLatestOfTheLongestMatches) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    SpecOptions o;
    o.shortest_match = 1 + static_cast<int64_t>(rng() % 4);
    o.longest_match = o.shortest_match + static_cast<int64_t>(rng() % 8);
    NgramDrafter drafter(o);
    const Tokens prediction = rng() % 2 ? random_text(rng, rng() % 60, 4) : Tokens{};
    drafter.begin({7, prediction, {}});
    Tokens text = random_text(rng, 1 + rng() % 120, 2 + rng() % 5);
    for (int step = 0; step < 40; ++step) {
      const TextIndex::Match own = searched(text, text.size() - 1, text, o.shortest_match, o.longest_match);
      const TextIndex::Match told = searched(prediction, prediction.size(), text, o.shortest_match, o.longest_match);
      const bool by_client =
          told.length > 0 && told.length >= own.length && told.next < static_cast<int64_t>(prediction.size());
      const Tokens& from = by_client ? prediction : text;
      const auto next = static_cast<size_t>(by_client ? told.next : own.next);
      // A text that goes on as it repeats itself: each token is that of one period before.
      Tokens all = from, want;
      while (!by_client && all.size() < next + 5) all.push_back(all[next + all.size() - from.size()]);
      if (by_client || own.length > 0)
        want.assign(all.begin() + static_cast<ptrdiff_t>(next),
                    all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), next + 5)));
      const Proposal got = propose(drafter, 7, text, 5);
      ASSERT_EQ(got.tokens, want) << "round " << round << ", step " << step;
      ASSERT_EQ(got.survival.size(), want.size());
      for (size_t i = 1; i < got.survival.size(); ++i) EXPECT_LE(got.survival[i], got.survival[i - 1]);
      for (auto n = 1 + rng() % 3; n > 0; --n) text.push_back(static_cast<int32_t>(rng() % 4));
    }
    drafter.end(7, text);
    EXPECT_TRUE(propose(drafter, 7, text).tokens.empty());
  }
}

TEST(NgramDrafter, WhatRepeatsGoesOnBehindTheEnd) {
  NgramDrafter drafter({});
  drafter.begin({1, {}, {}});
  EXPECT_EQ(propose(drafter, 1, {4, 9, 9, 9, 9}, 6).tokens, Tokens(6, 9));
  drafter.begin({2, {}, {}});
  EXPECT_EQ(propose(drafter, 2, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3}, 7).tokens, (Tokens{4, 1, 2, 3, 4, 1, 2}));
  const Tokens predicted{5, 6, 7, 8};  // a prediction ends where it ends
  drafter.begin({3, predicted, {}});
  EXPECT_EQ(propose(drafter, 3, {5, 6, 7}, 4).tokens, Tokens{8});
}

TEST(NgramDrafter, ALongTextStaysKnown) {
  NgramDrafter drafter({});
  drafter.begin({1, {}, {}});
  Tokens text(60'000);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(split_mix(i) % 50'000);
  const Tokens begin(text.begin() + 100, text.begin() + 112), next(text.begin() + 112, text.begin() + 120);
  (void)propose(drafter, 1, text);
  text.insert(text.end(), begin.begin(), begin.end());
  EXPECT_EQ(propose(drafter, 1, text).tokens, next);
}

TEST(NgramDrafter, ShortMatchesThatMisleadLoseTheirChance) {
  NgramDrafter drafter({});
  drafter.begin({1, {}, {}});
  const Tokens three{1, 2, 3, 4, 9, 9, 1, 2, 3};
  const float before = propose(drafter, 1, three).survival.at(0);
  EXPECT_NEAR(before, 0.5, 1e-6);
  for (int i = 0; i < 200; ++i) drafter.judged(1, 4, 0);
  EXPECT_LT(propose(drafter, 1, three).survival.at(0), 0.05);
  for (int i = 0; i < 200; ++i) drafter.judged(1, 4, 4);
  EXPECT_GT(propose(drafter, 1, three).survival.at(0), 0.9);
  // Longer ones are known apart.
  const Tokens eight{1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  drafter.begin({2, {}, {}});
  EXPECT_NEAR(propose(drafter, 2, eight).survival.at(0), 0.9, 1e-6);
}

TEST(SuffixDrafter, DraftsWhatCameMostOften) {
  SpecOptions o;
  o.suffix_factor = 4;
  SuffixDrafter drafter(o);
  const auto answered = [&](uint64_t id, std::string_view salt, const Tokens& answer) {
    drafter.begin({id, {}, salt});
    drafter.end(id, answer);
  };
  answered(1, "", {5, 6, 7, 8, 1, 1});
  answered(2, "", {5, 6, 7, 9, 2, 2});
  answered(3, "", {5, 6, 7, 8, 1, 3});
  drafter.begin({4, {}, ""});
  const Proposal p = propose(drafter, 4, {0, 5, 6, 7});
  ASSERT_GE(p.tokens.size(), 3u);
  EXPECT_EQ(Tokens(p.tokens.begin(), p.tokens.begin() + 2), (Tokens{8, 1}));
  EXPECT_EQ(p.tokens[2], 3) << "of two that are as frequent, the later one";
  EXPECT_NEAR(p.survival[0], 0.5 * 2 / 3, 1e-5);
  EXPECT_NEAR(p.survival[1], 0.25 * 2 / 3, 1e-5);
  EXPECT_NEAR(p.survival[2], 0.125 / 3, 1e-5);
  // Nobody with another salt.
  drafter.begin({5, {}, "other"});
  EXPECT_TRUE(propose(drafter, 5, {0, 5, 6, 7}).tokens.empty());
  answered(6, "other", {5, 6, 7, 4, 4, 4});
  EXPECT_EQ(propose(drafter, 5, {0, 5, 6, 7}).tokens.at(0), 4);
  EXPECT_EQ(propose(drafter, 4, {0, 5, 6, 7}).tokens.at(0), 8);
}

TEST(SuffixDrafter, NoMoreDraftsThanTheMatchIsWorth) {
  SpecOptions o;
  SuffixDrafter drafter(o);
  drafter.begin({1, {}, ""});
  Tokens text;
  for (int32_t i = 0; i < 40; ++i) text.push_back(i);
  for (int32_t i = 0; i < 4; ++i) text.push_back(10 + i);
  EXPECT_EQ(propose(drafter, 1, text, 20).tokens, (Tokens{14, 15, 16, 17}));
}

TEST(AnswerStore, HoldsTheLatestAnswersWithinItsBounds) {
  AnswerStore store(3, 4, 40);
  const auto holds = [&](std::string_view salt, int32_t first) {
    bool found = false;
    const Tokens key{first, first + 1, first + 2};
    store.places(salt, key, 8, [&](const TextIndex::Match& m, std::span<const int32_t> follows) {
      EXPECT_EQ(m.length, 3);
      EXPECT_EQ(follows[0], first + 3);
      EXPECT_EQ(follows[1], AnswerStore::kBorder);
      return found = true;
    });
    return found;
  };
  for (int32_t i = 0; i < 1000; ++i) {
    store.add(i % 3 == 0 ? "a" : "b", Tokens{10 * i, 10 * i + 1, 10 * i + 2, 10 * i + 3});
    for (int32_t j = std::max(0, i - 8); j <= i; ++j)
      ASSERT_EQ(holds(j % 3 == 0 ? "a" : "b", 10 * j), j > i - 4) << i << " " << j;
    EXPECT_FALSE(holds(i % 3 == 0 ? "b" : "a", 10 * i));
    EXPECT_LE(store.answers(), 4);
  }
  EXPECT_EQ(store.tokens(), 20);
  store.add("a", Tokens(39, 1));  // all the room
  EXPECT_EQ(store.answers(), 1);
  EXPECT_EQ(store.tokens(), 40);
  store.add("a", Tokens(40, 2));
  EXPECT_EQ(store.tokens(), 40) << "one that does not fit drove others out";
  store.add("a", Tokens{1, 2});
  EXPECT_EQ(store.answers(), 1) << "one that no match can lie in was kept";
}

TEST(SpecOptions, NamesAndRanges) {
  EXPECT_EQ(*parse_algorithm("ngram"), Algorithm::Ngram);
  EXPECT_EQ(*parse_algorithm("SUFFIX"), Algorithm::Suffix);
  EXPECT_EQ(*parse_algorithm("standalone"), Algorithm::Model);
  EXPECT_EQ(*parse_algorithm("none"), Algorithm::None);
  EXPECT_EQ(*parse_algorithm("NEXTN"), Algorithm::Prediction);
  EXPECT_EQ(*parse_algorithm("mtp"), Algorithm::Prediction);
  EXPECT_EQ(*parse_algorithm("EAGLE"), Algorithm::Eagle);
  EXPECT_EQ(*parse_algorithm("eagle3"), Algorithm::Eagle3);
  EXPECT_NE(parse_algorithm("medusa").status().message().find("\"medusa\" is not known; allowed: NGRAM, SUFFIX, "
                                                              "STANDALONE, NEXTN, MTP, EAGLE, EAGLE3, none"),
            std::string::npos);
  EXPECT_TRUE(SpecOptions{}.check().is_ok());
  const auto bad = [](auto change, std::string_view part) {
    SpecOptions o;
    change(o);
    const Status s = o.check();
    ASSERT_FALSE(s.is_ok()) << part;
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  };
  bad([](SpecOptions& o) { o.draft_tokens = 0; }, "`speculative_num_draft_tokens` is 0; allowed: 1");
  bad([](SpecOptions& o) { o.draft_tokens = 65; },
      "`speculative_num_draft_tokens` is 65; allowed: 1 (no drafts) to 64");
  bad([](SpecOptions& o) { o.shortest_match = 0; }, "`speculative_ngram_min_match_window_size` is 0");
  bad([](SpecOptions& o) { o.longest_match = 2; }, "`speculative_ngram_max_match_window_size` is 2; allowed: 3");
  bad([](SpecOptions& o) { o.suffix_tokens = 0; }, "`speculative_ngram_capacity` is 0");
}

}  // namespace
}  // namespace reprise::spec
