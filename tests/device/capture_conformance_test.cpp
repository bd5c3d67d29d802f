// What every Device::capture, DeviceGraph and Patch must do (device/device.h, device/graph.h).
#include "device/conformance.h"

namespace reprise::conformance::capture_conformance_test {
namespace {

class Capture : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (device && !info().captures) GTEST_SKIP() << "the device does not capture";
  }
};
INSTANTIATE_TEST_SUITE_P(Device, Capture, testing::ValuesIn(subjects()), [](auto& i) { return i.param.name; });

class Patches : public Capture {
 protected:
  void SetUp() override {
    Capture::SetUp();
    if (device && !info().patches) GTEST_SKIP() << "the device does not patch";
  }
};
INSTANTIATE_TEST_SUITE_P(Device, Patches, testing::ValuesIn(subjects()), [](auto& i) { return i.param.name; });

constexpr size_t kN = 1037;

TEST_P(Capture, RunsNothing) {
  const Buffer x = floats(kN);
  write(x, ramp(kN));
  auto graph = capture({add(x, x, Dim(kN), 1), scale(x, x, Dim(kN), 2)});
  ASSERT_TRUE(graph);
  EXPECT_EQ(read(x), ramp(kN));
}

TEST_P(Capture, ReplayGivesWhatLaunchesGive) {
  const Buffer x = floats(kN), y = floats(kN), z = floats(kN), launched = floats(kN);
  write(x, ramp(kN));
  const std::vector<Thunk> body{add(x, y, Dim(kN), 1.25), scale(y, z, Dim(kN), 1.0 / 3), add(z, y, Dim(kN), -7),
                                copy(y, launched, Dim(kN))};
  for (const Thunk& t : body) EXPECT_OK(stream->launch(t));
  const std::vector<float> expected = read(launched);
  auto graph = capture(body);
  ASSERT_TRUE(graph);
  for (const Buffer* b : {&y, &z, &launched}) write(*b, std::vector<float>(kN, -1));
  EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(launched), expected);
}

TEST_P(Capture, ReplaysManyTimes) {
  const Buffer x = floats(kN);
  auto graph = capture({add(x, x, Dim(kN), 1), add(x, x, Dim(kN), 2)});
  ASSERT_TRUE(graph);
  for (int i = 0; i < 200; ++i) EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), std::vector<float>(kN, 600));
}

TEST_P(Capture, AReplayKeepsItsPlaceInTheStream) {
  const Buffer x = floats(kN), y = floats(kN);
  auto graph = capture({scale(x, x, Dim(kN), 2), add(x, x, Dim(kN), 1)});
  ASSERT_TRUE(graph);
  write(x, std::vector<float>(kN, 1));
  EXPECT_OK(stream->launch(add(x, x, Dim(kN), 4)));  // 5
  EXPECT_OK(graph->replay(*stream));                 // 11
  EXPECT_OK(stream->copy(y.data(), x.data(), x.size(), Copy::DeviceToDevice));
  EXPECT_OK(graph->replay(*stream));                   // 23
  EXPECT_OK(stream->launch(scale(x, x, Dim(kN), 3)));  // 69
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(y), std::vector<float>(kN, 11));
  EXPECT_EQ(read(x), std::vector<float>(kN, 69));
}

TEST_P(Capture, SeveralGraphsShareMemory) {
  const Buffer x = floats(kN), y = floats(kN);
  auto plus = capture({add(x, y, Dim(kN), 1), copy(y, x, Dim(kN))});
  auto times = capture({scale(x, y, Dim(kN), 2), copy(y, x, Dim(kN))});
  auto short_one = capture({add(x, y, Dim(9), 100), copy(y, x, Dim(9))});
  ASSERT_TRUE(plus && times && short_one);
  for (DeviceGraph* g : {plus.get(), times.get(), short_one.get(), times.get(), plus.get()})
    EXPECT_OK(g->replay(*stream));
  times.reset();  // the others do not care
  EXPECT_OK(plus->replay(*stream));
  EXPECT_OK(stream->synchronize());
  std::vector<float> expected(kN, (0 + 1) * 2 * 2 + 1 + 1);
  for (size_t i = 0; i < 9; ++i) expected[i] = ((0 + 1) * 2 + 100) * 2 + 1 + 1;
  EXPECT_EQ(read(x), expected);
}

TEST_P(Capture, ReplaysOnAnotherStream) {
  const Buffer x = floats(kN);
  auto graph = capture({add(x, x, Dim(kN), 1)});
  ASSERT_TRUE(graph);
  auto other = new_stream();
  EXPECT_OK(graph->replay(*other));
  EXPECT_OK(other->synchronize());
  EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), std::vector<float>(kN, 2));
}

TEST_P(Capture, LaunchesWithoutDependenciesMayRunTogether) {
  constexpr size_t kParts = 5, kPart = 211;
  const Buffer x = floats(kParts * kPart), y = floats(kPart);
  std::vector<Buffer> part;
  for (size_t i = 0; i < kParts; ++i) part.push_back(Buffer(x.as<float>() + i * kPart, kPart * sizeof(float), {}));
  std::vector<Thunk> body;
  for (size_t i = 0; i < kParts; ++i) {
    body.push_back(add(part[i], part[i], Dim(kPart), static_cast<double>(i + 1)));
    body.back().depends = i == 0;
  }
  for (size_t i = 0; i < kParts; ++i) {  // each reads what another one wrote
    body.push_back(add(part[kParts - 1 - i], i + 1 < kParts ? part[i] : y, Dim(kPart), 10));
    body.back().depends = true;
  }
  auto graph = capture(body);
  ASSERT_TRUE(graph);
  EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(y), std::vector<float>(kPart, 25));  // part 0 = 5 + 10, then 10 more
  std::vector<float> expected;
  for (float v : {15.f, 14.f, 13.f, 24.f, 5.f}) expected.insert(expected.end(), kPart, v);
  EXPECT_EQ(read(x), expected);
}

// a = x + 1; beside each other d = a + 5, and b = 2 a, c = 3 b; then 10 d in place of a.
struct Forked {
  Buffer x, a, b, c, d;
};

class Streams : public Capture {
 protected:
  // `joins`: the main stream waits for the side stream before it overwrites what that one reads.
  Result<std::unique_ptr<DeviceGraph>> fork(const Forked& f, bool joins) {
    const auto on = [](uint8_t which, Thunk t) {
      t.stream = which;
      return t;
    };
    return device->capture(*stream, [&](Recorder& r) -> Status {
      RETURN_IF_ERROR(r.launch(add(f.x, f.a, Dim(kN), 1)));
      RETURN_IF_ERROR(r.record(0, 1));
      RETURN_IF_ERROR(r.launch(add(f.a, f.d, Dim(kN), 5)));
      RETURN_IF_ERROR(r.wait(1, 1));
      RETURN_IF_ERROR(r.launch(on(1, scale(f.a, f.b, Dim(kN), 2))));
      RETURN_IF_ERROR(r.launch(on(1, scale(f.b, f.c, Dim(kN), 3))));
      RETURN_IF_ERROR(r.record(1, 2));
      if (joins) RETURN_IF_ERROR(r.wait(0, 2));
      RETURN_IF_ERROR(r.launch(scale(f.d, f.a, Dim(kN), 10)));
      return joins ? Status::ok() : r.wait(0, 2);
    });
  }
  Forked memory_of_fork() {
    Forked f{floats(kN), floats(kN), floats(kN), floats(kN), floats(kN)};
    write(f.x, ramp(kN));
    return f;
  }
};
INSTANTIATE_TEST_SUITE_P(Device, Streams, testing::ValuesIn(subjects()), [](auto& i) { return i.param.name; });

TEST_P(Streams, ForkAndJoin) {
  const Forked f = memory_of_fork();
  auto graph = fork(f, true);
  ASSERT_TRUE(graph) << graph.status().message();
  EXPECT_EQ((*graph)->stats().launches, 5u);
  EXPECT_EQ((*graph)->stats().waits, 2u);
  for (int i = 0; i < 5; ++i) {
    for (const Buffer* b : {&f.a, &f.b, &f.c, &f.d}) write(*b, std::vector<float>(kN, -1));
    EXPECT_OK((*graph)->replay(*stream));
    EXPECT_OK(stream->synchronize());
    EXPECT_EQ(read(f.c), ramp(kN, [](float v) { return 6 * v + 6; }));
    EXPECT_EQ(read(f.a), ramp(kN, [](float v) { return 10 * v + 60; }));
  }
}

// A device that runs streams beside each other, or as if, shows that one does not wait.
TEST_P(Streams, AMissingWaitShows) {
  const std::string subject = GetParam().name;
  if (subject != "null_strict" && subject != "ascend_sim")
    GTEST_SKIP() << subject << " need not run streams beside each other, and one order is as right as another";
  const Forked f = memory_of_fork();
  auto graph = fork(f, false);
  ASSERT_TRUE(graph) << graph.status().message();
  bool right = true;
  for (int i = 0; i < 5 && right; ++i) {
    EXPECT_OK((*graph)->replay(*stream));
    const Status done = stream->synchronize();
    right = done.is_ok() && read(f.c) == ramp(kN, [](float v) { return 6 * v + 6; });
  }
  EXPECT_FALSE(right);
}

TEST_P(Streams, AStreamThatIsNotJoinedIsAnError) {
  const Buffer x = floats(kN);
  const auto forked = [&](Recorder& r) -> Status {
    Thunk side = add(x, x, Dim(kN), 1);
    side.stream = 1;
    RETURN_IF_ERROR(r.record(0, 1));
    RETURN_IF_ERROR(r.wait(1, 1));
    return r.launch(side);
  };
  auto graph = device->capture(*stream, forked);
  ASSERT_FALSE(graph);
  EXPECT_NE(graph.status().message().find("stream 1 is not joined"), std::string::npos) << graph.status().message();
  auto next = capture({add(x, x, Dim(kN), 2)});
  ASSERT_TRUE(next);
  EXPECT_OK(next->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), std::vector<float>(kN, 2));
}

TEST_P(Capture, SizesAreLiveOrFrozen) {
  const Buffer x = floats(64);
  LiveSizes live;
  live.value[1] = 20;
  stream->set_live_sizes(live);
  auto graph = capture({add(x, x, Dim(3, 1), 1)});
  ASSERT_TRUE(graph);
  live.value[1] = 7;
  stream->set_live_sizes(live);
  EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  std::vector<float> expected(64, 0);
  std::fill_n(expected.begin(), 3 * (info().live_sizes ? 7 : 20), 1.f);
  EXPECT_EQ(read(x), expected);
}

TEST_P(Capture, AFailingBodyLeavesNothingBehind) {
  const Buffer x = floats(kN);
  const size_t live_bytes = device->pool().stats().live_bytes;
  for (int i = 0; i < 3; ++i) {
    auto graph = device->capture(*stream, [&](Recorder& recorder) -> Status {
      for (int k = 0; k < i; ++k) RETURN_IF_ERROR(recorder.launch(add(x, x, Dim(kN), 1)));
      return invalid("the body gave up after {} launches", i);
    });
    ASSERT_FALSE(graph);
    EXPECT_EQ(graph.status().code(), Code::Invalid);
    EXPECT_EQ(graph.status().message(), fmt::format("the body gave up after {} launches", i));
  }
  EXPECT_EQ(device->pool().stats().live_bytes, live_bytes);
  EXPECT_OK(stream->launch(add(x, x, Dim(kN), 1)));
  auto graph = capture({add(x, x, Dim(kN), 2)});
  ASSERT_TRUE(graph);
  EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), std::vector<float>(kN, 3));
}

TEST_P(Capture, OfNothingReplaysNothing) {
  auto graph = capture({});
  ASSERT_TRUE(graph);
  EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(graph->stats().launches, 0u);
  EXPECT_EQ(graph->stats().replays, 1u);
}

TEST_P(Capture, CountsLaunchesReplaysAndCopies) {
  const Buffer x = floats(kN);
  auto graph = capture(std::vector<Thunk>(301, add(x, x, Dim(kN), 1)));
  ASSERT_TRUE(graph);
  EXPECT_EQ(graph->stats().launches, 301u);
  EXPECT_EQ(graph->stats().copies_to_host, 0u);
  EXPECT_EQ(graph->stats().replays, 0u);
  for (int i = 0; i < 3; ++i) EXPECT_OK(graph->replay(*stream));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(graph->stats().replays, 3u);
  EXPECT_EQ(stream->stats().replays, 3u);
  EXPECT_EQ(stream->stats().launches, 0u);
  EXPECT_EQ(read(x), std::vector<float>(kN, 903));
}

// Three launches of which the middle one is patchable: a = x + 1, b = x + 2, c = b + 3.
struct Patched {
  Buffer x, a, b, c;
  std::unique_ptr<DeviceGraph> graph;
  PatchId id = 0;
  LaunchArgs args;  // of the patchable launch
};

class PatchedGraph : public Patches {
 protected:
  Patched make() {
    Patched p{floats(kN), floats(kN), floats(kN), floats(kN), nullptr, 0, {}};
    write(p.x, ramp(kN));
    const Thunk middle = add(p.x, p.b, Dim(kN), 2);
    p.args = middle.args;
    auto graph = device->capture(*stream, [&](Recorder& recorder) -> Status {
      RETURN_IF_ERROR(recorder.launch(add(p.x, p.a, Dim(kN), 1)));
      ASSIGN_OR_RETURN(p.id, recorder.launch_patchable(middle));
      return recorder.launch(add(p.b, p.c, Dim(kN), 3));
    });
    EXPECT_TRUE(graph) << graph.status().message();
    p.graph = std::move(*graph);
    return p;
  }
  void expect(const Patched& p, float a, float b, float c) {
    EXPECT_OK(stream->synchronize());
    EXPECT_EQ(read(p.x), ramp(kN));
    for (auto& [buffer, by] : {std::pair{&p.a, a}, {&p.b, b}, {&p.c, c}}) {
      const float plus = by;
      EXPECT_EQ(read(*buffer), ramp(kN, [plus](float v) { return v + plus; }));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Device, PatchedGraph, testing::ValuesIn(subjects()), [](auto& i) { return i.param.name; });

TEST_P(PatchedGraph, APatchChangesOneLaunchAndStays) {
  Patched p = make();
  EXPECT_OK(p.graph->replay(*stream));
  expect(p, 1, 2, 5);
  p.args.scalar[0] = 20;
  Patch patch{p.id, &p.args};
  EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
  expect(p, 1, 20, 23);
  p.args.scalar[0] = 30;  // a patch is taken over; its arguments may go
  EXPECT_OK(p.graph->replay(*stream));
  expect(p, 1, 20, 23);
  EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
  expect(p, 1, 30, 33);
}

TEST_P(PatchedGraph, ReplaysInFlightKeepTheirArguments) {
  Patched p = make();
  const Buffer first = floats(kN);
  p.args.scalar[0] = 10;
  Patch patch{p.id, &p.args};
  EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
  EXPECT_OK(stream->copy(first.data(), p.c.data(), first.size(), Copy::DeviceToDevice));
  p.args.scalar[0] = 40;
  EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
  expect(p, 1, 40, 43);
  EXPECT_EQ(read(first), ramp(kN, [](float v) { return v + 13; }));
}

// F16: what a replay is patched with is taken over when it is asked for, also where the device cannot start it yet.
TEST_P(PatchedGraph, APatchIsTakenOverWhileTheReplayIsHeldUp) {
  Patched p = make();
  const Buffer first = floats(kN), gate = floats(kN);
  const auto other = new_stream();
  const auto opened = device->make_event();
  ASSERT_TRUE(opened);
  for (int i = 0; i < 50; ++i) EXPECT_OK(other->launch(add(gate, gate, Dim(kN), 1)));
  EXPECT_OK(other->record(**opened));
  EXPECT_OK(stream->wait(**opened));
  Patch patch{p.id, &p.args};
  for (const double value : {10.0, 40.0}) {
    p.args.scalar[0] = value;
    EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
    p.args.scalar[0] = -1;  // too late for that one
    if (value == 10.0) EXPECT_OK(stream->copy(first.data(), p.c.data(), first.size(), Copy::DeviceToDevice));
  }
  expect(p, 1, 40, 43);
  EXPECT_EQ(read(first), ramp(kN, [](float v) { return v + 13; }));
  EXPECT_EQ(read(gate), std::vector<float>(kN, 50)) << "what held it up is done";
}

TEST_P(PatchedGraph, APatchMovesPointersAndSizes) {
  Patched p = make();
  EXPECT_OK(p.graph->replay(*stream));
  const Buffer other = floats(2 * kN);
  write(other, std::vector<float>(2 * kN, 1000));
  p.args.ptr[0] = other.data();
  p.args.dim[0] = Dim(5);
  Patch patch{p.id, &p.args};
  EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
  std::vector<float> b = ramp(kN, [](float v) { return v + 2; });
  std::fill_n(b.begin(), 5, 1002.f);
  EXPECT_EQ(read(p.b), b);
  p.args.ptr[1] = other.data();  // longer than what was recorded
  p.args.dim[0] = Dim(2 * kN);
  EXPECT_OK(p.graph->replay(*stream, {&patch, 1}));
  EXPECT_EQ(read(other), std::vector<float>(2 * kN, 1002));
  EXPECT_EQ(read(p.b), b);
}

TEST_P(PatchedGraph, WrongPatchesAreRefusedBeforeAnythingRuns) {
  Patched p = make();
  EXPECT_OK(p.graph->replay(*stream));
  expect(p, 1, 2, 5);
  write(p.a, ramp(kN));
  write(p.c, ramp(kN));
  LaunchArgs changed = p.args;
  changed.scalar[0] = 50;
  for (PatchId wrong : {p.id + 1, p.id + 100, ~PatchId{0}}) {
    const Patch patches[] = {{p.id, &changed}, {wrong, &changed}};
    const Status s = p.graph->replay(*stream, patches);
    EXPECT_EQ(s.code(), Code::Invalid);
    EXPECT_NE(s.message().find(std::to_string(wrong)), std::string::npos) << s.message();
  }
  const Patch empty{p.id, nullptr};
  EXPECT_EQ(p.graph->replay(*stream, {&empty, 1}).code(), Code::Invalid);
  expect(p, 0, 2, 0);  // nothing ran
  EXPECT_OK(p.graph->replay(*stream));
  expect(p, 1, 2, 5);  // and nothing was changed
  EXPECT_EQ(p.graph->stats().replays, 2u);
}

TEST_P(PatchedGraph, GraphsArePatchedApart) {
  Patched p = make(), q = make();
  LaunchArgs args = p.args;
  args.scalar[0] = 7;
  const Patch twice[] = {{p.id, &q.args}, {p.id, &args}};  // the last one counts
  EXPECT_OK(p.graph->replay(*stream, twice));
  EXPECT_OK(q.graph->replay(*stream));
  expect(p, 1, 7, 10);
  expect(q, 1, 2, 5);
}

TEST_P(Patches, ManyAtOnce) {
  constexpr size_t kLaunches = 33;
  std::vector<Buffer> out;
  std::vector<Thunk> body;
  const Buffer x = floats(kN);
  for (size_t i = 0; i < kLaunches; ++i) {
    out.push_back(floats(kN));
    body.push_back(add(x, out[i], Dim(kN), 1));
    body.back().depends = i % 4 == 0;
  }
  std::vector<PatchId> id(kLaunches, ~PatchId{0});
  auto graph = device->capture(*stream, [&](Recorder& recorder) -> Status {
    for (size_t i = 0; i < kLaunches; ++i) {
      if (i % 2 == 0) {
        RETURN_IF_ERROR(recorder.launch(body[i]));
        continue;
      }
      ASSIGN_OR_RETURN(id[i], recorder.launch_patchable(body[i]));
    }
    return Status::ok();
  });
  ASSERT_TRUE(graph) << graph.status().message();
  std::vector<Patch> patches;
  for (size_t i = 1; i < kLaunches; i += 2) {
    body[i].args.scalar[0] = static_cast<double>(i);
    patches.push_back({id[i], &body[i].args});
  }
  EXPECT_OK((*graph)->replay(*stream, patches));
  EXPECT_OK(stream->synchronize());
  for (size_t i = 0; i < kLaunches; ++i)
    EXPECT_EQ(read(out[i]), std::vector<float>(kN, i % 2 ? static_cast<float>(i) : 1.f)) << i;
}

}  // namespace
}  // namespace reprise::conformance::capture_conformance_test
