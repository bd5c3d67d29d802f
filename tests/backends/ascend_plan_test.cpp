// Rows and lengths of a step as the Ascend attention takes them.
#include <gtest/gtest.h>

#include "backends/ascend/attention_plan.h"

namespace reprise::ascend::ascend_plan_test {
namespace {

using Numbers = std::vector<int64_t>;

AttentionPlan plan(int64_t tokens, const std::vector<int32_t>& lens, const std::vector<int32_t>& starts,
                   int64_t context = 256) {
  return AttentionPlan::of(tokens, static_cast<int64_t>(lens.size()), context, lens, starts);
}

TEST(AttentionPlan, OneRowPerSequenceIsABatch) {
  const AttentionPlan p = plan(3, {5, 130, 1}, {0, 1, 2, 3});
  EXPECT_TRUE(p.one_row_each);
  EXPECT_EQ(p.lengths, (Numbers{5, 130, 1}));
  EXPECT_TRUE(p.query_end.empty());
}

// Attention that the form with a batch does not know: steps are prompts of one row each.
TEST(AttentionPlan, StepsMayBeJoined) {
  const std::vector<int32_t> lens{5, 130, 0, 7}, starts{0, 1, 2, 2, 2}, nobody(5, 0);
  const AttentionPlan p = AttentionPlan::of(4, 4, 256, lens, starts, true);
  EXPECT_FALSE(p.one_row_each);
  EXPECT_EQ(p.query_end, (Numbers{1, 2, 4}));
  EXPECT_EQ(p.lengths, (Numbers{5, 130, 2})) << "padding rows read the scratch page";
  EXPECT_EQ(p.tokens, 4);
  EXPECT_EQ(p.sequences, 3);
  const AttentionPlan none = AttentionPlan::dummy(4, 4, 256, true);
  EXPECT_EQ(none.query_end, (Numbers{4}));
  EXPECT_EQ(none.lengths, (Numbers{4}));
}

TEST(AttentionPlan, RowsOfNobodyHaveNoKeys) {
  const AttentionPlan p = plan(4, {5, 130, 0, 7}, {0, 1, 2, 2, 2});  // the last length is stale
  EXPECT_TRUE(p.one_row_each);
  EXPECT_EQ(p.sequences, 4);
  EXPECT_EQ(p.lengths, (Numbers{5, 130, 0, 0}));
  EXPECT_EQ(plan(4, {0, 0, 0, 0}, {0, 0, 0, 0, 0}).lengths, (Numbers{0, 0, 0, 0}));
}

TEST(AttentionPlan, PromptsAreCumulative) {
  const AttentionPlan p = plan(10, {7, 200, 1}, {0, 6, 9, 10});
  EXPECT_FALSE(p.one_row_each);
  EXPECT_EQ(p.query_end, (Numbers{6, 9, 10}));
  EXPECT_EQ(p.lengths, (Numbers{7, 200, 1}));
  EXPECT_EQ(p.tokens, 10);
}

// As many tokens as sequences, but not one each.
TEST(AttentionPlan, CountsAloneDoNotMakeABatch) {
  const AttentionPlan p = plan(3, {2, 1, 0}, {0, 2, 3, 3});
  EXPECT_FALSE(p.one_row_each);
  EXPECT_EQ(p.query_end, (Numbers{2, 3}));
  EXPECT_EQ(p.sequences, 2);
}

TEST(AttentionPlan, PaddingRowsAreASequenceOfTheScratchPage) {
  const AttentionPlan p = plan(16, {7, 200, 0, 0}, {0, 6, 9, 9, 9});
  EXPECT_EQ(p.query_end, (Numbers{6, 9, 16}));
  EXPECT_EQ(p.lengths, (Numbers{7, 200, 7}));
  EXPECT_EQ(p.tokens, 16);
  EXPECT_EQ(p.sequences, 3);
}

// Sequences 0, 1 and 4 are of other parts of a world: they have keys and no rows here.
TEST(AttentionPlan, RowsOfOtherPartsAreLeftOut) {
  const AttentionPlan step = plan(6, {5, 130, 9, 4, 8, 0}, {2, 2, 2, 3, 4, 4, 4});
  EXPECT_TRUE(step.one_row_each);
  EXPECT_EQ(step.lengths, (Numbers{0, 0, 9, 4, 0, 0}));
  const AttentionPlan p = plan(40, {7, 200, 9, 4, 8, 0}, {8, 8, 8, 17, 20, 20, 20});
  EXPECT_EQ(p.first_sequence, 2);
  EXPECT_EQ(p.first_token, 8);
  EXPECT_EQ(p.sequences, 2);
  EXPECT_EQ(p.tokens, 12);
  EXPECT_EQ(p.query_end, (Numbers{9, 12}));
  EXPECT_EQ(p.lengths, (Numbers{9, 4}));
  EXPECT_TRUE(plan(40, {7, 200, 9}, {8, 8, 8, 8}).empty());
  const CutPlan cut = CutPlan::of(p, 4);
  EXPECT_EQ(cut.plan.first_token, 8);
  EXPECT_EQ(cut.plan.first_sequence, 0);
  EXPECT_EQ(cut.copies[0].from, 2);
  EXPECT_EQ(cut.copies[1].from, 3);
}

TEST(AttentionPlan, PaddingRowsStayOutWhereNoRowOfTheTableIsFree) {
  const AttentionPlan p = plan(16, {7, 200}, {0, 6, 9});
  EXPECT_EQ(p.query_end, (Numbers{6, 9}));
  EXPECT_EQ(p.tokens, 9);
}

TEST(AttentionPlan, PaddingIsNoLongerThanARowOfTheTable) {
  const AttentionPlan p = plan(600, {7, 0}, {0, 6, 6});
  EXPECT_EQ(p.query_end, (Numbers{6, 262}));
  EXPECT_EQ(p.lengths, (Numbers{7, 256}));
  EXPECT_EQ(p.tokens, 262);
}

TEST(AttentionPlan, AStepOfNobodyReadsTheScratchPage) {
  const AttentionPlan p = plan(16, {0, 0}, {0, 0, 0});
  EXPECT_EQ(p.query_end, (Numbers{16}));
  EXPECT_EQ(p.lengths, (Numbers{16}));
  EXPECT_EQ(plan(0, {0, 0}, {0, 0, 0}).sequences, 0);
}

TEST(CutPlan, LongSequencesBecomePiecesWithThePagesOfTheWhole) {
  const CutPlan c = CutPlan::of(plan(42, {7, 90, 1, 20}, {0, 2, 37, 38, 42}), 16);
  EXPECT_EQ(c.plan.query_end, (Numbers{2, 18, 34, 37, 38, 42}));
  EXPECT_EQ(c.plan.lengths, (Numbers{7, 71, 87, 90, 1, 20}));  // what each piece's last row sees
  EXPECT_EQ(c.plan.tokens, 42);
  EXPECT_EQ(c.plan.sequences, 6);
  EXPECT_FALSE(c.plan.one_row_each);
  ASSERT_EQ(c.copies.size(), 3u);
  EXPECT_EQ(c.copies[0].to, 0);
  EXPECT_EQ(c.copies[0].count, 1);
  EXPECT_FALSE(c.copies[0].repeated);
  EXPECT_EQ(c.copies[1].to, 1);
  EXPECT_EQ(c.copies[1].count, 3);
  EXPECT_EQ(c.copies[1].from, 1);
  EXPECT_TRUE(c.copies[1].repeated);
  EXPECT_EQ(c.copies[2].to, 4);
  EXPECT_EQ(c.copies[2].count, 2);
  EXPECT_EQ(c.copies[2].from, 2);
  EXPECT_FALSE(c.copies[2].repeated);
}

TEST(CutPlan, WhatIsShortStaysWhole) {
  const AttentionPlan p = plan(20, {16, 4}, {0, 16, 20});
  const CutPlan c = CutPlan::of(p, 16);
  EXPECT_EQ(c.plan.query_end, p.query_end);
  EXPECT_EQ(c.plan.lengths, p.lengths);
  ASSERT_EQ(c.copies.size(), 1u);
  EXPECT_EQ(c.copies[0].count, 2);
}

// Recorded graphs and workspaces rest on these bounds.
TEST(CutPlan, NoPlanIsLargerThanItsSizesSay) {
  uint32_t seed = 5;
  auto below = [&](int64_t n) {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<int64_t>((seed >> 8) % static_cast<uint32_t>(n));
  };
  for (int round = 0; round < 3000; ++round) {
    const int64_t tokens = 1 + below(200), sequences = 1 + below(std::min<int64_t>(tokens, 40));
    std::vector<int32_t> lens(static_cast<size_t>(sequences)), starts(static_cast<size_t>(sequences) + 1);
    const int64_t live = 1 + below(sequences);
    int64_t row = 0;
    for (int64_t r = 0; r < sequences; ++r) {
      const int64_t left = tokens - row - (live - r - 1);
      const int64_t n = r >= live ? 0 : below(3) == 0 ? 1 + below(left) : std::min<int64_t>(left, 1 + below(18));
      row += n;
      starts[static_cast<size_t>(r) + 1] = static_cast<int32_t>(row);
      lens[static_cast<size_t>(r)] = static_cast<int32_t>(n + below(100));
    }
    const AttentionPlan p = plan(tokens, lens, starts, 512);
    if (p.one_row_each) continue;
    const CutPlan c = CutPlan::of(p, 16);
    ASSERT_LE(c.plan.sequences, CutPlan::most_sequences(tokens, sequences, 16)) << tokens << " of " << sequences;
    ASSERT_LE(static_cast<int64_t>(c.copies.size()), CutPlan::most_copies(tokens, sequences, 16));
    ASSERT_EQ(c.plan.query_end.back(), p.tokens);
    int64_t end = 0, rows = 0;
    for (const int64_t e : c.plan.query_end) {
      ASSERT_LE(e - end, 16);
      end = e;
    }
    for (const CutPlan::Copy& copy : c.copies) {
      ASSERT_EQ(copy.to, rows);
      rows += copy.count;
    }
    ASSERT_EQ(rows, c.plan.sequences);
  }
}

TEST(AttentionPlan, TheLongestHasRoomForAll) {
  const AttentionPlan each = AttentionPlan::longest(3, 3, 256, true), any = AttentionPlan::longest(9, 3, 256, false);
  EXPECT_TRUE(each.one_row_each);
  EXPECT_EQ(each.lengths, (Numbers{256, 256, 256}));
  EXPECT_EQ(any.query_end, (Numbers{1, 2, 9}));
  EXPECT_EQ(AttentionPlan::longest(2, 5, 256, false).query_end, (Numbers{1, 2}));
}

}  // namespace
}  // namespace reprise::ascend::ascend_plan_test
