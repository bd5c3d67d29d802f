// Programs on the null device: order, binding errors, live sizes, capture.
#include <gtest/gtest.h>

#include "backends/all.h"
#include "backends/null/null_device.h"
#include "compile/compiled_model.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"

namespace reprise::compiled_model_test {
namespace {

// Kernels, and records of them, that fail while `fails` is set.
class FailingDevice final : public Device {
 public:
  explicit FailingDevice(const bool& fails) : fails_(fails) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  MemoryPool& pool() override { return inner_->pool(); }
  MemoryPool& host_pool() override { return inner_->host_pool(); }
  Result<std::unique_ptr<Stream>> make_stream() override { return inner_->make_stream(); }
  Result<std::unique_ptr<Event>> make_event() override { return inner_->make_event(); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return inner_->capture(stream, [&](Recorder& recorder) {
      FailingRecorder mine(recorder, fails_);
      return body(mine);
    });
  }

 private:
  struct FailingRecorder final : Recorder {
    FailingRecorder(Recorder& to, const bool& fails) : inner(to), full(fails) {}
    Status launch(const Thunk& thunk) override {
      return full ? error(Code::Device, "no room in the graph") : inner.launch(thunk);
    }
    Result<PatchId> launch_patchable(const Thunk& thunk) override { return inner.launch_patchable(thunk); }
    Status record(uint8_t stream, uint32_t mark) override { return inner.record(stream, mark); }
    Status wait(uint8_t stream, uint32_t mark) override { return inner.wait(stream, mark); }
    Recorder& inner;
    const bool& full;
  };

  const bool& fails_;
  std::unique_ptr<Device> inner_ =
      null::make_null_device({.call = [this](OpaqueKernel, const LaunchArgs&, const LiveSizes&) {
        return fails_ ? error(Code::Device, "no such chip") : Status::ok();
      }});
};

struct CompiledModelTest : testing::Test {
  std::vector<uint32_t> launched;
  Platform platform;

  CompiledModelTest() {
    platform.ops = std::make_unique<OpRegistry>();
    register_core_ops(*platform.ops);
    platform.kernels = std::make_unique<KernelRegistry>();
    null::register_null(*platform.kernels, *platform.ops);
    platform.device = null::make_null_device({&launched});
  }

  Staging staging;
  Buffer arena;
  std::vector<std::string> heads;

  Result<std::unique_ptr<CompiledModel>> compile(Graph g, const KernelSelection& selection, const ParamStore& params,
                                                 GraphMode mode) {
    MemoryPlan plan = plan_memory(g, selection.workspace);
    staging.declare(g, {});
    RETURN_IF_ERROR(staging.allocate(*platform.device));
    ASSIGN_OR_RETURN(arena, platform.device->pool().allocate(plan.arena_bytes, "activations"));
    CompileRequest request;
    request.platform = &platform;
    request.params = &params;
    request.staging = &staging;
    request.arena = arena.data();
    request.mode = mode;
    request.heads = heads;
    return CompiledModel::compile(std::move(g), selection, std::move(plan), request);
  }

  Graph graph() {
    Tracer t("g", *platform.ops);
    Tensor x = t.input("x", {DType::F32, {t.symbol("T", 9), Dim(8)}});
    Tensor y = nn::linear(x, t.param("w", {DType::F32, {Dim(8), Dim(8)}}));
    t.output("y", nn::add(nn::flatten(nn::heads(y, 4)), x));
    return std::move(*t.finish());
  }
};

TEST_F(CompiledModelTest, LaunchesNodesInOrderAndSkipsViews) {
  Graph g = graph();
  auto selection = select_kernels(g, platform);
  ASSERT_TRUE(selection.is_ok()) << selection.status().message();
  auto params = ParamStore::create(selection->params, platform.device->pool());
  ASSERT_TRUE(params.is_ok());
  auto model = compile(std::move(g), *selection, *params, GraphMode::Eager);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_EQ((*model)->launches(), 2u);
  auto stream = platform.device->make_stream();
  LiveSizes live;
  live.value[1] = 5;
  ASSERT_TRUE((*model)->run(live, **stream).is_ok());
  EXPECT_EQ(launched.size(), 2u);
  EXPECT_LT(launched[0], launched[1]);
  EXPECT_EQ((*model)->output("y")->size[0], 5);
  EXPECT_EQ(staging.input("x")->size[0], 9);
  EXPECT_FALSE((*model)->output("z").is_ok());
  EXPECT_FALSE(staging.input("z").is_ok());
}

// A kernel's error says which launch it is of, where it is launched and where it is recorded. A replay is one piece of
// work, so its error says which launches those were, for which size.
TEST_F(CompiledModelTest, AFailedLaunchNamesOpKernelAndSizes) {
  bool fails = true;
  platform.device = std::make_unique<FailingDevice>(fails);
  Graph g = graph();
  auto selection = select_kernels(g, platform);
  ASSERT_TRUE(selection.is_ok()) << selection.status().message();
  auto params = ParamStore::create(selection->params, platform.device->pool());
  ASSERT_TRUE(params.is_ok());
  auto model = compile(std::move(g), *selection, *params, GraphMode::Whole);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  auto stream = platform.device->make_stream();
  LiveSizes live;
  live.value[1] = 5;
  const auto expect = [&](const Status& failed, const std::string& message) {
    EXPECT_EQ(failed.code(), Code::Device);
    EXPECT_EQ(failed.message(), message);
  };
  const std::string place = "linear %2 (null.linear) at T = 5: ";
  expect((*model)->run(live, **stream), place + "no such chip");
  expect((*model)->capture(5, live), place + "no room in the graph");
  EXPECT_FALSE((*model)->has_capture(5));
  fails = false;
  ASSERT_TRUE((*model)->capture(5, live).is_ok());
  ASSERT_TRUE((*model)->replay(5, live, **stream).is_ok());
  fails = true;
  live.value[1] = 3;
  expect((*model)->replay(5, live, **stream), "the replay of g for 5, linear %2 to add %5, at T = 3: no such chip");
  EXPECT_EQ((*model)->counters().replays, 1u);
}

TEST_F(CompiledModelTest, LiveSizesBeyondTheBoundAreAnError) {
  Graph g = graph();
  auto selection = select_kernels(g, platform);
  auto params = ParamStore::create(selection->params, platform.device->pool());
  auto model = compile(std::move(g), *selection, *params, GraphMode::Eager);
  auto stream = platform.device->make_stream();
  LiveSizes live;
  live.value[1] = 10;
  const Status s = (*model)->run(live, **stream);
  EXPECT_NE(s.message().find("T = 10"), std::string::npos) << s.message();
}

// A body of two calls, the head "a" of one, "b" of two, and one that both need.
TEST_F(CompiledModelTest, HeadsRunWhenTheyAreAskedFor) {
  heads = {"a", "b", "absent"};
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 9), Dim(8)}});
  Tensor hidden = nn::silu(nn::add(x, x));
  t.output("hidden", hidden);
  Tensor both = nn::add(hidden, x);
  t.output("a", nn::silu(both));
  t.output("b", nn::add(nn::mul(both, x), x));
  Graph g = std::move(*t.finish());
  auto selection = select_kernels(g, platform);
  ASSERT_TRUE(selection.is_ok()) << selection.status().message();
  const ParamStore params;
  auto model = compile(std::move(g), *selection, params, GraphMode::Whole);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  // This device freezes sizes, so heads are launched at the live ones and the body alone is recorded.
  std::vector<std::string> found;
  for (const Piece& p : (*model)->pieces()) {
    found.push_back(fmt::format("{} {} {}", p.thunks.size(), p.captured, p.heads == kAllHeads ? 0 : p.heads));
    EXPECT_TRUE(p.thunks.front().depends || &p == &(*model)->pieces().front());
  }
  EXPECT_EQ(found, (std::vector<std::string>{"2 true 0", "1 false 3", "1 false 1", "2 false 2"}));
  EXPECT_EQ((*model)->launches(), 6u);
  EXPECT_EQ((*model)->launches(1), 4u);
  EXPECT_EQ((*model)->launches(2), 5u);
  LiveSizes live;
  live.value[1] = 5;
  ASSERT_TRUE((*model)->capture(5, live).is_ok());
  EXPECT_EQ((*model)->counters().captures, 1u);
  auto stream = platform.device->make_stream();
  for (const bool replay : {false, true}) {
    for (const HeadMask asked : {1u, 2u, 3u, 4u}) {
      launched.clear();
      const Status ran = replay ? (*model)->replay(5, live, **stream, asked) : (*model)->launch(live, **stream, asked);
      ASSERT_TRUE(ran.is_ok()) << ran.message();
      ASSERT_TRUE((*stream)->synchronize().is_ok());
      EXPECT_EQ(launched.size(), (*model)->launches(asked)) << asked;
      EXPECT_TRUE((*model)->output("hidden").is_ok());
      EXPECT_EQ((*model)->output("a").is_ok(), (asked & 1) != 0);
      EXPECT_EQ((*model)->output("b").is_ok(), (asked & 2) != 0);
    }
  }
  EXPECT_NE((*model)->output("a").status().message().find("did not compute \"a\""), std::string::npos);
}

// Inputs are sent to memory that the host cannot touch, in one copy, and nothing comes back by itself.
TEST_F(CompiledModelTest, StagesInputsWhereTheHostDoesNotSeeTheDevice) {
  null::NullDeviceOptions strict;
  strict.host_visible = false;
  strict.deferred = true;
  platform.device = null::make_null_device(strict);
  platform.kernels = std::make_unique<KernelRegistry>();
  KernelEntry e;
  e.name = "null.add";
  e.op = "add";
  e.device = DeviceKind::Null;
  e.accepts = [](const OpCall&) { return Status::ok(); };
  e.bind = [](const OpCall& c, LaunchArgs& args) { args.dim[0] = c.in[0].shape[0]; };
  e.part[0] = null::opaque([](const LaunchArgs& args, const LiveSizes& live) {
    for (int64_t i = 0; i < args.dim[0].value(live); ++i)
      static_cast<float*>(args.ptr[2])[i] = static_cast<float*>(args.ptr[0])[i] + static_cast<float*>(args.ptr[1])[i];
  });
  platform.kernels->add(std::move(e));
  Tracer t("g", *platform.ops);
  const Dim n = t.symbol("T", 9);
  Tensor x = t.input("x", {DType::F32, {n}}), y = t.input("y", {DType::F32, {n}});
  t.output("z", nn::add(nn::add(x, y), y));
  Graph g = std::move(*t.finish());
  auto selection = select_kernels(g, platform);
  ASSERT_TRUE(selection.is_ok()) << selection.status().message();
  ParamStore params;
  auto model = compile(std::move(g), *selection, params, GraphMode::Whole);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  for (int64_t size : {9, 5}) {
    LiveSizes frozen;
    frozen.value[1] = size;
    ASSERT_TRUE((*model)->capture(size, frozen).is_ok());
  }
  auto stream = platform.device->make_stream();
  for (int64_t live_rows : {9, 5}) {
    for (int64_t i = 0; i < 9; ++i) {
      static_cast<float*>(staging.input("x")->data)[i] = static_cast<float>(i * live_rows);
      static_cast<float*>(staging.input("y")->data)[i] = 0.5f;
    }
    LiveSizes live;
    live.value[1] = live_rows;
    ASSERT_TRUE((*model)->replay(live_rows, live, **stream).is_ok());
    const TensorView z = *(*model)->output("z");
    std::vector<float> found(static_cast<size_t>(z.elements()));
    ASSERT_EQ(z.elements(), live_rows);
    ASSERT_TRUE((*stream)->copy(found.data(), z.data, found.size() * 4, Copy::DeviceToHost).is_ok());
    ASSERT_TRUE((*stream)->synchronize().is_ok());
    for (int64_t i = 0; i < live_rows; ++i)
      EXPECT_EQ(found[static_cast<size_t>(i)], static_cast<float>(i * live_rows) + 1);
  }
  EXPECT_EQ((*stream)->stats().copies_to_device, 2u);
  EXPECT_EQ((*stream)->stats().copies_to_host, 2u);  // those of this test
  EXPECT_EQ((*stream)->stats().replays, 2u);
}

// F59: kernels say which integers they take as indices, and the shape functions leave both open.
TEST_F(CompiledModelTest, KernelsSayWhichIndicesTheyTake) {
  auto gather = [&](DType index) {
    Tracer t("g", *platform.ops);
    Tensor x = t.input("x", {DType::F32, {Dim(8), Dim(8)}});
    t.output("y", nn::index_select(x, t.input("i", {index, {t.symbol("T", 9)}})));
    return t.finish();
  };
  for (DType takes : {DType::I32, DType::I64}) {
    platform.kernels = std::make_unique<KernelRegistry>();
    null::register_null(*platform.kernels, *platform.ops, takes);
    for (DType given : {DType::I32, DType::I64}) {
      auto graph = gather(given);
      ASSERT_TRUE(graph.is_ok()) << graph.status().message();
      auto selection = select_kernels(*graph, platform);
      EXPECT_EQ(selection.is_ok(), takes == given);
      if (takes == given) continue;
      EXPECT_NE(selection.status().message().find(fmt::format("null.index_select: takes {} indices, and index is {}",
                                                              dtype_name(takes), dtype_name(given))),
                std::string::npos)
          << selection.status().message();
    }
  }
  EXPECT_FALSE(gather(DType::F32).is_ok());
  EXPECT_FALSE(gather(DType::I8).is_ok());
}

TEST_F(CompiledModelTest, AnOpWithoutAKernelNamesItself) {
  Platform bare;
  bare.ops = std::make_unique<OpRegistry>();
  register_core_ops(*bare.ops);
  bare.kernels = std::make_unique<KernelRegistry>();
  bare.device = null::make_null_device();
  Graph g = graph();
  auto selection = select_kernels(g, bare);
  ASSERT_FALSE(selection.is_ok());
  EXPECT_NE(selection.status().message().find("no null kernel for linear"), std::string::npos)
      << selection.status().message();
}

TEST_F(CompiledModelTest, UnknownDevicesAreRefusedByName) {
  DeviceOptions options;
  options.kind = DeviceKind::Ascend;
  auto p = make_platform(options);
  if (!p.is_ok()) {
    // No runtime, or a runtime without a card; both say why.
    EXPECT_EQ(p.status().code(), Code::Unsupported);
    EXPECT_TRUE(p.status().message().starts_with("no Ascend ")) << p.status().message();
  }
  options.ascend_runtime = "real";
  EXPECT_NE(make_platform(options).status().message().find("allowed: system, sim"), std::string::npos);
  options.kind = DeviceKind::Cuda;
  p = make_platform(options);
  if (!p.is_ok()) {
    // Either the build has no CUDA, or the machine has no GPU; both say why.
    EXPECT_EQ(p.status().code(), Code::Unsupported);
    EXPECT_TRUE(p.status().message().starts_with("no CUDA device: ") ||
                p.status().message().find("\"cuda\" is not in this build: ") != std::string::npos)
        << p.status().message();
  }
  options.kind = DeviceKind::Cpu;
  options.isa = "avx1024";
  EXPECT_NE(make_platform(options).status().message().find("baseline"), std::string::npos);
  options.isa = "auto";
  options.threads = -1;
  EXPECT_NE(make_platform(options).status().message().find("allowed"), std::string::npos);
}

}  // namespace
}  // namespace reprise::compiled_model_test
