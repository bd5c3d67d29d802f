// Admission by itself: the order of the waiting requests, and which of the running ones give way.
#include "sched/admission.h"

#include "sched/budget_fixture.h"

namespace reprise::sched::admission_test {
namespace {

using Ids = std::vector<RequestId>;
using Victims = std::vector<LiveRequest*>;

struct Wish {
  uint64_t call = 0;
  int64_t priority = 0, most = 8;
};

struct AdmissionTest : BudgetTest {
  AdmissionTest() {
    make(40, true);
    options.max_running = 4;
    admission = std::make_unique<Admission>(options, *budget, running);
  }
  ~AdmissionTest() override {
    for (const LivePtr& r : running) budget->give_back(*r);
  }

  LiveRequest& wait(Tokens prompt, Wish wish = {}) {
    LivePtr r = live(std::move(prompt), wish.most);
    r->request.call = wish.call;
    r->request.priority = wish.priority;
    r->result.arrived = Clock::now();
    LiveRequest& out = *r;
    admission->add(std::move(r));
    return out;
  }
  // Admits the next request, as a scheduler does; 0: none can be admitted.
  RequestId take() {
    admission->count();
    admission->rank();
    const auto next = admission->next();
    if (next == admission->waiting().end()) return 0;
    running.push_back(admission->take(next));
    const Status given = budget->admit(*running.back(), 0);
    EXPECT_TRUE(given.is_ok()) << given.message();
    return running.back()->id;
  }
  Ids take_all() {
    Ids out;
    while (const RequestId id = take()) out.push_back(id);
    return out;
  }
  // A request that runs, its prompt read.
  LiveRequest& run(Tokens prompt, Wish wish = {}) {
    LiveRequest& r = wait(std::move(prompt), wish);
    EXPECT_EQ(take(), r.id);
    r.prompt_cached = true;
    return r;
  }

  SchedulerOptions options;
  std::vector<LivePtr> running;
  std::unique_ptr<Admission> admission;
};

TEST_F(AdmissionTest, PriorityThenFewestRunningOfTheCallThenArrival) {
  run(count_up(10, 1), {.call = 1});
  const RequestId of_first = wait(count_up(10, 2), {.call = 1}).id;
  const RequestId of_second = wait(count_up(10, 3), {.call = 2}).id;
  const RequestId later = wait(count_up(10, 4), {.call = 2}).id;
  const RequestId urgent = wait(count_up(10, 5), {.call = 1, .priority = 3}).id;
  // When `of_second` runs, both calls run as many as the other, but for the urgent one.
  EXPECT_EQ(take_all(), (Ids{urgent, of_second, later, of_first}));
}

TEST_F(AdmissionTest, ThePolicyOrdersCallsOfOnePriority) {
  const auto admitted = [&](Policy policy) {
    for (const LivePtr& r : running) budget->give_back(*r);
    running.clear();
    budget->flush();
    remember(count_up(200, 5));
    options.policy = policy;
    const RequestId before = last_id;
    wait(count_up(50, 7), {.most = 5});
    wait(count_up(60, 5), {.most = 30});
    wait(count_up(180, 5), {.most = 20});
    Ids out = take_all();
    for (RequestId& id : out) id -= before;
    return out;
  };
  EXPECT_EQ(admitted(Policy::Fcfs), (Ids{1, 2, 3}));
  EXPECT_EQ(admitted(Policy::LongestOutput), (Ids{2, 3, 1}));
  EXPECT_EQ(admitted(Policy::LongestPrefix), (Ids{3, 2, 1}));
  EXPECT_EQ(admitted(Policy::DfsWeight), (Ids{3, 1, 2})) << "of the whole pages that are known";
}

TEST_F(AdmissionTest, APromptThatBeginsLikeOneThatIsReadWaitsForIt) {
  LiveRequest& read = run(count_up(300, 5));
  read.prompt_cached = false;
  wait(count_up(300, 5));
  EXPECT_EQ(take(), 0u) << "two pages are soon there";
  const RequestId other = wait(count_up(300, 6)).id;
  EXPECT_EQ(take(), other);
  read.prompt_cached = true;
  EXPECT_EQ(take_all().size(), 1u);
}

TEST_F(AdmissionTest, PagesStayFreeForThoseWhoMayBeginOne) {
  EXPECT_EQ(admission->pages_to_keep(), 0);
  run(count_up(100, 1), {.most = 8});
  EXPECT_EQ(admission->pages_to_keep(), 0) << "107 tokens are in one page";
  run(count_up(121, 2), {.most = 8});
  EXPECT_EQ(admission->pages_to_keep(), 0) << "the last token is never cached";
  run(count_up(122, 3), {.most = 8});
  EXPECT_EQ(admission->pages_to_keep(), 1);
}

TEST_F(AdmissionTest, SmallerPrioritiesGiveWayByMoreThanTheThreshold) {
  options.preemption_threshold = 2;
  LiveRequest& least = run(count_up(10, 1), {.priority = 0});
  run(count_up(10, 2), {.priority = 1});
  LiveRequest& youngest = run(count_up(10, 3), {.priority = 0});
  const LiveRequest& alike = wait(count_up(10, 4), {.priority = 2});
  admission->count();
  EXPECT_TRUE(admission->may_preempt());
  EXPECT_FALSE(admission->would_preempt());
  EXPECT_FALSE(admission->victims_for(alike, 1)) << "2 is not more than the threshold";
  const LiveRequest& urgent = wait(count_up(10, 5), {.priority = 3});
  EXPECT_TRUE(admission->would_preempt());
  EXPECT_FALSE(admission->victims_for(urgent, 0)) << "nothing is missing";
  EXPECT_FALSE(admission->victims_for(urgent, 3)) << "the third is too important, so no one gives way";
  const auto victims = admission->victims_for(urgent, 2);
  ASSERT_TRUE(victims);
  EXPECT_EQ(*victims, (Victims{&youngest, &least}));
}

TEST_F(AdmissionTest, TheLargestCallGivesWayUntilCallsAreEven) {
  for (int32_t i = 0; i < 4; ++i) run(count_up(10, i), {.call = 1});
  const LiveRequest& r = wait(count_up(10, 9), {.call = 2});
  admission->count();
  EXPECT_TRUE(admission->may_preempt());
  const auto one = admission->victims_for(r, 0);
  ASSERT_TRUE(one) << "there is no row left";
  EXPECT_EQ(*one, (Victims{running[3].get()}));
  admission->count();
  const auto three = admission->victims_for(r, 3);
  ASSERT_TRUE(three);
  EXPECT_EQ(*three, (Victims{running[3].get(), running[2].get(), running[1].get()}));
  admission->count();
  EXPECT_FALSE(admission->victims_for(r, 4)) << "the call keeps one";
}

TEST_F(AdmissionTest, TheLeastImportantOfTheLargestCallIsTheLatest) {
  run(count_up(10, 1), {.call = 1});
  run(count_up(10, 2), {.call = 2});
  const LiveRequest& latest = run(count_up(10, 3), {.call = 1});
  run(count_up(10, 4), {.call = 3, .priority = 1});
  EXPECT_EQ(&admission->least_important(), &latest);
}

}  // namespace
}  // namespace reprise::sched::admission_test
