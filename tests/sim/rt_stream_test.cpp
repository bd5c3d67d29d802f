// Streams, events, values, callbacks: order, and the rules of each family.
#include <pthread.h>

#include <atomic>

#include "sim/rt_support.h"

using namespace sim_test;

namespace {

using RtStream = Runtime;

TEST_F(RtStream, NothingRunsBeforeItsTurn) {
  start();
  ASSERT_EQ(close_gate(stream_), 0);
  ASSERT_EQ(launch_writer(stream_, 0, 7), 0);
  ASSERT_EQ(launch_mover(stream_, 0, 1), 0);
  ASSERT_EQ(launch_writer(stream2_, 2, 9), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0) << "the other stream does not wait";
  EXPECT_EQ(value(2), 9);
  EXPECT_EQ(value(0), 0);
  aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE;
  ASSERT_EQ(aclrtStreamQuery(stream_, &state), 0);
  EXPECT_EQ(state, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 20), 507046);
  EXPECT_NE(last_text().find("value wait"), std::string::npos);
  open_gate();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(value(1), 7);
  ASSERT_EQ(aclrtStreamQuery(stream_, &state), 0);
  EXPECT_EQ(state, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 0), 107000);
}

TEST_F(RtStream, StreamsComputeAtTheSameTime) {
  start();
  // Each kernel waits for the other to begin.
  std::atomic<int> begun{0};
  ascend_sim::Kernel meet;
  meet.name = "meet";
  meet.compute = [&] {
    ++begun;
    eventually([&] { return begun == 2; });
  };
  ASSERT_EQ(ascend_sim::launch(stream_, {meet}), 0);
  ASSERT_EQ(ascend_sim::launch(stream2_, {meet}), 0);
  ASSERT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(begun, 2);
}

TEST_F(RtStream, EventsOrderStreams) {
  start({{"JITTER", "11"}});
  const aclrtEvent event = new_event();
  for (int i = 1; i <= 50; ++i) {
    ASSERT_EQ(launch_writer(stream_, 0, i), 0);
    ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
    ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
    ASSERT_EQ(value(1), i);
  }
}

TEST_F(RtStream, AMissingEventShowsUnderJitter) {
  start({{"JITTER", "3"}});
  int late = 0;
  for (int i = 1; i <= 200; ++i) {
    ASSERT_EQ(launch_writer(stream_, 0, i), 0);
    ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
    ASSERT_EQ(aclrtSynchronizeDevice(), 0);
    late += value(1) != i;
  }
  EXPECT_GT(late, 0);
}

TEST_F(RtStream, ExEventsMeanTheirLatestRecord) {
  start();
  const aclrtEvent event = new_event();
  aclrtEventRecordedStatus state = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  ASSERT_EQ(aclrtQueryEventStatus(event, &state), 0);
  EXPECT_EQ(state, ACL_EVENT_RECORDED_STATUS_COMPLETE) << "never recorded";
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  ASSERT_EQ(close_gate(stream_), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(aclrtQueryEventStatus(event, &state), 0);
  EXPECT_EQ(state, ACL_EVENT_RECORDED_STATUS_NOT_READY);
  aclrtEventStatus old_state = ACL_EVENT_STATUS_COMPLETE;
  ASSERT_EQ(aclrtQueryEvent(event, &old_state), 0);
  EXPECT_EQ(static_cast<int>(old_state), 1) << "the older call counts the other way round";
  EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event, 20), 507047);
  EXPECT_EQ(aclrtResetEvent(event, stream_), 207000);
  aclrtEventWaitStatus waits = ACL_EVENT_WAIT_STATUS_COMPLETE;
  EXPECT_EQ(aclrtQueryEventWaitStatus(event, &waits), 207000);
  open_gate();
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 107017);
}

TEST_F(RtStream, LegacyEventsAreRecordedWaitedForAndReset) {
  start();
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
  ASSERT_EQ(launch_writer(stream2_, 0, 1), 0);
  aclrtEventWaitStatus waits = ACL_EVENT_WAIT_STATUS_COMPLETE;
  ASSERT_EQ(aclrtQueryEventWaitStatus(event, &waits), 0);
  EXPECT_EQ(waits, ACL_EVENT_WAIT_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream2_, 20), 507046) << "no record yet";
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  ASSERT_EQ(aclrtQueryEventWaitStatus(event, &waits), 0);
  EXPECT_EQ(waits, ACL_EVENT_WAIT_STATUS_COMPLETE);
  ASSERT_EQ(aclrtResetEvent(event, stream2_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  aclrtEventRecordedStatus state = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  ASSERT_EQ(aclrtQueryEventStatus(event, &state), 0);
  EXPECT_EQ(state, ACL_EVENT_RECORDED_STATUS_NOT_READY);
}

TEST_F(RtStream, ExternalEventsAreNotForTheHost) {
  start();
  aclrtEvent event = nullptr;
  EXPECT_EQ(aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL | ACL_EVENT_SYNC), 107000) << "only alone";
  EXPECT_EQ(aclrtCreateEventExWithFlag(&event, ACL_EVENT_EXTERNAL), 107000);
  ASSERT_EQ(aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL), 0);
  aclrtEventRecordedStatus state;
  EXPECT_EQ(aclrtQueryEventStatus(event, &state), 207000);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 207000);
}

TEST_F(RtStream, OnlyTimelineEventsHaveTimes) {
  start();
  const aclrtEvent begin = new_event(ACL_EVENT_TIME_LINE | ACL_EVENT_SYNC), end = new_event(ACL_EVENT_TIME_LINE);
  const aclrtEvent plain = new_event();
  float ms = 0;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, begin, end), 107006) << "not recorded";
  ASSERT_EQ(aclrtRecordEvent(begin, stream_), 0);
  ASSERT_EQ(aclrtRecordEvent(plain, stream_), 0);
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_EQ(aclrtRecordEvent(end, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, begin, end), 0);
  EXPECT_GT(ms, 0);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, end, begin), 107007);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, plain, end), 107006);
}

TEST_F(RtStream, ValueWaitsKnowFourConditions) {
  start();
  const struct {
    uint32_t flag;
    uint64_t operand, no, yes;
  } cases[] = {{ACL_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
               {ACL_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
               {ACL_STREAM_WAIT_VALUE_AND, 6, 1, 2},
               {ACL_STREAM_WAIT_VALUE_NOR, 1, ~uint64_t{1}, 4}};
  for (const auto& one : cases) {
    ASSERT_EQ(aclrtValueWrite(values_ + 8, one.no, 0, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    ASSERT_EQ(aclrtValueWait(values_ + 8, one.operand, one.flag, stream2_), 0);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream2_, 10), 507046) << one.flag;
    ASSERT_EQ(aclrtValueWrite(values_ + 8, one.yes, 0, stream_), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream2_), 0) << one.flag;
  }
  int64_t host = 0;
  EXPECT_EQ(aclrtValueWait(&host, 1, 0, stream_), 107000) << "not device memory";
  EXPECT_EQ(aclrtValueWrite(values_, 1, 1, stream_), 107000) << "flag must be 0";
  EXPECT_EQ(aclrtValueWait(reinterpret_cast<char*>(values_) + 4, 1, 0, stream_), 107000) << "8-byte aligned";
}

TEST_F(RtStream, AHangIsFoundByTheWatchdog) {
  start({{"HANG_MS", "60"}});
  ASSERT_EQ(close_gate(stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507046);
  EXPECT_NE(last_text().find("hangs"), std::string::npos);
  EXPECT_EQ(aclrtDestroyStreamForce(stream_), 0) << "abandons what is queued";
}

TEST_F(RtStream, WhoWaitsIsReleasedWhenTheDeviceGoes) {
  start();
  const aclrtEvent event = new_event();
  ASSERT_EQ(close_gate(stream_), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  std::atomic<int> waiting{0};
  int codes[2] = {0, 0};
  const auto wait = [&](int i) {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ++waiting;
    codes[i] = i == 0 ? aclrtSynchronizeEvent(event) : aclrtSynchronizeStream(stream_);
  };
  std::thread first(wait, 0), second(wait, 1);
  ASSERT_TRUE(eventually([&] { return waiting == 2; }));
  ASSERT_EQ(aclrtResetDeviceForce(0), 0);
  first.join();
  second.join();
  // Released, or too late to begin.
  EXPECT_TRUE(codes[0] == 107023 || codes[0] == 107017) << codes[0];
  EXPECT_TRUE(codes[1] == 107023 || codes[1] == 107002) << codes[1];
}

TEST_F(RtStream, HostFunctionsBlockTheirStream) {
  start();
  static std::atomic<int> inside{0};
  ASSERT_EQ(aclrtLaunchHostFunc(
                stream_,
                [](void* stream) {
                  inside = aclrtSynchronizeStream(stream);
                  void* block = nullptr;
                  EXPECT_EQ(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 207000);
                },
                stream_),
            0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(inside, 107002) << "the runtime's thread has no context";
}

TEST_F(RtStream, CallbacksRunOnTheSubscriber) {
  start();
  EXPECT_EQ(aclrtLaunchCallback([](void*) {}, nullptr, ACL_CALLBACK_BLOCK, stream_), 107015);
  std::atomic<bool> stop{false}, ready{false};
  std::atomic<uint64_t> pump_id{0};
  std::thread pump([&] {
    pump_id = pthread_self();
    ready = true;
    while (!stop) aclrtProcessReport(5);
  });
  ASSERT_TRUE(eventually([&] { return ready.load(); }));
  ASSERT_EQ(aclrtSubscribeReport(pump_id, stream_), 0);
  std::atomic<uint64_t> ran_on{0};
  const auto note = [](void* to) { *static_cast<std::atomic<uint64_t>*>(to) = pthread_self(); };
  ASSERT_EQ(aclrtLaunchCallback(note, &ran_on, ACL_CALLBACK_BLOCK, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(ran_on, pump_id) << "the stream waited for it";
  EXPECT_EQ(aclrtUnSubscribeReport(pump_id, stream_), 0);
  stop = true;
  pump.join();
}

TEST_F(RtStream, AFullQueueBlocksTheHost) {
  start();
  ASSERT_EQ(close_gate(stream_), 0);
  std::atomic<int> launched{0};
  std::thread host([&] {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    for (int i = 0; i < 2100; ++i) {
      ASSERT_EQ(launch_writer(stream_, 0, i), 0);
      ++launched;
    }
  });
  ASSERT_TRUE(eventually([&] { return launched == 2012; }));  // with the gate 2013
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 50), 507046);
  EXPECT_EQ(launched, 2012);
  open_gate();
  host.join();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(value(0), 2099);
}

TEST_F(RtStream, PageableCopiesDrainTheirStream) {
  start();
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 64), 0);
  std::vector<int64_t> pageable(8, 5);
  ASSERT_EQ(close_gate(stream_), 0);
  *static_cast<int64_t*>(pinned) = 3;
  ASSERT_EQ(aclrtMemcpyAsync(values_, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream_), 0);
  *static_cast<int64_t*>(pinned) = 4;  // read when the copy runs
  std::atomic<bool> done{false};
  std::thread host([&] {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtMemcpyAsync(values_ + 1, 8, pageable.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, stream_), 0);
    done = true;
  });
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 30), 507046);
  EXPECT_FALSE(done);
  EXPECT_EQ(value(0), 0) << "a synchronous copy does not wait for streams";
  open_gate();
  host.join();
  EXPECT_EQ(value(0), 4);
  EXPECT_EQ(value(1), 5);
  EXPECT_EQ(aclrtMemcpyAsync(pageable.data(), 8, pinned, 8, ACL_MEMCPY_HOST_TO_HOST, stream_), 207000);
  EXPECT_EQ(aclrtFreeHost(pinned), 0);
}

}  // namespace
