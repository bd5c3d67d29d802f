// Capture: what is recorded, what is refused, what ends it, and in which order End looks.
#include <atomic>
#include <fstream>
#include <iterator>

#include "sim/rt_support.h"
#include "support/temporary_path.h"

using namespace sim_test;

namespace {

using RtCapture = Runtime;
constexpr auto kGlobal = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
constexpr auto kLocal = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
constexpr auto kNone = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
constexpr auto kActive = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
constexpr auto kInvalidated = ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;

TEST_F(RtCapture, RecordsAndReplays) {
  start();
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
    EXPECT_EQ(launch_mover(stream_, 1, 2), 0);
    EXPECT_EQ(status(stream_), kActive);
  });
  EXPECT_EQ(status(stream_), kNone);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(value(2), 0) << "nothing captured runs";
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(launch_writer(stream2_, 0, i), 0);
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream2_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
    EXPECT_EQ(value(2), i);
  }
  EXPECT_EQ(aclmdlRIExecute(graph, -1), 107000) << "not for captured graphs";
  ASSERT_EQ(aclmdlRIDestroy(graph), 0);
  EXPECT_EQ(aclmdlRIDestroy(graph), 107017);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 107017) << "use after destroy";
}

TEST_F(RtCapture, BeginIsRefused) {
  start();
  EXPECT_EQ(aclmdlRICaptureBegin(nullptr, kLocal), 207000) << "the default stream";
  aclrtStream special = nullptr;
  ASSERT_EQ(aclrtCreateStreamWithConfig(&special, 0, ACL_STREAM_CPU_SCHEDULE), 0);
  EXPECT_EQ(aclmdlRICaptureBegin(special, kLocal), 207000);
  EXPECT_EQ(aclmdlRICaptureBegin(stream_, static_cast<aclmdlRICaptureMode>(3)), 107000);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
  EXPECT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 107027) << "nested";
  EXPECT_EQ(aclmdlRICaptureGetInfo(stream_, nullptr, nullptr), 107000);
  aclmdlRI graph = nullptr;
  ASSERT_EQ(aclmdlRICaptureGetInfo(stream_, nullptr, &graph), 0);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(aclmdlRIDestroy(graph), 107026);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream2_), 107026);
}

TEST_F(RtCapture, EndLooksInOrder) {
  start();
  aclmdlRI graph = &graph;
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 107029);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, nullptr), 107000);

  // A stream that joined later cannot end it; the capture lives on.
  const aclrtEvent fork = new_event();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
  ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
  EXPECT_EQ(status(stream2_), kActive);
  EXPECT_EQ(aclmdlRICaptureEnd(stream2_, &graph), 107036);
  EXPECT_EQ(status(stream_), kActive);

  // Another thread: first of all the others, and it ends the capture.
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  int code = 0;
  std::thread([&] {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    code = aclmdlRICaptureEnd(stream_, &graph);
  }).join();
  EXPECT_EQ(code, 107038);
  EXPECT_EQ(status(stream_), kNone);
  EXPECT_EQ(status(stream2_), kNone);

  // Invalidated before an open group, an open group before an unjoined stream, that before an unrecorded event.
  const auto begin = [&](bool invalid, bool group, bool unjoined) {
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream_, new_event()), 0) << "never recorded: its record may follow";
    ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
    if (unjoined) {
      ASSERT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
    }
    if (group) {
      ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
    }
    if (invalid) {
      ASSERT_EQ(aclrtMemsetAsync(values_, 8, 0, 8, stream_), 507009);
    }
    graph = &graph;
  };
  begin(true, true, true);
  EXPECT_EQ(status(stream_), kInvalidated);
  EXPECT_EQ(launch_writer(stream_, 0, 1), 507903) << "later launches fail";
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 507903);
  EXPECT_EQ(graph, nullptr);
  begin(false, true, true);
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 107033);
  begin(false, false, true);
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 107025);
  begin(false, false, false);
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 107024);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(stat("graphs"), 0) << "failed captures leave nothing";
  EXPECT_EQ(stat("queues"), 3) << "two streams and the default one";
}

TEST_F(RtCapture, RelaxedMayEndInAnotherThread) {
  start();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kRelaxed), 0);
  aclmdlRI graph = nullptr;
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), 0);
    EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0);
  }).join();
  EXPECT_NE(graph, nullptr);
}

TEST_F(RtCapture, CapturedObjectsCannotBeSynchronised) {
  start();
  const aclrtEvent event = new_event(ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  const aclmdlRI other = capture([] {});
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kRelaxed), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  aclrtStreamStatus stream_state;
  aclrtEventRecordedStatus event_state;
  float ms = 0;
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 107027);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), 107027);
  EXPECT_EQ(aclrtStreamQuery(stream_, &stream_state), 107027);
  EXPECT_EQ(aclrtDestroyStream(stream_), 107027);
  EXPECT_EQ(aclrtDestroyStreamForce(stream_), 107027);
  EXPECT_EQ(aclrtSynchronizeDevice(), 107027);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 107028);
  EXPECT_EQ(aclrtQueryEventStatus(event, &event_state), 107028);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, event, event), 107028);
  EXPECT_EQ(aclrtRecordEvent(event, stream2_), 107028);
  EXPECT_EQ(aclmdlRIExecuteAsync(other, stream_), 107027);
  EXPECT_EQ(aclrtSynchronizeStream(stream2_), 0) << "a stream outside of it";
  EXPECT_EQ(status(stream_), kActive) << "refused calls leave the capture alive";
  EXPECT_EQ(stat("107027"), 7) << "and are counted";
  EXPECT_EQ(stat("107028"), 4);
  aclmdlRI graph = nullptr;
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0) << "and the event is free again";
}

TEST_F(RtCapture, UnsafeCallsFollowTheMode) {
  start();
  int64_t host = 0;
  const auto copy = [&] { return aclrtMemcpy(values_, 8, &host, 8, ACL_MEMCPY_HOST_TO_DEVICE); };
  const auto copy_elsewhere = [&](aclmdlRICaptureMode exchange) {
    int code = -1;
    std::thread([&] {
      EXPECT_EQ(aclrtSetDevice(0), 0);
      EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&exchange), 0);
      EXPECT_EQ(exchange, kGlobal) << "what every thread begins with";
      code = copy();
    }).join();
    return code;
  };
  const auto copy_here = [&](aclmdlRICaptureMode exchange) {
    EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&exchange), 0);
    const int code = copy();
    EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&exchange), 0);
    return code;
  };
  const struct {
    aclmdlRICaptureMode capture, exchange;
    int here, elsewhere;
  } cases[] = {
      {kGlobal, kGlobal, 107030, 107030}, {kGlobal, kLocal, 107030, 0}, {kGlobal, kRelaxed, 0, 0},
      {kLocal, kGlobal, 107030, 0},       {kLocal, kLocal, 107030, 0},  {kLocal, kRelaxed, 0, 0},
      {kRelaxed, kGlobal, 0, 0},          {kRelaxed, kLocal, 0, 0},     {kRelaxed, kRelaxed, 0, 0},
  };
  for (const auto& one : cases) {
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, one.capture), 0);
    EXPECT_EQ(copy_here(one.exchange), one.here) << one.capture << one.exchange;
    EXPECT_EQ(copy_elsewhere(one.exchange), one.elsewhere) << one.capture << one.exchange;
    EXPECT_EQ(aclrtMemset(values_, 8, 0, 8), copy_here(kGlobal));
    void* block = nullptr;
    EXPECT_EQ(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0) << "allocating is never checked";
    EXPECT_EQ(aclrtFree(block), 0);
    EXPECT_EQ(status(stream_), kActive);
    aclmdlRI graph = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0);
    ASSERT_EQ(aclmdlRIDestroy(graph), 0);
  }
}

TEST_F(RtCapture, CopiesNeedPinnedMemory) {
  start();
  int64_t pageable = 4;
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 8), 0);
  *static_cast<int64_t*>(pinned) = 3;
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kGlobal), 0);
  EXPECT_EQ(aclrtMemcpyAsync(values_, 8, &pageable, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream_), 107000);
  EXPECT_NE(last_text().find("pageable"), std::string::npos);
  EXPECT_EQ(aclrtMemcpyAsync(values_, 8, &pageable, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream2_), 107041);
  EXPECT_EQ(aclrtMemcpyAsync(values_ + 1, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream_), 0);
  aclmdlRI graph = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0);
  *static_cast<int64_t*>(pinned) = 5;
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(value(1), 5) << "read at the replay";
  ASSERT_EQ(aclrtFreeHost(pinned), 0);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015) << "stale host memory";
  EXPECT_NE(last_text().find("host address"), std::string::npos);
}

TEST_F(RtCapture, ForkAndJoin) {
  start({{"JITTER", "5"}});
  const aclrtEvent fork = new_event(), join = new_event();
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
    EXPECT_EQ(aclrtRecordEvent(fork, stream_), 0);
    EXPECT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
    EXPECT_EQ(launch_mover(stream2_, 1, 2), 0);
    EXPECT_EQ(aclrtRecordEvent(join, stream2_), 0);
    EXPECT_EQ(launch_mover(stream_, 1, 3), 0);
    EXPECT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
    EXPECT_EQ(launch_mover(stream_, 2, 4), 0);
  });
  EXPECT_EQ(status(stream2_), kNone);
  for (int i = 1; i <= 30; ++i) {
    ASSERT_EQ(launch_writer(stream_, 0, i), 0);
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    EXPECT_EQ(value(4), i);
    EXPECT_EQ(value(3), i);
  }
}

TEST_F(RtCapture, WorkAfterTheJoinIsUnjoined) {
  start();
  const aclrtEvent fork = new_event(), join = new_event();
  aclmdlRI graph = nullptr;
  for (const bool late_work : {true, false}) {
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
    ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
    ASSERT_EQ(aclrtRecordEvent(join, stream2_), 0);
    if (late_work) {
      ASSERT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
      ASSERT_EQ(launch_writer(stream2_, 0, 1), 0);
    }  // else nobody waits for the record
    EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 107025);
  }
}

TEST_F(RtCapture, APrefetchIsJoinedAsAllWorkIs) {
  start();
  const aclrtEvent fork = new_event(), join = new_event();
  aclmdlRI graph = nullptr;
  for (const bool joined : {false, true}) {
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
    ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
    ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
    ASSERT_EQ(aclrtCmoAsync(values_, 64, ACL_RT_CMO_TYPE_PREFETCH, stream2_), 0);
    if (joined) {
      ASSERT_EQ(aclrtRecordEvent(join, stream2_), 0);
      ASSERT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
    }
    EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), joined ? 0 : 107025) << last_text();
  }
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
}

TEST_F(RtCapture, AJoinThroughAThirdStream) {
  start();
  const aclrtStream third = new_stream();
  const aclrtEvent fork = new_event(), middle = new_event(), join = new_event();
  for (const bool joined : {true, false}) {
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
    ASSERT_EQ(aclrtRecordEvent(fork, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
    ASSERT_EQ(aclrtRecordEvent(middle, stream2_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(third, middle), 0);
    ASSERT_EQ(aclrtRecordEvent(join, third), 0);
    if (joined) {
      ASSERT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
    }
    aclmdlRI graph = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), joined ? 0 : 107025);
  }
}

TEST_F(RtCapture, EventsMustBeOfTheRightFamily) {
  start();
  aclrtEvent legacy = nullptr;
  ASSERT_EQ(aclrtCreateEventWithFlag(&legacy, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
  EXPECT_EQ(aclrtRecordEvent(legacy, stream_), 207000);
  EXPECT_EQ(aclrtStreamWaitEvent(stream_, legacy), 207000);
  EXPECT_EQ(aclrtRecordEvent(new_event(ACL_EVENT_TIME_LINE), stream_), 207000) << "without ACL_EVENT_SYNC";
}

TEST_F(RtCapture, AnEventOfOutsideEndsTheCapture) {
  start();
  const aclrtEvent event = new_event();
  ASSERT_EQ(aclrtRecordEvent(event, stream2_), 0);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(stream_, event), 107024);
  EXPECT_EQ(status(stream_), kInvalidated);
}

TEST_F(RtCapture, TheDefaultStreamIsNotPulledIn) {
  start();
  const aclrtEvent event = new_event();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(nullptr, event), 107031);
  EXPECT_EQ(status(stream_), kInvalidated);
}

TEST_F(RtCapture, TwoCapturesDoNotMerge) {
  start();
  const aclrtEvent event = new_event();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
  ASSERT_EQ(aclmdlRICaptureBegin(stream2_, kLocal), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(stream2_, event), 107032);
  EXPECT_EQ(status(stream2_), kInvalidated);
}

TEST_F(RtCapture, GraphsRunOnOneStreamAtATime) {
  start({{"DESTROY_MS", "50"}});
  const aclmdlRI graph = capture([&] { EXPECT_EQ(close_gate(stream_), 0); });
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0) << "queued behind itself";
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream2_), 507011);
  // Ordered by an event, through a third stream.
  const aclrtStream third = new_stream();
  const aclrtEvent first = new_event(), second = new_event();
  ASSERT_EQ(aclrtRecordEvent(first, stream_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(third, first), 0);
  ASSERT_EQ(aclrtRecordEvent(second, third), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(stream2_, second), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream2_), 0) << last_text();
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 507011) << "the last one is on the other stream now";
  EXPECT_EQ(aclmdlRIDestroy(graph), 107037);
  open_gate();
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

TEST_F(RtCapture, StaleAddressesOfAGraphFault) {
  start();
  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ascend_sim::Kernel kernel;
  kernel.name = "aclnnStale";
  kernel.touches = {{block, 64, true}};
  const aclmdlRI graph = capture([&] { EXPECT_EQ(ascend_sim::launch(stream_, {kernel}), 0); });
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  ASSERT_EQ(aclrtFree(block), 0);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  EXPECT_NE(last_text().find("aclnnStale"), std::string::npos);
}

TEST_F(RtCapture, WhatIsDestroyedIsRefused) {
  start();
  const aclmdlRI graph = capture([&] { EXPECT_EQ(launch_writer(stream_, 0, 1), 0); });
  const aclrtEvent event = new_event();
  ASSERT_EQ(aclmdlRIDestroy(graph), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream_), 107017);
  EXPECT_EQ(aclmdlRIDestroy(graph), 107017);
  ASSERT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtRecordEvent(event, stream_), 107017);
  EXPECT_EQ(aclrtStreamWaitEvent(stream_, event), 107017);
  ASSERT_EQ(aclrtDestroyStream(stream2_), 0);
  EXPECT_EQ(launch_writer(stream2_, 0, 1), 107017);
  EXPECT_EQ(aclmdlRICaptureBegin(stream2_, kRelaxed), 107017);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << "the rest goes on";
  EXPECT_EQ(value(0), 0) << "and nothing of it ran";
}

TEST_F(RtCapture, StreamsOfAGraphMayGo) {
  start();
  const aclrtEvent fork = new_event(), join = new_event();
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(aclrtRecordEvent(fork, stream_), 0);
    EXPECT_EQ(aclrtStreamWaitEvent(stream2_, fork), 0);
    EXPECT_EQ(launch_writer(stream2_, 0, 8), 0);
    EXPECT_EQ(aclrtRecordEvent(join, stream2_), 0);
    EXPECT_EQ(aclrtStreamWaitEvent(stream_, join), 0);
  });
  ASSERT_EQ(aclrtDestroyStream(stream2_), 0);
  ASSERT_EQ(aclrtDestroyEvent(fork), 0);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(value(0), 8);
}

TEST_F(RtCapture, HostFunctionsRunAtEveryReplay) {
  start();
  std::atomic<int> runs{0};
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(aclrtLaunchHostFunc(
                  stream_, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &runs),
              0);
  });
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    EXPECT_EQ(runs, i);
  }
}

TEST_F(RtCapture, GraphsCanBePrinted) {
  start();
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(launch_writer(stream_, 0, 1), 0);
    EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
  });
  testing::internal::CaptureStdout();
  EXPECT_EQ(aclmdlRIDebugPrint(graph), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("2 tasks"), std::string::npos) << text;
  EXPECT_NE(text.find("mover"), std::string::npos) << text;
  const std::string path = reprise::testing_support::temporary_path("rt_capture_graph.json");
  EXPECT_EQ(aclmdlRIDebugJsonPrint(graph, path.c_str(), 2), 107000);
  ASSERT_EQ(aclmdlRIDebugJsonPrint(graph, path.c_str(), 1), 0);
  std::ifstream file(path);
  const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(json.find("\"name\": \"writer\", \"ph\": \"X\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"bytes\": 16"), std::string::npos) << json;
}

TEST_F(RtCapture, KernelsOfEveryGraphAreNoted) {
  const std::string path = reprise::testing_support::temporary_path("rt_capture_kernels.jsonl");
  std::remove(path.c_str());
  start({{"GRAPHS", path}});
  for (const int moves : {1, 3})
    capture([&] {
      EXPECT_EQ(launch_writer(stream_, 0, 1), 0);
      for (int i = 0; i < moves; ++i) EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
    });
  std::ifstream file(path);
  std::string line;
  for (const char* moves : {"1", "3"}) {
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_EQ(line, std::string("{\"mover\": ") + moves + ", \"writer\": 1}");
  }
  EXPECT_FALSE(std::getline(file, line));
}

TEST_F(RtCapture, FaultAtTheEnd) {
  start({{"FAULT", "capture_end:2"}});
  aclmdlRI graph = nullptr;
  for (const int code : {0, 507903, 0}) {
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, kLocal), 0);
    EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), code);
  }
}

TEST_F(RtCapture, ExternalEventHandshake) {
  start();
  aclrtEvent signal = nullptr;
  ASSERT_EQ(aclrtCreateEventWithFlag(&signal, ACL_EVENT_EXTERNAL), 0);
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(aclrtStreamWaitEvent(stream_, signal), 0);
    EXPECT_EQ(aclrtResetEvent(signal, stream_), 0);
    EXPECT_EQ(launch_mover(stream_, 0, 1), 0);
  });
  for (int i = 1; i <= 5; ++i) {
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(launch_writer(stream2_, 0, i), 0);
    ASSERT_EQ(aclrtRecordEvent(signal, stream2_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    EXPECT_EQ(value(1), i);
  }
  // One bit: of two signals before the replay one is lost, and the second replay hangs.
  ASSERT_EQ(aclrtRecordEvent(signal, stream2_), 0);
  ASSERT_EQ(aclrtRecordEvent(signal, stream2_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 50), 507046);
}

}  // namespace
