// States that outlive their sequences: slots of the pool, and nodes of the prefix cache that hold one.
#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "kv/radix_cache.h"
#include "kv/token_run.h"

namespace reprise::kv::kept_states_test {
namespace {

struct KeptStatesTest : testing::Test {
  std::unique_ptr<Device> device = null::make_null_device();
  KvPool pool = std::move(KvPool::create(device->pool(), KvShape::grouped(1, 1, 2, DType::F32), 40)).value();
  StatePool states = std::move(StatePool::create(device->pool(), {{"state", 16}}, 2, 2, 3)).value();
  RadixCache cache{pool, &states};
  StateSlots slots = std::move(states.allocate()).value();

  // Puts the pages of the tokens into the cache, with a state behind them.
  SlotId finish(const Tokens& tokens, bool with_state = true) {
    auto pages = pool.allocate(pages_for(static_cast<int64_t>(tokens.size()))).value();
    const SlotId slot = with_state ? states.keep(slots).value() : kZeroSlot;
    const auto in = cache.insert("", tokens, pages, 0, false, slot);
    check();
    return in.state;
  }
  void check() {
    const Status tree = cache.check_integrity(), pages = pool.check_integrity();
    ASSERT_TRUE(tree.is_ok()) << tree.message();
    ASSERT_TRUE(pages.is_ok()) << pages.message();
    ASSERT_EQ(states.kept(), cache.held_states());
  }
};

TEST_F(KeptStatesTest, ASlotIsTakenOutOfASequenceAndComesBack) {
  EXPECT_EQ(states.slots(), 2 * 2 + 3 + 2);
  const SlotId now = slots.now(), next = slots.next();
  const auto kept = states.keep(slots);
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, now);
  EXPECT_NE(slots.now(), now);
  EXPECT_EQ(slots.next(), next) << "the next step writes where it would have";
  slots.turn();
  EXPECT_EQ(slots.now(), next);
  EXPECT_TRUE(states.keep(slots) && states.keep(slots));
  EXPECT_FALSE(states.keep(slots)) << "there is room for three";
  // What is kept takes nothing from sequences.
  auto second = states.allocate();
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  EXPECT_EQ(states.allocate().status().code(), Code::OutOfMemory);
  states.forget(*kept);
  EXPECT_EQ(states.allocate().status().code(), Code::OutOfMemory) << "it is room for another state that is kept";
  EXPECT_TRUE(states.keep(slots));
  EXPECT_EQ(states.kept(), 3);
}

TEST_F(KeptStatesTest, AMatchEndsAtTheDeepestStateAndHasNoPartOfAPage) {
  const SlotId two = finish(run(256));
  finish(run(512), false);
  auto m = cache.match("", run(600));
  EXPECT_EQ(m.tokens, 256);
  EXPECT_EQ(m.pages.size(), 2u);
  EXPECT_EQ(m.state, two);
  EXPECT_EQ(m.partial_tokens, 0);
  EXPECT_EQ(cache.known_tokens("", run(600)), 256);
  m = cache.match("", run(255));
  EXPECT_EQ(m.tokens, 0);
  EXPECT_EQ(m.state, kZeroSlot);
  EXPECT_FALSE(m.lease);
  EXPECT_EQ(cache.known_tokens("", run(255)), 0);
  const SlotId four = finish(run(512));
  EXPECT_EQ(cache.match("", run(600)).state, four);
  EXPECT_EQ(cache.match("", run(511)).state, two);
}

TEST_F(KeptStatesTest, ASecondStateBehindTheSameTokensIsForgotten) {
  const SlotId first = finish(run(128));
  EXPECT_EQ(finish(run(128)), first);
  EXPECT_EQ(states.kept(), 1);
  EXPECT_EQ(cache.held_pages(), 1);
}

TEST_F(KeptStatesTest, StatesGoWithTheirPagesOrTheLongestUnusedAlone) {
  const SlotId a = finish(run(128));
  finish(run(128, 7));
  finish(run(128, 9));
  { auto used = cache.match("", run(200)); }
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match("", run(200, 7)).tokens, 0) << "it was unused for longer";
  EXPECT_EQ(cache.held_pages(), 3);
  EXPECT_EQ(cache.match("", run(200)).state, a);
  const auto leased = cache.match("", run(200, 9));
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match("", run(200)).tokens, 0);
  EXPECT_FALSE(cache.evict_state()) << "the last one is leased";
  check();
  EXPECT_EQ(cache.evict(40), 2);
  check();
  EXPECT_EQ(states.kept(), 1);
}

}  // namespace
}  // namespace reprise::kv::kept_states_test
