// Mailbox by itself: what it refuses, the numbers it gives, and who wakes whom.
#include "sched/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/answers.h"

namespace reprise::sched::mailbox_test {
namespace {

struct MailboxTest : testing::Test {
  MailboxTest() {
    options.max_running = 1;
    options.max_queued = 2;
  }
  static LivePtr live(int64_t prompt, int64_t answer) {
    Asked asked = ask(Tokens(static_cast<size_t>(prompt), 3), answer);
    auto r = std::make_unique<LiveRequest>(0, std::move(asked.request), std::span<const int32_t>());
    r->most_new_tokens = answer;
    return r;
  }
  RequestId add(int64_t prompt = 4, int64_t answer = 6) {
    const auto id = box.add(live(prompt, answer));
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    return id.is_ok() ? *id : 0;
  }
  void expect_busy(std::string_view why, int64_t prompt = 4, int64_t answer = 6) {
    const Status refused = box.add(live(prompt, answer)).status();
    EXPECT_EQ(refused.code(), Code::Busy);
    EXPECT_EQ(refused.message(), why);
    EXPECT_EQ(box.check(prompt + answer).message(), why);
  }
  SchedulerOptions options;
  Mailbox box{options};
};

TEST_F(MailboxTest, GivesWhatCameInItsOrder) {
  const RequestId first = add();
  box.cancel(first);
  int done = 0;
  box.post([&] { ++done; });
  std::vector<Mail> mail = box.take();
  ASSERT_EQ(mail.size(), 3u);
  EXPECT_EQ(mail[0].request->id, first);
  EXPECT_EQ(mail[0].request->result.id, first);
  EXPECT_TRUE(mail[1].cancel && mail[1].id == first && !mail[1].request);
  mail[2].what();
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(box.take().empty());
}

TEST_F(MailboxTest, NumbersBelongToOneOfSeveralSchedulers) {
  options.first_id = 3;
  options.id_step = 4;
  EXPECT_EQ(add(), 3u);
  EXPECT_EQ(add(), 7u);
}

TEST_F(MailboxTest, HoldsSoManyRequestsUntilTheyEnd) {
  for (int i = 0; i < 3; ++i) add();
  const std::string full = "3 requests are running or waiting, which is the most this server holds";
  expect_busy(full);
  std::vector<Mail> mail = box.take();
  expect_busy(full);  // being read is not the end
  mail[0].request->result.admitted = Clock::now();
  box.admitted(*mail[0].request);
  expect_busy(full);
  box.ended(*mail[0].request);
  add();
  const Mailbox::Counts counts = box.counts();
  EXPECT_EQ(counts.accepted, 4u);
  EXPECT_EQ(counts.unfinished, 3);
  EXPECT_EQ(counts.unread, 1);
}

TEST_F(MailboxTest, TokensOfThoseThatWaitAreBounded) {
  options.max_queued_tokens = 12;
  add(20, 10);  // alone it may be larger
  expect_busy("the waiting requests may take 30 tokens, and this one 2; at most 12 may wait", 1, 1);
  std::vector<Mail> mail = box.take();
  mail[0].request->result.admitted = Clock::now();
  box.admitted(*mail[0].request);
  EXPECT_EQ(box.counts().waiting_tokens, 0);
  add(4, 6);
  expect_busy("the waiting requests may take 10 tokens, and this one 3; at most 12 may wait", 1, 2);
  add(1, 1);
  mail = box.take();
  box.ended(*mail[0].request);  // ended while it waited
  EXPECT_EQ(box.counts().waiting_tokens, 2);
}

TEST_F(MailboxTest, ClosedOrLostItAcceptsNothing) {
  box.close();
  expect_busy("the server is shutting down and takes no new requests");
  EXPECT_FALSE(box.stopped());
  box.lose(error(Code::DeviceLost, "gone"));
  EXPECT_TRUE(box.stopped());
  EXPECT_EQ(box.lost().code(), Code::DeviceLost);
  const Status refused = box.add(live(1, 1)).status();
  EXPECT_EQ(refused.code(), Code::DeviceLost);
  EXPECT_EQ(refused.message(), "gone");
}

TEST_F(MailboxTest, MailAndTheStopWakeTheSchedulersThread) {
  Bell bell;
  options.bell = &bell;
  EXPECT_FALSE(box.waiting());
  std::thread other([&] { box.post([] {}); });
  box.wait();
  other.join();
  EXPECT_TRUE(box.waiting());
  EXPECT_EQ(box.take().size(), 1u);
  EXPECT_FALSE(box.waiting());
  std::thread stopper([&] { box.stop(); });
  box.wait();
  stopper.join();
  EXPECT_TRUE(box.waiting());
  EXPECT_EQ(bell.rings(), 2u);
}

}  // namespace
}  // namespace reprise::sched::mailbox_test
