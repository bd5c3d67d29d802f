// Task groups and updates: every rule, when an update becomes visible, and handshakes from inside a graph.
#include <atomic>

#include "sim/rt_support.h"

using namespace sim_test;

namespace {

using ascend_sim::Unit;

class RtUpdate : public Runtime {
 protected:
  // A graph whose first group writes `number` to slots 0 and 1, followed by a mover from 1 to 2.
  aclmdlRI capture_group(int64_t number) {
    return capture([&] {
      EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
      EXPECT_EQ(launch_writer(stream_, 0, number), 0);
      EXPECT_EQ(launch_writer(stream_, 1, number), 0);
      EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group_), 0);
      EXPECT_NE(group_, nullptr);
      EXPECT_EQ(launch_mover(stream_, 1, 2), 0);
    });
  }
  void update(aclrtStream on, int64_t number) {
    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(on, group_), 0) << last_text();
    ASSERT_EQ(launch_writer(on, 0, number), 0) << last_text();
    ASSERT_EQ(launch_writer(on, 1, number), 0) << last_text();
    ASSERT_EQ(aclmdlRICaptureTaskUpdateEnd(on), 0) << last_text();
  }
  void replay(aclmdlRI graph) {
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0) << last_text();
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
  }
  aclrtTaskGrp group_ = nullptr;
};

TEST_F(RtUpdate, ChangesEveryReplayWithoutAnotherCapture) {
  start({{"JITTER", "1"}});
  const aclmdlRI graph = capture_group(1);
  replay(graph);
  EXPECT_EQ(value(2), 1);
  const aclrtEvent updated = new_event();
  for (int i = 2; i < 30; ++i) {
    update(stream2_, i);
    ASSERT_EQ(aclrtRecordEvent(updated, stream2_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream_, updated), 0);
    replay(graph);
    EXPECT_EQ(value(0), i);
    EXPECT_EQ(value(2), i);
  }
  EXPECT_EQ(stat("updates"), 56);
  EXPECT_EQ(stat("replays"), 29);
}

TEST_F(RtUpdate, NothingRunsOnTheUpdateStream) {
  start();
  capture_group(1);
  update(stream2_, 5);
  ASSERT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(value(0), 0);
}

TEST_F(RtUpdate, IsVisibleOnlyInTheOrderOfItsStream) {
  start();
  const aclmdlRI graph = capture_group(1);
  ASSERT_EQ(close_gate(stream2_), 0);
  update(stream2_, 2);
  replay(graph);
  EXPECT_EQ(value(2), 1) << "a replay that is not ordered after the update sees old arguments";
  open_gate();
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  replay(graph);
  EXPECT_EQ(value(2), 2);
}

TEST_F(RtUpdate, GroupRules) {
  start();
  aclrtTaskGrp handle = nullptr;
  EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 107029);
  EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &handle), 107029);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &handle), 107033) << "none is open";
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 107033) << "one is open";
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  EXPECT_EQ(aclrtRecordEvent(new_event(), stream_), 507009) << "kernels only";
  EXPECT_EQ(status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
}

TEST_F(RtUpdate, OtherStreamsOfTheCaptureWaitForTheGroup) {
  start();
  const aclrtEvent fork = new_event();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  EXPECT_EQ(launch_writer(stream2_, 0, 1), 107034);
  EXPECT_EQ(status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
}

TEST_F(RtUpdate, UpdateRules) {
  start();
  const aclmdlRI graph = capture_group(1);
  const aclrtStream third = new_stream();
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 107033);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, &group_), 107017);
  ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 0);
  EXPECT_TRUE(ascend_sim::updating());
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 107033) << "an update is open on the stream";
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(third, group_), 107033) << "the handle is open on another stream";
  EXPECT_EQ(aclmdlRICaptureBegin(stream2_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 107033);
  EXPECT_EQ(aclrtRecordEvent(new_event(), stream2_), 507009) << "kernels only";
  EXPECT_EQ(aclrtMemsetAsync(values_, 8, 0, 8, stream2_), 507009);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream2_), 507009);
  EXPECT_EQ(ascend_sim::launch(stream2_, {writer(0, 2, Unit::Cube)}), 507000) << "another kernel class";
  EXPECT_NE(last_text().find("kernel class"), std::string::npos);
  EXPECT_EQ(launch_writer(stream2_, 0, 2), 0);
  EXPECT_EQ(launch_writer(stream2_, 1, 2), 0);
  EXPECT_EQ(launch_writer(stream2_, 1, 2), 507000) << "more launches than tasks";
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
  EXPECT_FALSE(ascend_sim::updating());
  for (const int launches : {0, 1}) {
    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 0);
    if (launches == 1) {
      ASSERT_EQ(launch_writer(stream2_, 0, 3), 0);
    }
    EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 507000) << "fewer launches than tasks";
    EXPECT_NE(last_text().find("contains unupdated tasks"), std::string::npos);
  }
  ASSERT_EQ(aclmdlRICaptureBegin(stream2_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 107027) << "a capturing stream";
  ASSERT_EQ(aclmdlRIDestroy(graph), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(third, group_), 107017) << "the graph is gone";
}

TEST_F(RtUpdate, NotWhileTheGraphIsCaptured) {
  start();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group_), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 107026);
}

TEST_F(RtUpdate, FaultOnDemand) {
  start({{"FAULT", "update:2"}});
  capture_group(1);
  update(stream2_, 2);
  ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 0);
  ASSERT_EQ(launch_writer(stream2_, 0, 3), 0);
  ASSERT_EQ(launch_writer(stream2_, 1, 3), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 107040);
  update(stream2_, 4);
}

// Updates beside the replay: the graph waits for a value in memory that is written after the update, and clears it.
TEST_F(RtUpdate, HandshakeBesideTheReplay) {
  start({{"JITTER", "7"}, {"RACES", "1"}});
  int64_t* const flag = values_ + 32;
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(aclrtValueWait(flag, 1, ACL_STREAM_WAIT_VALUE_EQ, stream_), 0);
    EXPECT_EQ(aclrtValueWrite(flag, 0, 0, stream_), 0);
    EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
    EXPECT_EQ(launch_writer(stream_, 0, 0), 0);
    EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group_), 0);
    EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
  });
  for (int i = 1; i <= 30; ++i) {
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 0);
    ASSERT_EQ(launch_writer(stream2_, 0, i), 0);
    ASSERT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
    ASSERT_EQ(aclrtValueWrite(flag, 1, 0, stream2_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    EXPECT_EQ(value(1), i);
  }
}

// The same without a synchronisation per step: the main stream clears the flag in its own order, the update stream
// waits for that, and so the host may run ahead.
TEST_F(RtUpdate, HandshakeWithoutWaitingForTheHost) {
  start({{"JITTER", "8"}, {"RACES", "1"}});
  int64_t* const flag = values_ + 32;
  const aclrtEvent cleared = new_event();
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(aclrtValueWait(flag, 1, ACL_STREAM_WAIT_VALUE_EQ, stream_), 0);
    EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
    EXPECT_EQ(launch_writer(stream_, 0, 0), 0);
    EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group_), 0);
    EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
  });
  constexpr int kSteps = 40;
  void* results = nullptr;
  ASSERT_EQ(aclrtMallocHost(&results, kSteps * 8), 0);
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(aclrtMemsetAsync(flag, 8, 0, 8, stream_), 0);
    ASSERT_EQ(aclrtRecordEvent(cleared, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, cleared), 0);
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(
        aclrtMemcpyAsync(static_cast<int64_t*>(results) + i, 8, values_ + 1, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream_), 0);
    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group_), 0);
    ASSERT_EQ(launch_writer(stream2_, 0, 100 + i), 0);
    ASSERT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
    ASSERT_EQ(aclrtValueWrite(flag, 1, 0, stream2_), 0);
  }
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0) << last_text();
  for (int i = 0; i < kSteps; ++i) EXPECT_EQ(static_cast<int64_t*>(results)[i], 100 + i);
}

// Two instances: while one replays, a helper thread updates the other; the main stream only waits for an event.
TEST_F(RtUpdate, PingPong) {
  start({{"JITTER", "9"}, {"RACES", "1"}});
  aclmdlRI graphs[2];
  aclrtTaskGrp groups[2];
  aclrtEvent updated[2], replayed[2];
  for (int i = 0; i < 2; ++i) {
    graphs[i] = capture_group(0);
    groups[i] = group_;
    updated[i] = new_event();
    replayed[i] = new_event();
  }
  void* results = nullptr;
  constexpr int kSteps = 40;
  ASSERT_EQ(aclrtMallocHost(&results, kSteps * 8), 0);
  std::atomic<int> updates{0}, replays{0};
  std::thread helper([&] {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    for (int step = 0; step < kSteps; ++step) {
      // One step ahead at most: the instance was replayed two steps ago.
      ASSERT_TRUE(eventually([&] { return replays >= step - 1; }));
      const int i = step % 2;
      ASSERT_EQ(aclrtStreamWaitEvent(stream2_, replayed[i]), 0);
      ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, groups[i]), 0);
      ASSERT_EQ(launch_writer(stream2_, 0, step), 0);
      ASSERT_EQ(launch_writer(stream2_, 1, step), 0);
      ASSERT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
      ASSERT_EQ(aclrtRecordEvent(updated[i], stream2_), 0);
      ++updates;
    }
  });
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(eventually([&] { return updates > step; }));
    const int i = step % 2;
    ASSERT_EQ(aclrtStreamWaitEvent(stream_, updated[i]), 0);
    ASSERT_EQ(aclmdlRIExecuteAsync(graphs[i], stream_), 0);
    ASSERT_EQ(
        aclrtMemcpyAsync(static_cast<int64_t*>(results) + step, 8, values_ + 2, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream_),
        0);
    ASSERT_EQ(aclrtRecordEvent(replayed[i], stream_), 0);
    ++replays;
  }
  helper.join();
  ASSERT_EQ(aclrtSynchronizeDevice(), 0);
  for (int step = 0; step < kSteps; ++step) EXPECT_EQ(static_cast<int64_t*>(results)[step], step);
}

TEST_F(RtUpdate, ALostRecordHangs) {
  start({{"FAULT", "event:2"}, {"HANG_MS", "60"}});
  const aclrtEvent event = new_event();
  for (const int code : {0, 507046}) {
    ASSERT_EQ(aclrtRecordEvent(event, stream2_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream_, event), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream_), code);
  }
}

}  // namespace
