// The size rules, number by number (F02, F03, F04, F23).
#include "engine/graph_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace reprise::engine {
namespace {

TEST(GraphSizes, DecodeRuleHasTheOriginalsCounts) {
  const std::vector<std::pair<int64_t, size_t>> normal{{4, 3},   {8, 4},    {16, 6},   {24, 7},   {32, 8},  {64, 12},
                                                       {80, 14}, {128, 20}, {160, 24}, {256, 36}, {512, 52}};
  for (auto& [largest, count] : normal)
    EXPECT_EQ(decode_sizes_by_rule(largest, SizeRule::Padded).size(), count) << largest;
  const std::vector<std::pair<int64_t, size_t>> speculative{
      {4, 4}, {8, 8}, {16, 12}, {24, 16}, {32, 20}, {64, 27}, {80, 29}, {128, 35}, {160, 39}, {256, 51}, {512, 67}};
  for (auto& [largest, count] : speculative)
    EXPECT_EQ(decode_sizes_by_rule(largest, SizeRule::Speculative).size(), count) << largest;
}

TEST(GraphSizes, DecodeRuleNumberByNumber) {
  EXPECT_EQ(decode_sizes(64), (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64}));
  EXPECT_EQ(decode_sizes_by_rule(20, SizeRule::Padded), (std::vector<int64_t>{1, 2, 4, 8, 12, 16}));
  EXPECT_EQ(decode_sizes(20), (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 20}));
  EXPECT_EQ(decode_sizes(5, SizeRule::Exact), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(decode_sizes(1), (std::vector<int64_t>{1}));
}

TEST(GraphSizes, PrefillRuleHasTheOriginalsCounts) {
  const std::vector<std::pair<int64_t, size_t>> counts{{512, 30}, {1024, 34}, {2048, 42}, {4096, 58}, {8192, 74}};
  for (auto& [largest, count] : counts) EXPECT_EQ(prefill_sizes_by_rule(largest).size(), count) << largest;
  const auto sizes = prefill_sizes(4096);
  EXPECT_EQ(sizes.front(), 4);
  EXPECT_EQ(sizes.back(), 4096);
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

TEST(GraphSizes, UserListsAreSortedAndChecked) {
  EXPECT_EQ(*parse_sizes("--graph-decode-sizes", "8, 1,2,8", 64), (std::vector<int64_t>{1, 2, 8}));
  for (const char* bad : {"", "0", "65", "1,,2", "a", "1,2x", "-3"}) {
    auto r = parse_sizes("--graph-decode-sizes", bad, 64);
    ASSERT_FALSE(r.is_ok()) << bad;
    EXPECT_NE(r.status().message().find("--graph-decode-sizes"), std::string::npos);
    EXPECT_NE(r.status().message().find("from 1 to 64"), std::string::npos);
  }
}

}  // namespace
}  // namespace reprise::engine
