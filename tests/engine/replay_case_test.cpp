// The step of a replay report: every number has a range, and an error names the field and what is allowed.
#include "engine/replay_case.h"

#include <gtest/gtest.h>

#include "engine/sequence.h"

namespace reprise::engine::replay_case_test {
namespace {

std::string one(const std::string& fields) { return "{\"sequences\": [{" + fields + "}]}"; }
std::string with_tokens(const std::string& tokens) {
  return one("\"tokens\": " + tokens + ", \"cached\": 0, \"count\": 1");
}
std::string with_counts(const std::string& cached, const std::string& count) {
  return one("\"tokens\": [1, 2, 3], \"cached\": " + cached + ", \"count\": " + count);
}

struct Bad {
  std::string text, part;
};

TEST(ReplayCase, EveryFieldHasARange) {
  const std::vector<Bad> bad{
      {"", "not valid JSON"},
      {"[]", "array is not a replay report"},
      {"{}", "sequences is missing; allowed: a list of 1 to 4096"},
      {"{\"sequences\": null}", "sequences is null; allowed: a list"},
      {"{\"sequences\": []}", "sequences is a list of 0"},
      {"{\"sequences\": [7]}", "sequences[0] is 7; allowed: an object"},
      {"{\"sequences\": [[]]}", "sequences[0] is array; allowed: an object"},
      {one(""), "sequences[0] has no \"tokens\""},
      {one("\"tokens\": [1], \"cached\": 0"), "sequences[0] has no \"count\""},
      {one("\"tokens\": [1], \"count\": 1"), "sequences[0] has no \"cached\""},
      {one("\"tokens\": [1], \"cash\": 0, \"count\": 1"), "unknown field \"cash\"; allowed: tokens, cached, count"},
      {with_tokens("3"), "sequences[0].tokens is 3; allowed: a list of 1"},
      {with_tokens("[]"), "sequences[0].tokens is a list of 0"},
      {with_tokens("[1, \"2\"]"), "sequences[0].tokens[1] is \"2\"; allowed: whole numbers from 0 to 2147483647"},
      {with_tokens("[1, 2.5]"), "sequences[0].tokens[1] is 2.5"},
      {with_tokens("[-1]"), "sequences[0].tokens[0] is -1"},
      // One that wraps round to 5, and one beyond all integers.
      {with_tokens("[4294967301]"),
       "sequences[0].tokens[0] is 4294967301; allowed: whole numbers from 0 to 2147483647"},
      {with_tokens("[18446744073709551616]"), "sequences[0].tokens[0] is 1.8446744073709552e+19"},
      {with_counts("-1", "1"), "sequences[0].cached is -1; allowed: whole numbers from 0 to 2"},
      {with_counts("3", "1"), "sequences[0].cached is 3; allowed: whole numbers from 0 to 2"},
      {with_counts("9223372036854775808", "1"), "sequences[0].cached is 9223372036854775808"},
      {with_counts("18446744073709551615", "2"), "sequences[0].cached is 18446744073709551615"},
      {with_counts("null", "1"), "sequences[0].cached is null"},
      {with_counts("1", "0"), "sequences[0].count is 0; allowed: whole numbers from 1 to 2"},
      {with_counts("1", "3"), "sequences[0].count is 3; allowed: whole numbers from 1 to 2"},
      {with_counts("1", "9223372036854775807"), "sequences[0].count is 9223372036854775807"},
      {with_counts("1", "true"), "sequences[0].count is true"},
      {with_counts("1", "2, \"drafts\": 2"), "sequences[0].drafts is 2; allowed: whole numbers from 0 to 1"},
      {with_counts("0", "2, \"drafts\": 1"), "sequences[0].drafts is 1; allowed: 0 where cached and count are not all"},
      {with_counts("0", "1, \"logits\": 3"), "sequences[0].logits is 3; allowed: \"none\", \"last\", \"all\""},
      {with_counts("0", "1, \"logits\": null"), "sequences[0].logits is null"},
      {with_counts("0", "1, \"logits\": {}"), "sequences[0].logits is object"},
      {with_counts("0", "1, \"logits\": \"each\""), "sequences[0].logits is \"each\""}};
  for (const Bad& b : bad) {
    const auto c = parse_case(b.text, "r.json");
    ASSERT_FALSE(c.is_ok()) << b.text;
    EXPECT_TRUE(c.status().message().starts_with("r.json: ")) << c.status().message();
    EXPECT_NE(c.status().message().find(b.part), std::string::npos) << c.status().message() << "\n" << b.part;
    EXPECT_EQ(c.status().message().find('\n'), std::string::npos) << c.status().message();
  }
}

TEST(ReplayCase, WhatIsWrittenIsRead) {
  Sequence a({5, 6, 7, 8}), b({9, 3}), c({4, 2});
  a.set_cached(3);
  c.set_cached(1);
  const std::vector<int32_t> drafts{7, 1};
  const StepItem items[] = {{&a, 1, 1}, {&b, 2, 2}, {&c, 3, 3, drafts}};
  OrderedJson report;
  report["what"] = "logits row 0";
  report["sequences"] = items_json(items);
  const auto read = parse_case(report.dump(), "r.json");
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  ASSERT_EQ(read->sequences.size(), 3u);
  EXPECT_EQ(read->sequences[0].tokens, a.tokens());
  EXPECT_EQ(read->sequences[0].cached, 3);
  EXPECT_EQ(read->sequences[0].count, 1);
  EXPECT_EQ(read->sequences[0].drafts, 0);
  EXPECT_FALSE(read->sequences[0].all);
  EXPECT_TRUE(read->sequences[1].all);
  EXPECT_EQ(read->sequences[2].tokens, (std::vector<int32_t>{4, 2, 7, 1}));
  EXPECT_EQ(read->sequences[2].count, 3);
  EXPECT_EQ(read->sequences[2].drafts, 2);
}

TEST(ReplayCase, AnEnginesLimitsAreKept) {
  const auto read = [](const std::string& text) {
    auto c = parse_case(text, "r.json");
    EXPECT_TRUE(c.is_ok()) << c.status().message();
    return std::move(*c);
  };
  const std::string two = "{\"tokens\": [1, 2, 3], \"cached\": 1, \"count\": 2, \"logits\": \"all\"}";
  const ReplayCase c = read("{\"sequences\": [" + two + ", " + two + "]}");
  EXPECT_TRUE(check_case(c, {4, 3, 4, 4}, "r.json").is_ok());
  const std::pair<CaseLimits, const char*> limits[] = {
      {{3, 3, 4, 4}, "sequences[0].tokens[2] is 3; allowed: 0 to 2 (the model's vocabulary)"},
      {{4, 2, 4, 4}, "sequences[0].cached and count together is 3; allowed: up to 2 (the context"},
      {{4, 3, 3, 4}, "the sum of count is 4; allowed: up to 3 (`chunked_prefill_size`)"},
      {{4, 3, 4, 3}, "the number of rows with logits is 4; allowed: up to 3 (`max_running_requests`)"},
      {{4, 3, 4, 1}, "the number of sequences is 2; allowed: up to 1 (`max_running_requests`)"}};
  for (const auto& [limit, part] : limits) {
    const Status s = check_case(c, limit, "r.json");
    ASSERT_FALSE(s.is_ok()) << part;
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  }
}

}  // namespace
}  // namespace reprise::engine::replay_case_test
