// Meetings, messages and cards of ranks, each a thread with a mapping of its own, and what ends them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "ranks/member.h"

namespace reprise::ranks {
namespace {

// `body` on every rank of a world of `size`, each in a thread.
void in_world(int size, const std::function<void(Member&)>& body,
              std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  auto made = Region::create(size);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  const int descriptor = (*made)->descriptor();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto region = Region::open(descriptor);
      ASSERT_TRUE(region.is_ok()) << region.status().message();
      auto member = Member::join(std::move(*region), {rank, size}, timeout);
      ASSERT_TRUE(member.is_ok()) << member.status().message();
      body(**member);
    });
  for (auto& t : threads) t.join();
}

TEST(Member, NobodyLeavesAMeetingBeforeAllHaveCome) {
  for (const int size : {2, 3, 4}) {
    constexpr int kRounds = 500;
    in_world(size, [&](Member& m) {
      // Every rank writes its number of the round; behind the meeting all of them are there.
      auto* words = reinterpret_cast<std::atomic<int>*>(m.region().arena());
      for (int round = 1; round <= kRounds; ++round) {
        words[m.world().rank * 16].store(round, std::memory_order_relaxed);
        m.meet(0);
        for (int r = 0; r < size; ++r) ASSERT_GE(words[r * 16].load(std::memory_order_relaxed), round);
        m.meet(0);
      }
    });
  }
}

TEST(Member, EveryThreadOfARankComesToAMeeting) {
  in_world(2, [](Member& m) {
    constexpr int kThreads = 2, kRounds = 200;
    std::vector<std::thread> team;
    for (int t = 0; t < kThreads; ++t)
      team.emplace_back([&m, t] {
        for (int round = 0; round < kRounds; ++round) m.meet(t);
      });
    for (auto& t : team) t.join();
    EXPECT_EQ(m.region().control().line[m.world().rank].epoch.load(), kRounds);
  });
}

TEST(Member, FollowersGetEveryMessageOnceAndInOrder) {
  in_world(3, [](Member& m) {
    constexpr int64_t kSteps = 300;
    if (m.world().front()) {
      for (int64_t step = 1; step <= kSteps; ++step) {
        StepMessage message{.kind = StepMessage::Kind::Step, .size = step};
        message.live.value[1] = 7 * step;
        ASSERT_TRUE(m.publish(message).is_ok());
        ASSERT_TRUE(m.await_followers().is_ok());
      }
      ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Stop}).is_ok());
      return;
    }
    for (int64_t step = 1; step <= kSteps; ++step) {
      const auto message = m.next();
      ASSERT_TRUE(message.is_ok()) << message.status().message();
      ASSERT_EQ(message->size, step);
      ASSERT_EQ(message->live.value[1], 7 * step);
      m.done();
    }
    EXPECT_EQ(m.next()->kind, StepMessage::Kind::Stop);
  });
}

TEST(Member, ASleepingFollowerIsWoken) {
  in_world(2, [](Member& m) {
    if (m.world().front()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it sleeps by now
      ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Stop}).is_ok());
    } else {
      ASSERT_TRUE(m.next().is_ok());
    }
  });
}

// A follower without another message learns, once, which one the front waits for; a message goes first.
TEST(Member, WhatTheFrontWaitsForIsToldOnceAndBehindMessages) {
  in_world(2, [](Member& m) {
    auto& published = *reinterpret_cast<std::atomic<int>*>(m.region().arena());
    if (m.world().front()) {
      ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Step, .size = 7}).is_ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the follower has it and sleeps by now
      m.want(m.message());
      ASSERT_TRUE(m.await_followers().is_ok());
      m.have(m.message());
      ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Step, .size = 8}).is_ok());
      m.want(m.message());
      published.store(1);
      ASSERT_TRUE(m.await_followers().is_ok());
      ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Stop}).is_ok());
      return;
    }
    const auto expect = [&](StepMessage::Kind kind, int64_t size) {
      const auto message = m.next();
      ASSERT_TRUE(message.is_ok()) << message.status().message();
      EXPECT_EQ(message->kind, kind);
      EXPECT_EQ(message->size, size);
    };
    using Kind = StepMessage::Kind;
    expect(Kind::Step, 7);
    expect(Kind::Await, 1);  // by its number
    EXPECT_EQ(m.message(), 1u) << "an Await is no message";
    m.done();
    while (published.load() == 0 && !m.aborted()) std::this_thread::yield();
    EXPECT_EQ(m.region().control().given.load(), 1u);
    expect(Kind::Step, 8);
    expect(Kind::Await, 2);
    m.done();
    expect(Kind::Stop, 0);
  });
}

TEST(Member, CardsAreShownToAll) {
  in_world(4, [](Member& m) {
    for (int round = 0; round < 20; ++round) {
      const auto all = m.show(fmt::format("rank {} round {}", m.world().rank, round));
      ASSERT_TRUE(all.is_ok()) << all.status().message();
      ASSERT_EQ(all->size(), 4u);
      for (int r = 0; r < 4; ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], fmt::format("rank {} round {}", r, round));
    }
  });
}

TEST(Member, RanksThatDifferAreToldApart) {
  in_world(3, [](Member& m) {
    EXPECT_TRUE(m.agree("build", "9f3").is_ok());
    const Status s = m.agree("instruction set", m.world().rank == 2 ? "avx2" : "avx512");
    EXPECT_EQ(s.message(), "instruction set: rank 2 has avx2, rank 0 has avx512");
  });
}

// A wait of every kind ends with the reason that any rank gives.
TEST(Member, AnAbortEndsEveryWait) {
  in_world(4, [](Member& m) {
    switch (m.world().rank) {
      case 0:
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        m.abort("rank 3 ended: signal 9");
        m.abort("a later reason");
        break;
      case 1: m.meet(0); break;
      case 2: EXPECT_EQ(m.next().status().message(), "rank 3 ended: signal 9"); break;
      default: EXPECT_EQ(m.show("a card").status().code(), Code::DeviceLost); break;
    }
    EXPECT_TRUE(m.aborted());
    EXPECT_EQ(m.lost().message(), "rank 3 ended: signal 9");
    m.meet(0);  // and none begins
    EXPECT_FALSE(m.publish({}).is_ok());
  });
}

TEST(Member, ARankThatDoesNotAnswerIsNamed) {
  in_world(
      2,
      [](Member& m) {
        if (!m.world().front()) return;
        ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Step}).is_ok());
        const Status s = m.await_followers();
        EXPECT_EQ(s.code(), Code::DeviceLost);
        EXPECT_NE(s.message().find("for rank 1 to end step 1"), std::string::npos) << s.message();
      },
      std::chrono::milliseconds(300));
}

TEST(Region, WhatIsNoRegionIsRefused) {
  EXPECT_FALSE(Region::open(-1).is_ok());
  EXPECT_FALSE(Region::open(4000).is_ok());
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  EXPECT_FALSE(Region::open(pipe[0]).is_ok());
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(Region::create(65).status().message(), "a world of 65 ranks; allowed: 1 to 64");
  EXPECT_FALSE(Region::create(0).is_ok());
  auto region = Region::create(2);
  ASSERT_TRUE(region.is_ok());
  const std::shared_ptr<Region> shared = std::move(*region);
  EXPECT_EQ(Member::join(shared, {2, 2}).status().message(), "rank 2 of 2 does not exist; allowed: 0 to 1");
  EXPECT_NE(Member::join(shared, {1, 3}).status().message().find("the front made one of 2"), std::string::npos);
  shared->control().protocol = 99;
  EXPECT_NE(Region::open(shared->descriptor()).status().message().find("start one build on all"), std::string::npos);
}

}  // namespace
}  // namespace reprise::ranks
