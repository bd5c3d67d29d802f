// The page table: lengths 0, 1, 127, 128, 129 and full, rows and columns of padding, and nothing stale.
#include "kv/step_tables.h"

#include <gtest/gtest.h>

#include <numeric>

namespace reprise::kv::step_tables_test {
namespace {

struct StepTablesTest : testing::Test {
  static constexpr int64_t kTokens = 700, kRows = 4, kColumns = 5;
  std::vector<int32_t> tokens, positions, slots, page_table, context_lens, cu_seqlens;
  StepBuffers buffers;

  StepTablesTest() { poison(); }

  void poison() {  // whatever an earlier step left
    tokens.assign(kTokens, 7777);
    positions.assign(kTokens, 7777);
    slots.assign(kTokens, 7777);
    page_table.assign(kRows * kColumns, 7777);
    context_lens.assign(kRows, 7777);
    cu_seqlens.assign(kRows + 1, 7777);
    buffers = {tokens, positions, slots, page_table, context_lens, cu_seqlens, kColumns};
  }
};

TEST_F(StepTablesTest, PagesForLengths) {
  EXPECT_EQ(pages_for(0), 0);
  EXPECT_EQ(pages_for(1), 1);
  EXPECT_EQ(pages_for(127), 1);
  EXPECT_EQ(pages_for(128), 1);
  EXPECT_EQ(pages_for(129), 2);
  EXPECT_EQ(pages_for(640), 5);
}

TEST_F(StepTablesTest, EveryLengthFillsItsRowAndOnlyIt) {
  const std::vector<PageId> pages{9, 4, 11, 2, 6};
  for (int64_t length : {0, 1, 127, 128, 129, 255, 256, 639, 640}) {
    poison();
    std::vector<int32_t> text(static_cast<size_t>(length));
    std::iota(text.begin(), text.end(), 1000);
    const SequencePart part{text, pages, 0, length};
    auto n = fill({&part, 1}, buffers);
    ASSERT_TRUE(n.is_ok()) << n.status().message();
    EXPECT_EQ(n->tokens, length);
    EXPECT_EQ(n->sequences, 1);
    EXPECT_EQ(context_lens[0], length);
    EXPECT_EQ(cu_seqlens[0], 0);
    EXPECT_EQ(cu_seqlens[1], length);
    for (int64_t c = 0; c < kColumns; ++c)
      EXPECT_EQ(page_table[c], c < pages_for(length) ? pages[c] : kScratchPage)
          << "column " << c << " of length " << length;
    for (int64_t t = 0; t < kTokens; ++t) {
      EXPECT_EQ(tokens[t], t < length ? 1000 + t : 0);
      EXPECT_EQ(positions[t], t < length ? t : 0);
      EXPECT_EQ(slots[t], t < length ? pages[t / 128] * 128 + t % 128 : -1);
    }
    for (int64_t r = 1; r < kRows; ++r) {  // rows beyond the batch
      EXPECT_EQ(context_lens[r], 0);
      EXPECT_EQ(cu_seqlens[r + 1], length);
      for (int64_t c = 0; c < kColumns; ++c) EXPECT_EQ(page_table[r * kColumns + c], kScratchPage);
    }
  }
}

TEST_F(StepTablesTest, PrefillDecodeAndPrefixMixInOneStep) {
  std::vector<int32_t> a(130), b(300), c(5);
  std::iota(a.begin(), a.end(), 0);
  std::iota(b.begin(), b.end(), 1000);
  std::iota(c.begin(), c.end(), 2000);
  const std::vector<PageId> pa{3, 1}, pb{7, 8, 2}, pc{5};
  const SequencePart parts[] = {{a, pa, 129, 1}, {b, pb, 128, 172}, {c, pc, 0, 5}};
  auto n = fill(parts, buffers);
  ASSERT_TRUE(n.is_ok()) << n.status().message();
  EXPECT_EQ(n->tokens, 178);
  EXPECT_EQ(cu_seqlens, (std::vector<int32_t>{0, 1, 173, 178, 178}));
  EXPECT_EQ(context_lens, (std::vector<int32_t>{130, 300, 5, 0}));
  EXPECT_EQ(tokens[0], 129);
  EXPECT_EQ(positions[0], 129);
  EXPECT_EQ(slots[0], 1 * 128 + 1);
  EXPECT_EQ(tokens[1], 1128);
  EXPECT_EQ(slots[1], 8 * 128);
  EXPECT_EQ(slots[172], 2 * 128 + 43);
  EXPECT_EQ(slots[173], 5 * 128);
}

// Every slot exists then, and none twice among 128 rows; real ones stay what they are.
TEST_F(StepTablesTest, PaddingRowsMayGoToTheScratchPage) {
  const std::vector<PageId> pages{9, 4};
  std::vector<int32_t> text(130, 5);
  for (int64_t length : {0, 1, 130}) {
    poison();
    buffers.skips_negative_slots = false;
    const SequencePart part{text, pages, 0, length};
    ASSERT_TRUE(fill({&part, 1}, buffers).is_ok());
    for (int64_t t = 0; t < kTokens; ++t) {
      if (t < length) {
        EXPECT_EQ(slots[t], pages[t / 128] * 128 + t % 128);
        continue;
      }
      EXPECT_GE(slots[t], kScratchPage * 128) << t;
      EXPECT_LT(slots[t], (kScratchPage + 1) * 128) << t;
      for (int64_t near = std::max(length, t - 127); near < t; ++near) ASSERT_NE(slots[near], slots[t]) << t;
    }
  }
}

TEST_F(StepTablesTest, WhatDoesNotFitIsAnError) {
  std::vector<int32_t> text(701, 1);
  const std::vector<PageId> pages{1, 2, 3, 4, 5, 6};
  SequencePart p{text, pages, 0, 701};
  EXPECT_NE(fill({&p, 1}, buffers).status().message().find("page table has 5 columns"), std::string::npos);
  p = {text, {pages.data(), 1}, 0, 129};
  EXPECT_NE(fill({&p, 1}, buffers).status().message().find("need 2 pages, it has 1"), std::string::npos);
  p = {text, pages, 700, 2};
  EXPECT_NE(fill({&p, 1}, buffers).status().message().find("do not exist"), std::string::npos);
  const std::vector<SequencePart> many(5, SequencePart{text, pages, 0, 1});
  EXPECT_NE(fill(many, buffers).status().message().find("at most 4"), std::string::npos);
  const std::vector<SequencePart> wide(2, SequencePart{text, pages, 0, 600});
  EXPECT_NE(fill(wide, buffers).status().message().find("at most 700"), std::string::npos);
}

}  // namespace
}  // namespace reprise::kv::step_tables_test
