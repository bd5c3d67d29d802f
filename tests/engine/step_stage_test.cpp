// What is staged for a step: lengths 0, 1, 127, 128, 129 and full, rows and columns of padding, and nothing stale.
#include "engine/step_stage.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "backends/null/null_device.h"
#include "graph/graph.h"
#include "ops/core.h"

namespace reprise::engine::step_stage_test {
namespace {

using kv::kScratchPage;
using kv::PageId;
using kv::pages_for;

struct StepStageTest : testing::Test {
  static constexpr int64_t kTokens = 700, kRows = 4, kColumns = 5, kVocab = 8000;

  StepStageTest() {
    models::TraceOptions trace;
    trace.max_tokens = kTokens;
    trace.max_sequences = kRows;
    trace.max_pages = kColumns;
    step = models::default_step({}, trace);
    for (models::InputSpec& i : models::state_inputs(trace)) step.inputs.push_back(std::move(i));
    OpRegistry ops;
    register_core_ops(ops);
    Graph graph("step");
    for (const auto& [name, bound] : {std::pair("T", kTokens), std::pair("R", kRows), std::pair("Q", kRows + 1),
                                      std::pair("L", kRows), std::pair("P", int64_t{99}), std::pair("S", int64_t{99})})
      EXPECT_TRUE(graph.add_symbol(name, bound).is_ok());
    for (const models::InputSpec& i : step.inputs)
      EXPECT_TRUE(graph.add_source(*ops.find("input"), i.name, i.type).is_ok());
    staging.declare(graph, {});
    EXPECT_TRUE(staging.allocate(*device).is_ok());
    attach(true);
  }
  void attach(bool skips_negative_slots) {
    DeviceInfo info = device->info();
    info.skips_negative_slots = skips_negative_slots;
    stage = StepStage();
    ASSERT_TRUE(stage.attach(staging, step, kVocab, info).is_ok());
    poison();
  }
  void poison() {  // whatever an earlier step left
    for (const auto& in : stage.inputs()) std::fill_n(models::ints(in.view).data(), in.view.elements(), 7777);
  }
  std::vector<int32_t> of(std::string_view name) {
    const auto v = stage.ints(name);
    return {v.begin(), v.end()};
  }
  static Sequence sequence(int64_t length, int32_t first, std::vector<PageId> pages, int64_t cached) {
    std::vector<int32_t> text(static_cast<size_t>(length));
    std::iota(text.begin(), text.end(), first);
    Sequence s(std::move(text));
    s.pages() = std::move(pages);
    s.set_cached(cached);
    return s;
  }
  Status refused(Sequence& s, int64_t count) {
    const StepItem item{&s, count};
    return stage.fill({&item, 1}, {}).status();
  }

  std::unique_ptr<Device> device = null::make_null_device({});
  models::StepSpec step;
  Staging staging;
  StepStage stage;
};

TEST_F(StepStageTest, EveryLengthFillsItsRowAndOnlyIt) {
  const std::vector<PageId> pages{9, 4, 11, 2, 6};
  for (int64_t length : {0, 1, 127, 128, 129, 255, 256, 639, 640}) {
    poison();
    Sequence s = sequence(length, 1000, pages, 0);
    const StepItem item{&s, length, 1};
    const auto live = stage.fill(std::span(&item, length > 0 ? 1 : 0), {40, 9});
    ASSERT_TRUE(live.is_ok()) << live.status().message();
    const int64_t rows = length > 0 ? 1 : 0;
    EXPECT_EQ(live->value[models::kTokens], length);
    EXPECT_EQ(live->value[models::kSequences], rows);
    EXPECT_EQ(live->value[models::kCuSeqlens], rows + 1);
    EXPECT_EQ(live->value[models::kLogitRows], rows);
    EXPECT_EQ(live->value[models::kPoolPages], 41);
    EXPECT_EQ(live->value[models::kStateSlots], 9);
    const auto tokens = of("tokens"), positions = of("positions"), slots = of("slots"), table = of("page_table"),
               lens = of("context_lens"), borders = of("cu_seqlens");
    EXPECT_EQ(of("last_rows"), (std::vector<int32_t>{length > 0 ? static_cast<int32_t>(length - 1) : 0, 0, 0, 0}));
    for (int64_t c = 0; c < kColumns; ++c)
      EXPECT_EQ(table[c], c < pages_for(length) ? pages[c] : kScratchPage) << "column " << c << " of " << length;
    for (int64_t t = 0; t < kTokens; ++t) {
      EXPECT_EQ(tokens[t], t < length ? 1000 + t : 0);
      EXPECT_EQ(positions[t], t < length ? t : 0);
      EXPECT_EQ(slots[t], t < length ? pages[t / 128] * 128 + t % 128 : -1);
    }
    EXPECT_EQ(lens, (std::vector<int32_t>{static_cast<int32_t>(length), 0, 0, 0}));
    EXPECT_EQ(borders[0], 0);
    for (int64_t r = rows; r < kRows; ++r) {  // rows beyond the batch
      EXPECT_EQ(borders[r + 1], length);
      for (int64_t c = 0; c < kColumns; ++c) EXPECT_EQ(table[r * kColumns + c], kScratchPage);
    }
  }
}

TEST_F(StepStageTest, PrefillDecodeAndPrefixMixInOneStep) {
  Sequence a = sequence(130, 0, {3, 1}, 129), b = sequence(300, 1000, {7, 8, 2}, 128), c = sequence(5, 2000, {5}, 0);
  const StepItem items[] = {{&a, 1, 1}, {&b, 172}, {&c, 5, 5}};
  EXPECT_FALSE(stage.fill(items, {}).is_ok()) << "more rows with logits than there is room for";
  c.set_cached(2);
  const StepItem fitting[] = {{&a, 1, 1}, {&b, 172}, {&c, 3, 3}};
  const auto live = stage.fill(fitting, {});
  ASSERT_TRUE(live.is_ok()) << live.status().message();
  EXPECT_EQ(live->value[models::kTokens], 176);
  EXPECT_EQ(of("cu_seqlens"), (std::vector<int32_t>{0, 1, 173, 176, 176}));
  EXPECT_EQ(of("context_lens"), (std::vector<int32_t>{130, 300, 5, 0}));
  EXPECT_EQ(of("last_rows"), (std::vector<int32_t>{0, 173, 174, 175}));
  const auto tokens = of("tokens"), slots = of("slots");
  EXPECT_EQ(tokens[0], 129);
  EXPECT_EQ(of("positions")[0], 129);
  EXPECT_EQ(slots[0], 1 * 128 + 1);
  EXPECT_EQ(tokens[1], 1128);
  EXPECT_EQ(slots[1], 8 * 128);
  EXPECT_EQ(slots[172], 2 * 128 + 43);
  EXPECT_EQ(slots[173], 5 * 128 + 2);
}

// Every slot exists then, and none twice among 128 rows; real ones stay what they are.
TEST_F(StepStageTest, PaddingRowsMayGoToTheScratchPage) {
  attach(false);
  for (int64_t length : {1, 130}) {
    poison();
    Sequence s = sequence(length, 5, {9, 4}, 0);
    const StepItem item{&s, length};
    ASSERT_TRUE(stage.fill({&item, 1}, {}).is_ok());
    const auto slots = of("slots");
    for (int64_t t = 0; t < kTokens; ++t) {
      if (t < length) {
        EXPECT_EQ(slots[t], s.pages()[t / 128] * 128 + t % 128);
        continue;
      }
      EXPECT_GE(slots[t], kScratchPage * 128) << t;
      EXPECT_LT(slots[t], (kScratchPage + 1) * 128) << t;
      for (int64_t near = std::max(length, t - 127); near < t; ++near) ASSERT_NE(slots[near], slots[t]) << t;
    }
  }
}

TEST_F(StepStageTest, ScratchPagesGiveEachRowOfNoSequenceASlotOfItsOwn) {
  attach(false);
  Sequence s = sequence(3, 5, {9}, 0);
  const StepItem item{&s, 3};
  const auto live = stage.fill({&item, 1}, {.pages = 40, .scratch = 6});
  ASSERT_TRUE(live.is_ok()) << live.status().message();
  EXPECT_EQ(live->value[models::kPoolPages], 46);
  const auto slots = of("slots");
  std::set<int32_t> all(slots.begin(), slots.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(kTokens)) << "700 rows in six pages of 128";
  for (const int32_t slot : slots)
    EXPECT_TRUE(slot / 128 == 9 || slot / 128 == kScratchPage || slot / 128 > 40) << slot;
  EXPECT_LT(*all.rbegin(), 46 * 128);
  // Rows of a sequence that is gone go where rows of none do.
  stage.drop(0, 0, 3);
  const auto dropped = of("slots");
  EXPECT_EQ(std::set<int32_t>(dropped.begin(), dropped.end()).size(), static_cast<size_t>(kTokens));
}

TEST_F(StepStageTest, StatesAreReadFromZeroFirstAndThenFromWhereTheyWereWritten) {
  auto pool = kv::StatePool::create(device->pool(), {{"state", 16}}, 2, 2);
  ASSERT_TRUE(pool.is_ok()) << pool.status().message();
  Sequence s = sequence(20, 5, {9}, 0);
  s.states() = std::move(*pool->allocate());
  const StepItem item{&s, 3};
  int32_t written = kv::kZeroSlot;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(stage.fill({&item, 1}, {40, pool->slots()}).is_ok());
    const auto read = of("state_read"), write = of("state_write");
    EXPECT_EQ(read, (std::vector<int32_t>{written, kv::kZeroSlot, kv::kZeroSlot, kv::kZeroSlot}));
    EXPECT_EQ(std::vector(write.begin() + 1, write.end()), (std::vector<int32_t>{-1, -1, -1}));
    EXPECT_NE(write[0], read[0]) << "the state before the step stays";
    EXPECT_GT(write[0], kv::kZeroSlot);
    written = write[0];
    s.advance(3);
  }
  attach(false);
  ASSERT_TRUE(stage.fill({&item, 1}, {40, pool->slots()}).is_ok());
  EXPECT_EQ(of("state_write")[1], kv::kScratchSlot);
  stage.drop(0, 0, 3);
  EXPECT_EQ(of("state_write")[0], kv::kScratchSlot);
  EXPECT_EQ(of("slots")[1], kScratchPage * 128 + 1);
  EXPECT_EQ(of("tokens")[1], 0);
  EXPECT_EQ(pool->free_slots(), 2);
  s.forget();
  EXPECT_EQ(pool->free_slots(), 4);
}

TEST_F(StepStageTest, WhatDoesNotFitIsAnError) {
  Sequence s = sequence(701, 1, {1, 2, 3, 4, 5, 6}, 0);
  EXPECT_NE(refused(s, 701).message().find("page table has 5 columns"), std::string::npos);
  EXPECT_NE(refused(s, 702).message().find("uncached"), std::string::npos);
  EXPECT_NE(refused(s, 0).message().find("uncached"), std::string::npos);
  Sequence one = sequence(129, 1, {1}, 0);
  EXPECT_NE(refused(one, 129).message().find("need 2 pages, it has 1"), std::string::npos);
  Sequence strange = sequence(3, kVocab - 2, {1}, 0);
  EXPECT_NE(refused(strange, 3).message().find("outside the vocabulary"), std::string::npos);
  const std::vector<StepItem> many(5, StepItem{&s, 1});
  EXPECT_NE(stage.fill(many, {}).status().message().find("at most 4"), std::string::npos);
  const std::vector<StepItem> wide(2, StepItem{&s, 600});
  EXPECT_NE(stage.fill(wide, {}).status().message().find("at most 700"), std::string::npos);
}

}  // namespace
}  // namespace reprise::engine::step_stage_test
