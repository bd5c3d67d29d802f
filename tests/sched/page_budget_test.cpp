// PageBudget by itself: who gets pages, what the prefix cache saves, and what each refusal leaves as it was.
#include "sched/budget_fixture.h"

namespace reprise::sched::page_budget_test {
namespace {

struct PageBudgetTest : BudgetTest {};

TEST_F(PageBudgetTest, GivesThePagesOfItsTokensAndTakesThemBack) {
  make(5, false);
  const LivePtr r = live(count_up(300));
  ASSERT_TRUE(budget->admit(*r, 0).is_ok());
  EXPECT_EQ(r->sequence.pages().size(), 3u);
  EXPECT_EQ(r->sequence.cached(), 0);
  EXPECT_EQ(free_pages(), 2);
  EXPECT_EQ(budget->spare(0), 2);
  EXPECT_EQ(budget->spare(3), 0);
  budget->give_back(*r);
  EXPECT_EQ(free_pages(), 5);
  EXPECT_TRUE(r->sequence.pages().empty());
}

TEST_F(PageBudgetTest, TooFewPagesAreBusyAndChangeNothing) {
  make(4, false);
  const LivePtr first = live(count_up(300)), second = live(count_up(200)), third = live(count_up(100));
  ASSERT_TRUE(budget->admit(*first, 0).is_ok());
  EXPECT_EQ(budget->missing(*second, 0), 1);
  EXPECT_EQ(budget->admit(*second, 0).code(), Code::Busy);
  EXPECT_TRUE(second->sequence.pages().empty());
  EXPECT_EQ(free_pages(), 1);
  // One page would do, but for the one that stays free.
  EXPECT_EQ(budget->missing(*third, 1), 1);
  EXPECT_EQ(budget->admit(*third, 1).code(), Code::Busy);
  EXPECT_EQ(free_pages(), 1);
  EXPECT_EQ(budget->missing(*third, 0), 0);
  EXPECT_TRUE(budget->admit(*third, 0).is_ok());
  EXPECT_EQ(free_pages(), 0);
}

TEST_F(PageBudgetTest, WholePagesAreSharedAndTheNextOneIsCopied) {
  make(10, true);
  remember(count_up(300));
  std::vector<LivePtr> running;
  running.push_back(live(count_up(300)));
  LiveRequest* r = running.front().get();
  EXPECT_EQ(budget->known_tokens(*r), 299) << "the next token comes of the last row";
  ASSERT_TRUE(budget->admit(*r, 0).is_ok());
  EXPECT_EQ(r->sequence.cached(), 299);
  EXPECT_EQ(r->shared_pages, 2);
  EXPECT_EQ(fake->copies, 1);
  EXPECT_EQ(free_pages(), 10 - 3 - 1) << "the page of the rest is there twice";
  EXPECT_TRUE(budget->check_integrity(running, {}, true).is_ok());
  budget->give_back(*r);
}

TEST_F(PageBudgetTest, WhatTheCacheHoldsIsEvictedForARequest) {
  make(4, true);
  remember(count_up(300));
  EXPECT_EQ(free_pages(), 1);
  const LivePtr other = live(count_up(400, 11));
  EXPECT_EQ(budget->missing(*other, 0), 0);
  ASSERT_TRUE(budget->admit(*other, 0).is_ok());
  EXPECT_EQ(free_pages(), 0);
  EXPECT_EQ(budget->cache().held_pages(), 0);
  budget->give_back(*other);
}

// Whether a copy fails is no question of pages: the request has them and ends, whatever code the device says.
TEST_F(PageBudgetTest, AFailedCopyIsNotBusyAndTheRequestHasItsPages) {
  for (const Code code : {Code::Device, Code::DeviceLost, Code::Busy}) {
    make(10, true);
    remember(count_up(300));
    executor->fail_code = code;
    const LivePtr r = live(count_up(300));
    const Status given = budget->admit(*r, 0);
    EXPECT_EQ(given.code(), code == Code::Busy ? Code::Device : code);
    EXPECT_EQ(given.message(), "copying a page of the prefix cache: the copy failed");
    EXPECT_EQ(r->sequence.pages().size(), 3u);
    budget->give_back(*r);
    EXPECT_EQ(free_pages() + budget->cache().held_pages(), 10);
    EXPECT_TRUE(budget->check_integrity({}, {}, true).is_ok());
  }
}

TEST_F(PageBudgetTest, HoldAddsAPageWhereOneBegins) {
  make(3, true);
  remember(count_up(128, 11));  // one page of the cache
  const LivePtr r = live(count_up(128));
  ASSERT_TRUE(budget->admit(*r, 0).is_ok());
  EXPECT_TRUE(budget->hold(*r, 128));
  EXPECT_EQ(r->sequence.pages().size(), 1u);
  EXPECT_TRUE(budget->hold(*r, 129));
  EXPECT_EQ(r->sequence.pages().size(), 2u);
  EXPECT_EQ(free_pages(), 0);
  EXPECT_TRUE(budget->hold(*r, 257)) << "the cache gives its page";
  EXPECT_EQ(budget->cache().held_pages(), 0);
  EXPECT_FALSE(budget->hold(*r, 385)) << "there is no page left";
  EXPECT_EQ(r->sequence.pages().size(), 3u);
  budget->give_back(*r);
}

TEST_F(PageBudgetTest, IntegrityNoticesAPageOfTwoRequestsAndALostOne) {
  make(6, false);
  std::vector<LivePtr> running;
  for (int i = 0; i < 2; ++i) {
    running.push_back(live(count_up(100, i)));
    ASSERT_TRUE(budget->admit(*running.back(), 0).is_ok());
  }
  EXPECT_TRUE(budget->check_integrity(running, {}, true).is_ok());
  auto &first = running[0]->sequence.pages(), &second = running[1]->sequence.pages();
  const auto own = second;
  second = first;
  EXPECT_NE(budget->check_integrity(running, {}, true).message().find("is not its own"), std::string::npos);
  second.clear();
  EXPECT_NE(budget->check_integrity(running, {}, true).message().find("of 6 pages"), std::string::npos);
  second = own;
  EXPECT_TRUE(budget->check_integrity(running, {}, true).is_ok());
  EXPECT_NE(budget->check_integrity({}, running, true).message().find("waits and holds pages"), std::string::npos);
}

}  // namespace
}  // namespace reprise::sched::page_budget_test
