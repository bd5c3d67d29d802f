// Two streams of a captured graph on the CPU: halves of the threads run them at once, fork and join by the pool's
// barriers, and every launch sees what it waits for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/cpu_kernel.h"
#include "device/trace.h"

namespace reprise::cpu::cpu_streams_test {
namespace {

constexpr int kMost = 8;

// What launches write, which are plain numbers: the thread sanitizer sees a missing barrier.
struct Cells {
  std::array<int64_t, kMost> main{}, side{};
  int64_t begin = 0, main_sum = 0, side_sum = 0, joined = 0;
  std::array<std::atomic<int>, 2> arrived{};  // by stream
  std::array<std::atomic<int>, 2> threads{};  // that a launch of the stream was given
  std::atomic<int> alone{0};
};

Cells& cells(const LaunchArgs& args) { return *static_cast<Cells*>(args.ptr[0]); }

void start(const LaunchArgs& args, const LiveSizes&, int thread, int) {
  if (thread == 0) ++cells(args).begin;
}

// A thread of either stream waits until one of the other is here as well: alone it would not go on.
void meet_the_other(const LaunchArgs& args, const LiveSizes&, int thread, int threads) {
  Cells& c = cells(args);
  const auto stream = static_cast<size_t>(args.scalar[0]);
  c.threads[stream].store(threads);
  c.arrived[stream].fetch_add(1);
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (c.arrived[1 - stream].load() == 0 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  c.alone.fetch_add(c.arrived[1 - stream].load() == 0 ? 1 : 0);
  (stream == 0 ? c.main : c.side)[static_cast<size_t>(thread)] = c.begin + thread;
}

// Reads what all threads of its own half have written.
void add_up(const LaunchArgs& args, const LiveSizes&, int thread, int threads) {
  if (thread != threads - 1) return;
  Cells& c = cells(args);
  const bool side = args.scalar[0] != 0;
  int64_t sum = 0;
  for (int i = 0; i < threads; ++i) sum += (side ? c.side : c.main)[static_cast<size_t>(i)];
  (side ? c.side_sum : c.main_sum) = sum;
}

void join(const LaunchArgs& args, const LiveSizes&, int thread, int threads) {
  if (thread != threads - 1) return;
  Cells& c = cells(args);
  c.joined = c.main_sum + c.side_sum;
}

Thunk launch(CpuKernel kernel, Cells& c, uint8_t stream, bool depends) {
  Thunk t;
  t.part[0] = opaque(kernel);
  t.args.ptr[0] = &c;
  t.args.scalar[0] = stream;
  t.stream = stream;
  t.depends = depends;
  return t;
}

// start | work, add up on either stream | join
Result<std::unique_ptr<DeviceGraph>> record(Device& device, Stream& stream, Cells& c, CpuKernel work = meet_the_other,
                                            CpuKernel add = add_up) {
  return device.capture(stream, [&](Recorder& r) -> Status {
    RETURN_IF_ERROR(r.launch(launch(start, c, 0, false)));
    RETURN_IF_ERROR(r.record(0, 1));
    RETURN_IF_ERROR(r.wait(1, 1));
    for (const uint8_t s : {0, 1}) {
      RETURN_IF_ERROR(r.launch(launch(work, c, s, true)));
      RETURN_IF_ERROR(r.launch(launch(add, c, s, true)));
    }
    RETURN_IF_ERROR(r.record(1, 2));
    RETURN_IF_ERROR(r.wait(0, 2));
    return r.launch(launch(join, c, 0, true));
  });
}

struct Opened {
  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;  // null: that failed
};

Opened opened(int threads) {
  CpuDeviceOptions options;
  options.threads = threads;
  options.pin = false;
  auto device = make_cpu_device(options);
  EXPECT_TRUE(device.is_ok()) << device.status().message();
  if (!device.is_ok()) return {};
  auto stream = (*device)->make_stream();
  EXPECT_TRUE(stream.is_ok()) << stream.status().message();
  if (!stream.is_ok()) return {};
  return {std::move(*device), std::move(*stream)};
}

TEST(CpuStreams, HalvesRunAtOnceAndMeet) {
  for (const int threads : {2, 3, 4, 5}) {
    SCOPED_TRACE(threads);
    const Opened on = opened(threads);
    ASSERT_TRUE(on.stream);
    Cells c;
    auto graph = record(*on.device, *on.stream, c);
    ASSERT_TRUE(graph.is_ok()) << graph.status().message();
    const int main = threads - threads / 2, side = threads / 2;
    for (int64_t replay = 1; replay <= 50; ++replay) {
      for (auto& a : c.arrived) a.store(0);
      ASSERT_TRUE((*graph)->replay(*on.stream).is_ok());
      const auto sum = [&](int64_t n) { return n * replay + n * (n - 1) / 2; };
      ASSERT_EQ(c.joined, sum(main) + sum(side)) << "replay " << replay;
    }
    EXPECT_EQ(c.alone.load(), 0);
    EXPECT_EQ(c.threads[0].load(), main);
    EXPECT_EQ(c.threads[1].load(), side);
    EXPECT_EQ((*graph)->stats().waits, 2u);
    // Timed, each thread has the launches of its half between those of all.
    Trace trace(threads, 100);
    for (auto& a : c.arrived) a.store(0);
    ASSERT_TRUE(on.stream->set_trace(&trace).is_ok());
    ASSERT_TRUE((*graph)->replay(*on.stream).is_ok());
    for (int t = 0; t < threads; ++t) {
      const auto events = trace.events(t);
      EXPECT_EQ(std::count_if(events.begin(), events.end(),
                              [](const TraceEvent& e) { return e.kind == TraceEvent::Kind::Kernel; }),
                4)
          << "thread " << t;
    }
  }
}

// What the crowded case has besides.
struct Crowd : Cells {
  std::atomic<int> slow{0};                 // the stream of which a thread is late
  std::array<std::atomic<int>, 2> added{};  // launches of add_up_and_tell that have ended, by stream
  std::atomic<int> held_up{0};
};

// One thread of one stream is late: it sleeps until the other stream is through, and then for some ms, in the last of
// which it computes, so that threads without a processor of their own give theirs away.
void come_late(const LaunchArgs& args, const LiveSizes&, int thread, int) {
  using namespace std::chrono_literals;
  auto& c = static_cast<Crowd&>(cells(args));
  const auto stream = static_cast<size_t>(args.scalar[0]);
  if (thread == 0 && c.slow.load() == static_cast<int>(stream)) {
    const auto late = std::chrono::steady_clock::now() + 20s;
    while (c.added[1 - stream].load() == 0 && std::chrono::steady_clock::now() < late) std::this_thread::sleep_for(1ms);
    c.held_up.fetch_add(c.added[1 - stream].load() == 0 ? 1 : 0);
    std::this_thread::sleep_for(3ms);
    for (const auto end = std::chrono::steady_clock::now() + 2ms; std::chrono::steady_clock::now() < end;) continue;
  }
  (stream == 0 ? c.main : c.side)[static_cast<size_t>(thread)] = c.begin + thread;
}

void add_up_and_tell(const LaunchArgs& args, const LiveSizes& live, int thread, int threads) {
  add_up(args, live, thread, threads);
  if (thread == threads - 1) static_cast<Crowd&>(cells(args)).added[args.scalar[0] != 0 ? 1 : 0].fetch_add(1);
}

// A half's barriers wait for nobody of the other half, the join waits for the last of all, and both hold up when the
// threads have to share processors. With 3 threads the late one is sometimes alone in its half.
TEST(CpuStreams, AHalfThatComesLateHoldsUpTheJoinAlone) {
  for (const int threads : {3, 4, kMost}) {
    SCOPED_TRACE(threads);
    const Opened on = opened(threads);
    ASSERT_TRUE(on.stream);
    Crowd c;
    auto graph = record(*on.device, *on.stream, c, come_late, add_up_and_tell);
    ASSERT_TRUE(graph.is_ok()) << graph.status().message();
    const int main = threads - threads / 2, side = threads / 2;
    for (int64_t replay = 1; replay <= 10; ++replay) {
      c.slow.store(static_cast<int>(replay % 2));
      for (auto& a : c.added) a.store(0);
      ASSERT_TRUE((*graph)->replay(*on.stream).is_ok());
      const auto sum = [&](int64_t n) { return n * replay + n * (n - 1) / 2; };
      ASSERT_EQ(c.joined, sum(main) + sum(side)) << "replay " << replay;
    }
    EXPECT_EQ(c.held_up.load(), 0);
  }
}

// Arguments of patched launches go where the launches have gone.
TEST(CpuStreams, PatchesFindTheirLaunches) {
  const Opened on = opened(2);
  ASSERT_TRUE(on.stream);
  Cells first, second;
  PatchId id = 0;
  auto graph = on.device->capture(*on.stream, [&](Recorder& r) -> Status {
    RETURN_IF_ERROR(r.launch(launch(start, first, 0, false)));
    RETURN_IF_ERROR(r.record(0, 1));
    RETURN_IF_ERROR(r.wait(1, 1));
    RETURN_IF_ERROR(r.launch(launch(start, first, 1, true)));
    ASSIGN_OR_RETURN(id, r.launch_patchable(launch(start, first, 0, true)));
    RETURN_IF_ERROR(r.record(1, 2));
    return r.wait(0, 2);
  });
  ASSERT_TRUE(graph.is_ok()) << graph.status().message();
  const Thunk other = launch(start, second, 0, true);
  const Patch patch{id, &other.args};
  ASSERT_TRUE((*graph)->replay(*on.stream, {&patch, 1}).is_ok());
  EXPECT_EQ(second.begin, 1);
  EXPECT_EQ(first.begin, 2);
}

// Where a launch counts what is taken of its threads' shares, as its last thread saw it; threads meet at its end.
struct Counts {
  std::atomic<int32_t>* of = nullptr;
  int left_over = 0;
};
void look(const LaunchArgs& args, const LiveSizes&, int thread, int threads) {
  if (thread != threads - 1) return;
  auto& counts = *static_cast<Counts*>(args.ptr[0]);
  counts.of = args.taken;
  for (int i = 0; args.taken && i < threads; ++i) counts.left_over += args.taken[i].load();
}
Thunk looks_at(Counts& counts) {
  Thunk t;
  t.part[0] = opaque(look);
  t.args.ptr[0] = &counts;
  return t;
}

TEST(CpuHelp, EveryLaunchOfSeveralThreadsHasCountsOfItsOwn) {
  for (const int threads : {1, 3}) {
    const Opened o = opened(threads);
    ASSERT_TRUE(o.stream);
    std::array<Counts, 4> seen;
    ASSERT_TRUE(o.stream->launch(looks_at(seen[0])).is_ok());
    PatchId patch{};
    const auto graph = o.device->capture(*o.stream, [&](Recorder& r) -> Status {
      RETURN_IF_ERROR(r.launch(looks_at(seen[1])));
      ASSIGN_OR_RETURN(patch, r.launch_patchable(looks_at(seen[2])));
      return Status::ok();
    });
    ASSERT_TRUE(graph.is_ok()) << graph.status().message();
    ASSERT_TRUE((*graph)->replay(*o.stream, {}).is_ok());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(seen[i].of != nullptr, threads > 1) << i;
    if (threads > 1) EXPECT_GE(std::abs(seen[1].of - seen[2].of), threads);
    // A patch brings arguments, and the launch keeps its counts.
    const LaunchArgs patched = looks_at(seen[3]).args;
    const Patch moved{.id = patch, .args = &patched};
    ASSERT_TRUE((*graph)->replay(*o.stream, {&moved, 1}).is_ok());
    EXPECT_EQ(seen[3].of, seen[2].of);
    for (const Counts& counts : seen) EXPECT_EQ(counts.left_over, 0);
  }
}

}  // namespace
}  // namespace reprise::cpu::cpu_streams_test
