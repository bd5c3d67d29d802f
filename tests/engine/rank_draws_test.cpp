// Tokens that the hosts of several ranks draw together, with their log-probabilities, are those that one host draws
// from whole rows: for every kind of Draw, in more rows than are exchanged at once, and call after call.
#include "engine/rank_draws.h"

#include <gtest/gtest.h>

#include "backends/draw_cases.h"
#include "backends/shared_pool.h"
#include "engine/sampling.h"
#include "ops/draw_rule.h"
#include "support/ranked_hosts.h"

namespace reprise::engine::rank_draws_test {
namespace {

using cpu::TestTensor;

constexpr int64_t kRows = 24, kVocabulary = 2100;
const std::vector<int64_t> kBorders{0, 768, 1280, kVocabulary};

struct Case {
  TestTensor logits = cpu::logits_of(kRows, kVocabulary, 5);
  cpu::EditTensors edits = cpu::staged(cpu::edit_cases(kRows, kVocabulary, 23));
  std::vector<Draw> draws = cpu::draws_for(kRows, 77);
};

std::span<const int32_t> ints(const TestTensor& t) { return {t.as<int32_t>(), static_cast<size_t>(t.size())}; }

Case make_case() {
  Case c;
  for (const size_t row : {2, 9, 12, 20, 21})  // of the five edits
    c.draws[row].edited = static_cast<int32_t>(1 + row % 5);
  c.draws[4].logprobs = 0;
  c.logits.set(7 * kVocabulary + 1500, NAN);
  return c;
}

DrawnRows on_one_host(const Case& c) {
  const TestTensor edited = cpu::OpRunner(cpu::supported_isas().back())
                                .run("mask_logits", {c.logits, c.edits.edits, c.edits.words}, {}, {})[0];
  DrawnRows out;
  out.add(kRows, nullptr);
  std::vector<draw::Candidate> scratch(kVocabulary);
  for (size_t r = 0; r < kRows; ++r) {
    const Draw& d = c.draws[r];
    const float* plain = c.logits.as<float>() + r * kVocabulary;
    const float* row = d.edited > 0 ? edited.as<float>() + (d.edited - 1) * kVocabulary : plain;
    out.tokens[r] = draw::token(row, kVocabulary, d, scratch.data());
    if (d.logprobs < 0 || out.tokens[r] < 0) continue;
    const auto told = score_token({plain, kVocabulary}, out.tokens[r], d.logprobs);
    EXPECT_TRUE(told.is_ok()) << told.status().message();
    out.logprobs[r] = *told->logprob;
    for (size_t k = 0; k < told->top.size(); ++k) {
      out.top_tokens[r * kMostTopTokens + k] = told->top[k].token;
      out.top_logprobs[r * kMostTopTokens + k] = told->top[k].logprob;
    }
  }
  return out;
}

void expect_equal(const DrawnRows& got, const DrawnRows& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.top_tokens, want.top_tokens);
  EXPECT_EQ(got.top_logprobs, want.top_logprobs);
}

template <typename T>
void behind(std::vector<T>& list, int64_t count) {
  list.erase(list.begin(), list.begin() + count);
}

TEST(RankDraws, DrawWhatOneHostDraws) {
  const Case c = make_case();
  const DrawnRows want = on_one_host(c);
  EXPECT_EQ(want.tokens[7], -1);
  const TestTensor draws = cpu::draws_of(c.draws);
  for (const std::vector<int>& hosts : {std::vector<int>{3}, {2, 1}}) {
    const testing_support::RankedHosts host(hosts);
    host.run([&](ranks::Member& member) {
      const auto rank = static_cast<size_t>(member.world().rank);
      SharedPool pool(member.region());
      auto made = RankDraws::make(host.member(member.world().rank), pool, kBorders);
      ASSERT_TRUE(made.is_ok()) << made.status().message();
      const int64_t first = kBorders[rank], count = kBorders[rank + 1] - first;
      const TestTensor own = cpu::columns_of(c.logits, first, count);
      for (int call = 0; call < 3; ++call) {
        DrawnRows out;
        out.add(2, want.tokens.data());  // of a part before
        out.add(kRows, nullptr);
        out.tokens[2] = want.tokens[0];  // one is known
        const Status drawn =
            (*made)->draw({own.as<float>(), ints(draws), ints(c.edits.edits), ints(c.edits.words)}, 2, out);
        ASSERT_TRUE(drawn.is_ok()) << drawn.message();
        behind(out.tokens, 2);
        behind(out.logprobs, 2);
        behind(out.top_tokens, 2 * kMostTopTokens);
        behind(out.top_logprobs, 2 * kMostTopTokens);
        expect_equal(out, want);
      }
      EXPECT_EQ((*made)->whole_rows(), 0u);  // no rank has more tokens than it sends
    });
  }
}

// What decides whether a step waits for the hosts.
TEST(RankDraws, SomeDrawsAreLeftToTheHosts) {
  const auto none = [](const Draw& d) { return RankDraws::leaves_none(d, kVocabulary); };
  EXPECT_TRUE(none({.scale = 0}));
  EXPECT_TRUE(none({.scale = 1}));
  EXPECT_TRUE(none({.scale = 1, .min_p = 0.1f}));
  EXPECT_TRUE(none({.scale = 1, .top_p = 0.9f, .top_k = 1024}));
  EXPECT_FALSE(none({.scale = 1, .top_k = 1025}));
  EXPECT_FALSE(none({.scale = 1, .top_p = 0.9f}));
  EXPECT_FALSE(none({.scale = 1, .logprobs = 0}));
}

}  // namespace
}  // namespace reprise::engine::rank_draws_test
