// Budgets of queues, streams and events on the old and the new stack.
#include "sim/rt_support.h"

using namespace sim_test;

namespace {

using RtLimits = Runtime;
constexpr auto kOfThread = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;

TEST_F(RtLimits, StreamsEndOnTheOldStack) {
  start();
  uint32_t left = 0;
  ASSERT_EQ(aclrtGetStreamAvailableNum(&left), 0);
  EXPECT_EQ(left, 1984u - 3) << "two streams and the default one";
  for (uint32_t i = 0; i < left; ++i) new_stream();
  aclrtStream stream = nullptr;
  EXPECT_EQ(aclrtCreateStream(&stream), 207008);
  EXPECT_NE(last_text().find("alloc sq cq fail"), std::string::npos);
  EXPECT_EQ(aclmdlRICaptureBegin(stream_, kOfThread), 207008);
  EXPECT_EQ(aclrtDestroyStream(stream2_), 0);
  EXPECT_EQ(aclmdlRICaptureBegin(stream_, kOfThread), 0) << "one queue came back";
}

TEST_F(RtLimits, GraphsHoldQueuesOnTheOldStack) {
  start();
  std::vector<aclmdlRI> graphs;
  for (int i = 0; i < 1981; ++i) graphs.push_back(capture([] {}));
  EXPECT_EQ(stat("queues"), 1984);
  EXPECT_EQ(aclmdlRICaptureBegin(stream_, kOfThread), 207008) << "too many graphs";
  ASSERT_EQ(aclmdlRIDestroy(graphs.back()), 0);
  // A fork needs one more queue and finds none: the capture is over.
  const aclrtEvent fork = new_event();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kOfThread), 0);
  ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(stream2_, fork), 207008);
  EXPECT_EQ(status(stream_), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
}

TEST_F(RtLimits, NewStackBindsQueuesAtExecution) {
  start({{"STACK", "new"}});
  for (int i = 0; i < 1981; ++i) new_stream();
  const aclmdlRI graph = capture([&] { EXPECT_EQ(launch_writer(stream_, 0, 1), 0); });
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 207005) << "found at execution, not at capture";
  EXPECT_EQ(aclrtDestroyStream(stream2_), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(stat("queues"), 1983) << "and given back";
  EXPECT_EQ(value(0), 1);
}

TEST_F(RtLimits, OneExecutionTakesAtMost1024Queues) {
  start({{"STACK", "new"}});
  // Streams without a queue of their own, each forked from the first and joined to it.
  const auto forked = [&](int streams) {
    return capture([&] {
      const aclrtEvent fork = new_event(), join = new_event();
      EXPECT_EQ(aclrtRecordEvent(fork, stream_), 0);
      for (int i = 0; i < streams; ++i) {
        aclrtStream stream = nullptr;
        EXPECT_EQ(aclrtCreateStream(&stream), 0);
        EXPECT_EQ(aclrtStreamWaitEvent(stream, fork), 0);
        EXPECT_EQ(aclrtRecordEvent(join, stream), 0);
        EXPECT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
      }
    });
  };
  const aclmdlRI fits = forked(1023);
  const aclmdlRI exceeds = forked(1024);
  EXPECT_EQ(aclmdlRIExecuteAsync(fits, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(exceeds, stream_), 207005);
}

TEST_F(RtLimits, LongGraphsCascade) {
  start();
  const auto queues_of = [&](int kernels, int groups) {
    const double before = stat("queues");
    const aclmdlRI graph = capture([&] {
      for (int i = 0; i < kernels; ++i) ASSERT_EQ(launch_writer(stream_, 0, i), 0);
      for (int i = 0; i < groups; ++i) {
        aclrtTaskGrp group = nullptr;
        ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
        ASSERT_EQ(launch_writer(stream_, 0, i), 0);
        ASSERT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group), 0);
      }
    });
    const double used = stat("queues") - before;
    EXPECT_EQ(aclmdlRIDestroy(graph), 0);
    EXPECT_EQ(stat("queues"), before);
    return used;
  };
  EXPECT_EQ(queues_of(2015, 0), 1);
  EXPECT_EQ(queues_of(2016, 0), 2);
  EXPECT_EQ(queues_of(2015 + 2014, 0), 2);
  EXPECT_EQ(queues_of(2015 + 2015, 0), 3);
  EXPECT_EQ(queues_of(0, 223), 1) << "a group of one kernel takes nine entries";
  EXPECT_EQ(queues_of(0, 224), 2);
}

TEST_F(RtLimits, EventsEnd) {
  start();
  for (int i = 0; i < 65536; ++i) ASSERT_NE(new_event(), nullptr);
  aclrtEvent event = nullptr;
  EXPECT_EQ(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), 207007);
}

TEST_F(RtLimits, StreamFaultOnDemand) {
  start({{"FAULT", "stream:4"}});
  aclrtStream stream = nullptr;
  EXPECT_EQ(aclrtCreateStream(&stream), 207008);
  EXPECT_EQ(aclrtCreateStream(&stream), 0);
}

}  // namespace
