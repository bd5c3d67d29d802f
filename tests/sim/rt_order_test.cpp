// Unordered work on the same memory is found, in whatever order it happened to run; ordered work is left alone.
#include <atomic>

#include "sim/rt_support.h"

using namespace sim_test;

namespace {

class RtOrder : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    start({{"RACES", "1"}, {"JITTER", "4"}});
  }
  int finish() {
    const int first = aclrtSynchronizeStream(stream_);
    const int second = aclrtSynchronizeStream(stream2_);
    return first != 0 ? first : second;
  }
};

TEST_F(RtOrder, StreamsThatShareAWorkspace) {
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_EQ(launch_writer(stream2_, 0, 2), 0);
  EXPECT_EQ(finish(), 507015);
  EXPECT_NE(last_text().find("writer writes 0x"), std::string::npos);
  EXPECT_EQ(stat("races"), 1);
}

TEST_F(RtOrder, ReadersDoNotRace) {
  ASSERT_EQ(launch_mover(stream_, 0, 1), 0);
  ASSERT_EQ(launch_mover(stream2_, 0, 2), 0);
  EXPECT_EQ(finish(), 0) << last_text();
}

TEST_F(RtOrder, EventsOrder) {
  const aclrtEvent event = new_event();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(launch_writer(stream_, 0, i), 0);
    ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
    ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
    ASSERT_EQ(aclrtRecordEvent(event, stream2_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream_, event), 0);
  }
  EXPECT_EQ(finish(), 0) << last_text();
  // The way back is missing, and what the event knows ends before it.
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(launch_writer(stream_, 2, 1), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
  ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
  EXPECT_EQ(finish(), 0) << last_text();
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(launch_writer(stream_, 2, 1), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
  ASSERT_EQ(launch_mover(stream2_, 2, 1), 0);
  EXPECT_EQ(finish(), 507015);
}

TEST_F(RtOrder, SynchronisingOrders) {
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
  EXPECT_EQ(finish(), 0) << last_text();
}

TEST_F(RtOrder, TheHostReadsWithoutWaiting) {
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  ASSERT_TRUE(eventually([&] { return stat("tasks") == 1; }));
  int64_t number = 0;
  EXPECT_EQ(aclrtMemcpy(&number, 8, values_, 8, ACL_MEMCPY_DEVICE_TO_HOST), 507015);
  EXPECT_NE(last_text().find("a synchronous copy reads"), std::string::npos);
  const aclrtEvent event = new_event();
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(aclrtMemcpy(&number, 8, values_, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0) << last_text();
}

TEST_F(RtOrder, TheHostOverwritesWhatAQueuedKernelReads) {
  std::atomic<bool> open{false};
  ascend_sim::Kernel gate;
  gate.name = "gate";
  gate.compute = [&] { eventually([&] { return open.load(); }); };
  const int64_t number = 7;
  for (const int slot : {5, 0}) {
    open = false;
    ASSERT_EQ(ascend_sim::launch(stream_, {gate}), 0);
    ASSERT_EQ(launch_mover(stream_, 0, 1), 0);
    EXPECT_EQ(aclrtMemcpy(values_ + slot, 8, &number, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0) << last_text();
    open = true;
    EXPECT_EQ(finish(), slot == 5 ? 0 : 507015);
  }
  EXPECT_NE(last_text().find("a synchronous copy, which writes it"), std::string::npos);
}

TEST_F(RtOrder, LanesOfAGraph) {
  const aclrtEvent fork = new_event(), join = new_event();
  for (const int slot : {1, 0}) {
    const aclmdlRI graph = capture([&] {
      EXPECT_EQ(aclrtRecordEvent(fork, stream_), 0);
      EXPECT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
      EXPECT_EQ(launch_writer(stream_, 0, 1), 0);
      EXPECT_EQ(launch_writer(stream2_, slot, 1), 0);
      EXPECT_EQ(aclrtRecordEvent(join, stream2_), 0);
      EXPECT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
      EXPECT_EQ(launch_mover(stream_, slot, 2), 0);
    });
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
      ASSERT_EQ(launch_mover(stream_, slot, 3), 0);
      EXPECT_EQ(finish(), slot == 1 ? 0 : 507015) << last_text();
    }
  }
}

TEST_F(RtOrder, UpdatesAreOrderedWithReplays) {
  aclrtTaskGrp group = nullptr;
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
    EXPECT_EQ(launch_writer(stream_, 0, 0), 0);
    EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group), 0);
  });
  const aclrtEvent updated = new_event(), replayed = new_event();
  const auto step = [&](bool update_waits, bool replay_waits) {
    if (update_waits) {
      EXPECT_EQ(aclrtStreamWaitEvent(stream2_, replayed), 0);
    }
    EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
    EXPECT_EQ(launch_writer(stream2_, 0, 1), 0);
    EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
    EXPECT_EQ(aclrtRecordEvent(updated, stream2_), 0);
    if (replay_waits) {
      EXPECT_EQ(aclrtStreamWaitEvent(stream_, updated), 0);
    }
    EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    EXPECT_EQ(aclrtRecordEvent(replayed, stream_), 0);
  };
  for (int i = 0; i < 10; ++i) step(true, true);
  EXPECT_EQ(finish(), 0) << last_text();
  step(true, false);
  EXPECT_EQ(finish(), 507015) << "the replay does not wait for the update";
  EXPECT_NE(last_text().find("a task update of writer"), std::string::npos);
  step(true, true);
  EXPECT_EQ(finish(), 0) << last_text();
  step(true, true);
  step(false, true);
  EXPECT_EQ(finish(), 507015) << "the update does not wait for the replay before";
}

TEST_F(RtOrder, ValuesInMemoryOrder) {
  int64_t* const flag = values_ + 32;
  for (int i = 1; i <= 10; ++i) {
    ASSERT_EQ(aclrtValueWait(flag, i, ACL_STREAM_WAIT_VALUE_EQ, stream2_), 0);
    ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
    ASSERT_EQ(aclrtValueWrite(flag + 2, i, 0, stream2_), 0);
    ASSERT_EQ(launch_writer(stream_, 0, i), 0);
    ASSERT_EQ(aclrtValueWrite(flag, i, 0, stream_), 0);
    ASSERT_EQ(aclrtValueWait(flag + 2, i, ACL_STREAM_WAIT_VALUE_EQ, stream_), 0);
  }
  EXPECT_EQ(finish(), 0) << last_text();
  EXPECT_EQ(value(1), 10);
}

}  // namespace
