// Timing of single launches: every thread's kernels and waits, in order, without gaps; nothing while it is off.
#include "device/trace.h"

#include <gtest/gtest.h>

#include <atomic>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/null/null_device.h"

namespace reprise::cpu::trace_test {
namespace {

std::atomic<int> g_calls{0};
void count_call(const LaunchArgs&, const LiveSizes&, int, int) { g_calls.fetch_add(1); }

struct TraceTest : testing::TestWithParam<int> {
  void SetUp() override {
    CpuDeviceOptions options;
    options.threads = GetParam();
    options.pin = false;
    auto made = make_cpu_device(options);
    ASSERT_TRUE(made.is_ok());
    device = std::move(*made);
    stream = std::move(*device->make_stream());
    // Three launches: the first depends on nothing, the second on the first and has two parts, the third is free.
    for (uint32_t i = 0; i < 3; ++i) {
      Thunk t;
      t.node = 10 * (i + 1);
      t.part[0] = opaque(count_call);
      if (i == 1) t.part[1] = opaque(count_call);
      t.depends = i == 1;
      thunks.push_back(t);
    }
    auto captured = device->capture(*stream, [&](Recorder& r) -> Status {
      for (const Thunk& t : thunks) RETURN_IF_ERROR(r.launch(t));
      return Status::ok();
    });
    ASSERT_TRUE(captured.is_ok());
    graph = std::move(*captured);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::vector<Thunk> thunks;
  std::unique_ptr<DeviceGraph> graph;
};

INSTANTIATE_TEST_SUITE_P(Ranks, TraceTest, testing::Values(1, 2, 3));

TEST_P(TraceTest, AReplayIsTimedAsItRuns) {
  const int threads = GetParam();
  Trace trace(threads, 100);
  ASSERT_TRUE(stream->set_trace(&trace).is_ok());
  g_calls = 0;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(graph->replay(*stream).is_ok());
  ASSERT_TRUE(stream->set_trace(nullptr).is_ok());
  ASSERT_TRUE(graph->replay(*stream).is_ok());
  EXPECT_EQ(g_calls.load(), 3 * 4 * threads) << "timed or not, the same kernels run";
  EXPECT_EQ(trace.dropped(), 0u);
  using Kind = TraceEvent::Kind;
  const std::vector<std::tuple<Kind, uint32_t, int>> expected{{Kind::Kernel, 10, 0}, {Kind::Wait, 20, 0},
                                                              {Kind::Kernel, 20, 0}, {Kind::Wait, 20, 1},
                                                              {Kind::Kernel, 20, 1}, {Kind::Kernel, 30, 0}};
  for (int thread = 0; thread < threads; ++thread) {
    const auto events = trace.events(thread);
    // The caller also waits for the others to finish.
    const size_t each = expected.size() + (thread == 0 && threads > 1 ? 1 : 0);
    ASSERT_EQ(events.size(), 2 * each) << "thread " << thread;
    for (size_t i = 0; i < events.size(); ++i) {
      const TraceEvent& e = events[i];
      EXPECT_EQ(e.replay, 1 + i / each);
      EXPECT_LE(e.begin_ns, e.end_ns);
      if (i % each > 0) {
        EXPECT_EQ(e.begin_ns, events[i - 1].end_ns) << "time that belongs to nothing";
      }
      if (i % each < expected.size()) {
        EXPECT_EQ(std::tuple(e.kind, e.node, static_cast<int>(e.part)), expected[i % each]);
      } else {
        EXPECT_EQ(e.node, TraceEvent::kNoNode);
      }
    }
  }
  // Nobody begins what depends on the first launch before everybody has finished that.
  for (int a = 0; a < threads; ++a)
    for (int b = 0; b < threads; ++b) EXPECT_LE(trace.events(a)[0].end_ns, trace.events(b)[2].begin_ns);
}

TEST_P(TraceTest, LaunchesOutsideGraphsAreTimedToo) {
  Trace trace(GetParam(), 100);
  ASSERT_TRUE(stream->set_trace(&trace).is_ok());
  for (const Thunk& t : thunks) ASSERT_TRUE(stream->launch(t).is_ok());
  std::vector<uint32_t> nodes;
  for (const TraceEvent& e : trace.events(0))
    if (e.kind == TraceEvent::Kind::Kernel) nodes.push_back(e.node);
  EXPECT_EQ(nodes, (std::vector<uint32_t>{10, 20, 20, 30}));
  EXPECT_EQ(trace.events(0).back().replay, 3u);
}

TEST_P(TraceTest, WhatFindsNoRoomIsCounted) {
  Trace trace(GetParam(), 4);
  ASSERT_TRUE(stream->set_trace(&trace).is_ok());
  ASSERT_TRUE(graph->replay(*stream).is_ok());
  for (int thread = 0; thread < GetParam(); ++thread) EXPECT_EQ(trace.events(thread).size(), 4u);
  EXPECT_EQ(trace.dropped(), static_cast<size_t>(2 * GetParam() + (GetParam() > 1 ? 1 : 0)));
  trace.start();
  EXPECT_EQ(trace.dropped(), 0u);
  EXPECT_TRUE(trace.events(0).empty());
}

TEST_P(TraceTest, TooFewTracksAreRefused) {
  Trace trace(GetParam() - 1, 4);
  const Status s = stream->set_trace(&trace);
  EXPECT_FALSE(s.is_ok());
  EXPECT_NE(s.message().find("tracks"), std::string::npos);
}

TEST(Trace, ADeviceWithoutClocksSaysSo) {
  auto device = null::make_null_device();
  auto stream = device->make_stream();
  ASSERT_TRUE(stream.is_ok());
  Trace trace(1, 1);
  EXPECT_EQ((*stream)->set_trace(&trace).code(), Code::Unsupported);
  EXPECT_TRUE((*stream)->set_trace(nullptr).is_ok());
}

}  // namespace
}  // namespace reprise::cpu::trace_test
