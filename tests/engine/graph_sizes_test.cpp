// The size rules, number by number (F02, F03, F04, F23).
#include "engine/graph_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "support/goldens.h"

namespace reprise::engine::graph_sizes_test {
namespace {

using Sizes = std::vector<int64_t>;

// Lists that SGLang's own functions returned; "made_by" names commits and lines (tools/golden/make_graph_sizes.py).
const Json& originals() {
  static const Json lists = testing_support::golden_json("graph_sizes.json");
  return lists;
}

constexpr std::pair<const char*, SizeRule> kRules[] = {
    {"normal", SizeRule::Padded}, {"speculative", SizeRule::Speculative}, {"no_padding", SizeRule::Exact}};

TEST(GraphSizes, DecodeRuleIsTheOriginalsNumberByNumber) {
  for (const auto& [name, rule] : kRules) {
    const Json& lists = originals().at("rule").at(name);
    EXPECT_GE(lists.size(), 40u) << name;
    for (const auto& [largest, sizes] : lists.items())
      EXPECT_EQ(decode_sizes_by_rule(std::stoll(largest), rule), sizes.get<Sizes>()) << name << " " << largest;
  }
}

// The later original appends the largest size where the rule leaves it out, as decode_sizes() does.
TEST(GraphSizes, TheLargestItselfIsThereAsInTheLaterOriginal) {
  for (const auto& [name, rule] : kRules)
    for (const auto& [largest, sizes] : originals().at("with_largest").at(name).items())
      EXPECT_EQ(decode_sizes(std::stoll(largest), rule), sizes.get<Sizes>()) << name << " " << largest;
}

// What is captured where fewer requests run than the largest size: the list up to them, and their number itself.
TEST(GraphSizes, FewerRequestsThanTheLargestSizeCutTheListAsInTheOriginal) {
  const Json& rows = originals().at("slots");
  EXPECT_GE(rows.size(), 20u);
  for (const Json& row : rows) {
    const int64_t largest = row.at("largest"), slots = row.at("slots");
    EXPECT_EQ(decode_sizes(std::min(largest, slots)), row.at("sizes").get<Sizes>()) << largest << " of " << slots;
  }
}

TEST(GraphSizes, PrefillRuleIsTheOriginalsNumberByNumber) {
  const Json& lists = originals().at("tokens");
  EXPECT_GE(lists.size(), 30u);
  for (const auto& [largest, sizes] : lists.items())
    EXPECT_EQ(prefill_sizes_by_rule(std::stoll(largest)), sizes.get<Sizes>()) << largest;
  EXPECT_EQ(prefill_sizes(4096).size(), 58u);
  EXPECT_EQ(prefill_sizes(4100).back(), 4100);
}

TEST(GraphSizes, TheSmallestSizeThatHoldsTheBatch) {
  const auto sizes = decode_sizes(64);
  EXPECT_EQ(choose_size(sizes, 1), 1);
  EXPECT_EQ(choose_size(sizes, 3), 4);
  EXPECT_EQ(choose_size(sizes, 33), 40);
  EXPECT_EQ(choose_size(sizes, 64), 64);
  EXPECT_EQ(choose_size(sizes, 65), std::nullopt);
  EXPECT_EQ(choose_size({}, 1), std::nullopt);
}

TEST(GraphSizes, FewerAreSpreadOverAll) {
  const std::vector<int64_t> all{1, 2, 4, 8, 12, 16, 24};
  EXPECT_EQ(spread_sizes(all, 0), (std::vector<int64_t>{}));
  EXPECT_EQ(spread_sizes(all, 1), (std::vector<int64_t>{24}));
  EXPECT_EQ(spread_sizes(all, 2), (std::vector<int64_t>{1, 24}));
  EXPECT_EQ(spread_sizes(all, 3), (std::vector<int64_t>{1, 8, 24}));
  EXPECT_EQ(spread_sizes(all, 4), (std::vector<int64_t>{1, 4, 12, 24}));
  for (size_t count = 0; count <= all.size() + 1; ++count) {
    const auto few = spread_sizes(all, count);
    EXPECT_EQ(few.size(), std::min(count, all.size()));
    EXPECT_EQ(std::adjacent_find(few.begin(), few.end(), std::greater_equal<>()), few.end()) << "ascending, each once";
  }
}

// Batches of the original's list for drafts, times the rows of a sequence.
TEST(GraphSizes, StepsWithDraftsHaveTheOriginalsBatchesTimesTheirWidths) {
  const Json& lists = originals().at("with_largest").at("speculative");
  const auto sorted = [](Sizes s) {
    std::sort(s.begin(), s.end());
    s.erase(std::unique(s.begin(), s.end()), s.end());
    return s;
  };
  for (const auto& [largest, batches] : lists.items()) {
    const int64_t most = std::stoll(largest);
    for (const int64_t each : {2, 3, 8, 16}) {
      Sizes fixed, any;
      for (const int64_t n : batches.get<Sizes>()) fixed.push_back(n * each);
      EXPECT_EQ(verify_sizes({each, false}, most), fixed) << largest << " times " << each;
      for (const int64_t n : batches.get<Sizes>())
        for (const int64_t width : {int64_t{2}, int64_t{4}, each})
          if (width <= each) any.push_back(n * width);
      EXPECT_EQ(verify_sizes({each}, most), sorted(any)) << largest << " times up to " << each;
    }
  }
}

TEST(GraphSizes, AWidthIsOnlyThereInBatchesThatCanReachIt) {
  // 20 rows: 2 sequences of 8, 5 of 4, 10 of 2.
  EXPECT_EQ(verify_sizes({8, true, 20}, 64), (Sizes{2, 4, 6, 8, 10, 12, 14, 16, 20}));
  EXPECT_EQ(verify_sizes({8, false, 20}, 64), (Sizes{8, 16}));
  EXPECT_EQ(verify_sizes({8, false, 7}, 64), Sizes{});  // not even one
  EXPECT_EQ(verify_sizes({4, true}, 5, {1, 3, 9}), (Sizes{2, 4, 6, 12}));
  EXPECT_EQ(verify_sizes({3, true}, 4, {}, false), (Sizes{2, 3, 4, 6, 8, 9, 12}));
  EXPECT_EQ(verify_sizes({1, true}, 5), Sizes{});
}

TEST(GraphSizes, UserListsAreSortedAndChecked) {
  EXPECT_EQ(*parse_sizes("`graph_decode_sizes`", "8, 1,2,8", 64), (std::vector<int64_t>{1, 2, 8}));
  for (const char* bad : {"", "0", "65", "1,,2", "a", "1,2x", "-3"}) {
    auto r = parse_sizes("`graph_decode_sizes`", bad, 64);
    ASSERT_FALSE(r.is_ok()) << bad;
    EXPECT_NE(r.status().message().find("`graph_decode_sizes`"), std::string::npos);
    EXPECT_NE(r.status().message().find("from 1 to 64"), std::string::npos);
  }
}

}  // namespace
}  // namespace reprise::engine::graph_sizes_test
