// Kernels that read operands on the host: bound to where the host writes, read again at every replay, launched where
// nothing can be patched.
#include <gtest/gtest.h>

#include "compile/compiled_model.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"
#include "support/taking_device.h"

namespace reprise::host_operands_test {
namespace {

using testing_support::Taken;
using testing_support::TakingDevice;
using testing_support::TakingOptions;

constexpr int64_t kRows = 4, kWidth = 2;

void gather(const LaunchArgs& args, const LiveSizes& live) {
  const auto* index = static_cast<const int32_t*>(args.host[0]);
  const auto* x = static_cast<const float*>(args.ptr[0]);
  auto* y = static_cast<float*>(args.ptr[2]);
  for (int64_t r = 0; r < args.dim[0].value(live); ++r)
    for (int64_t i = 0; i < kWidth; ++i) y[r * kWidth + i] = x[index[r] * kWidth + i];
}

void add(const LaunchArgs& args, const LiveSizes& live) {
  const auto *a = static_cast<const float*>(args.ptr[0]), *b = static_cast<const float*>(args.ptr[1]);
  for (int64_t i = 0; i < args.dim[0].value(live) * kWidth; ++i) static_cast<float*>(args.ptr[2])[i] = a[i] + b[i];
}

// y = index_select(x, index) + more, with the index read on the host and `more` outside.
struct HostOperandsTest : testing::Test {
  Taken seen;
  Platform platform;
  Staging staging;
  Buffer arena, outside, moved;
  ParamStore params;
  std::unique_ptr<CompiledModel> model;
  std::unique_ptr<Stream> stream;

  void make_platform(bool patches, int host_operand = 1, bool free_patches = true) {
    platform.ops = std::make_unique<OpRegistry>();
    register_core_ops(*platform.ops);
    platform.kernels = std::make_unique<KernelRegistry>();
    platform.device = std::make_unique<TakingDevice>(TakingOptions{patches, free_patches, true}, seen);
    KernelEntry e;
    e.name = "null.index_select";
    e.op = "index_select";
    e.device = DeviceKind::Null;
    e.accepts = [](const OpCall&) { return Status::ok(); };
    e.bind = [](const OpCall& c, LaunchArgs& args) { args.dim[0] = c.out[0].shape[0]; };
    e.part[0] = null::opaque(gather);
    e.host_operands = {host_operand};
    platform.kernels->add(e);
    e.name = "null.add";
    e.op = "add";
    e.part[0] = null::opaque(add);
    e.host_operands.clear();
    platform.kernels->add(e);
  }

  Status compile(GraphMode mode) {
    Tracer t("g", *platform.ops);
    const Dim rows = t.symbol("R", kRows);
    Tensor x = t.input("x", {DType::F32, {Dim(kRows), Dim(kWidth)}});
    Tensor index = t.input("index", {DType::I32, {rows}});
    Tensor more = t.input("more", {DType::F32, {rows, Dim(kWidth)}});
    t.output("y", nn::add(nn::index_select(x, index), more));
    ASSIGN_OR_RETURN(Graph g, t.finish());
    ASSIGN_OR_RETURN(const KernelSelection selection, select_kernels(g, platform));
    ASSIGN_OR_RETURN(outside, platform.device->pool().allocate(kRows * kWidth * 4, "more"));
    ASSIGN_OR_RETURN(moved, platform.device->pool().allocate(kRows * kWidth * 4, "more"));
    MemoryPlan plan = plan_memory(g, selection.workspace);
    CompileRequest request;
    request.external = {{"more", outside.data()}};
    staging.declare(g, request.external);
    RETURN_IF_ERROR(staging.allocate(*platform.device));
    ASSIGN_OR_RETURN(arena, platform.device->pool().allocate(plan.arena_bytes, "activations"));
    request.platform = &platform;
    request.params = &params;
    request.staging = &staging;
    request.arena = arena.data();
    request.mode = mode;
    request.size_symbols = {1};
    ASSIGN_OR_RETURN(model, CompiledModel::compile(std::move(g), selection, std::move(plan), request));
    ASSIGN_OR_RETURN(stream, platform.device->make_stream());
    return Status::ok();
  }

  // Rows and indices of step `step`, and whether y is what they say.
  LiveSizes stage(int step, int64_t rows) {
    auto* x = static_cast<float*>(staging.input("x")->data);
    for (int64_t i = 0; i < kRows * kWidth; ++i) x[i] = static_cast<float>(100 * step + i);
    auto* index = static_cast<int32_t*>(staging.input("index")->data);
    for (int64_t r = 0; r < kRows; ++r) index[r] = static_cast<int32_t>((r + step) % kRows);
    LiveSizes live;
    live.value[1] = rows;
    return live;
  }
  void expect_gathered(int step, int64_t rows, float more = 0) {
    auto y = model->output("y");
    ASSERT_TRUE(y.is_ok()) << y.status().message();
    std::vector<float> found(static_cast<size_t>(rows * kWidth));
    ASSERT_TRUE(stream->copy(found.data(), y->data, found.size() * 4, Copy::DeviceToHost).is_ok());
    ASSERT_TRUE(stream->synchronize().is_ok());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < kWidth; ++i)
        EXPECT_EQ(found[static_cast<size_t>(r * kWidth + i)],
                  static_cast<float>(100 * step + (r + step) % kRows * kWidth + i) + more)
            << "step " << step << " row " << r;
  }
};

TEST_F(HostOperandsTest, EveryReplaySeesWhatTheHostWroteBeforeIt) {
  make_platform(true);
  const Status compiled = compile(GraphMode::Whole);
  ASSERT_TRUE(compiled.is_ok()) << compiled.message();
  for (int64_t size : {4, 2}) ASSERT_TRUE(model->capture(size, stage(9, size)).is_ok());
  EXPECT_EQ(seen.recorded, 2);
  size_t steps = 0;
  for (int step = 0; step < 5; ++step)
    for (int64_t size : {4, 2}) {
      ASSERT_TRUE(model->replay(size, stage(step, size), *stream).is_ok());
      expect_gathered(step, size);
      EXPECT_EQ(seen.patches, ++steps) << "one launch of each graph, at every replay";
    }
  EXPECT_EQ(model->counters().captures, 2u);
  EXPECT_EQ(model->counters().launches, 0u);
}

TEST_F(HostOperandsTest, UncapturedLaunchesReadThemToo) {
  make_platform(true);
  ASSERT_TRUE(compile(GraphMode::Eager).is_ok());
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(model->run(stage(step, 3), *stream).is_ok());
    expect_gathered(step, 3);
  }
}

TEST_F(HostOperandsTest, MovedInputsArePatchedOnceBesideThem) {
  make_platform(true);
  ASSERT_TRUE(compile(GraphMode::Whole).is_ok());
  ASSERT_TRUE(model->capture(4, stage(9, 4)).is_ok());
  std::vector<float> ones(kRows * kWidth, 1.0f);
  ASSERT_TRUE(stream->copy(moved.data(), ones.data(), ones.size() * 4, Copy::HostToDevice).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  size_t expected = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      ASSERT_TRUE(model->rebind({{"more", moved.data()}}).is_ok());
    }
    ASSERT_TRUE(model->replay(4, stage(step, 4), *stream).is_ok());
    expect_gathered(step, 4, step < 2 ? 0.0f : 1.0f);
    expected += step == 2 ? 2 : 1;
    EXPECT_EQ(seen.patches, expected) << "step " << step;
  }
}

TEST_F(HostOperandsTest, MovedInputsAreCapturedAnewWherePatchesAreNotFree) {
  make_platform(true, 1, false);
  ASSERT_TRUE(compile(GraphMode::Whole).is_ok());
  ASSERT_TRUE(model->capture(4, stage(9, 4)).is_ok());
  std::vector<float> ones(kRows * kWidth, 1.0f);
  ASSERT_TRUE(stream->copy(moved.data(), ones.data(), ones.size() * 4, Copy::HostToDevice).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      ASSERT_TRUE(model->rebind({{"more", moved.data()}}).is_ok());
    }
    ASSERT_TRUE(model->replay(4, stage(step, 4), *stream).is_ok());
    expect_gathered(step, 4, step < 2 ? 0.0f : 1.0f);
    EXPECT_EQ(seen.patches, static_cast<size_t>(step) + 1);
    EXPECT_EQ(model->counters().captures, step < 2 ? 1u : 2u);
  }
}

TEST_F(HostOperandsTest, WithoutPatchesSuchAKernelIsLaunched) {
  make_platform(false);
  for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise}) {
    model.reset();
    seen = {};
    staging = {};
    ASSERT_TRUE(compile(mode).is_ok());
    ASSERT_EQ(model->pieces().size(), 2u) << graph_mode_name(mode);
    EXPECT_FALSE(model->pieces()[0].captured);
    EXPECT_TRUE(model->pieces()[1].captured);
    ASSERT_TRUE(model->capture(4, stage(9, 4)).is_ok());
    for (uint64_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(model->replay(4, stage(static_cast<int>(step), 4), *stream).is_ok());
      expect_gathered(static_cast<int>(step), 4);
      EXPECT_EQ(model->counters().launches, step + 1);
      EXPECT_EQ(model->counters().replays, step + 1);
    }
    EXPECT_EQ(seen.recorded, 0);
    EXPECT_EQ(seen.patches, 0u);
  }
}

TEST_F(HostOperandsTest, OnlyStagedInputsWillDo) {
  make_platform(true);
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {Dim(kRows), Dim(kWidth)}});
  Tensor index = t.input("index", {DType::I32, {Dim(kRows)}});
  t.output("y", nn::add(nn::index_select(x, index), x));
  Graph g = std::move(*t.finish());
  auto selection = select_kernels(g, platform);
  ASSERT_TRUE(selection.is_ok()) << selection.status().message();
  Buffer elsewhere = std::move(*platform.device->pool().allocate(64, "index"));
  MemoryPlan plan = plan_memory(g, selection->workspace);
  CompileRequest request;
  request.external = {{"index", elsewhere.data()}};
  staging.declare(g, request.external);
  ASSERT_TRUE(staging.allocate(*platform.device).is_ok());
  arena = std::move(*platform.device->pool().allocate(plan.arena_bytes, "activations"));
  request.platform = &platform;
  request.params = &params;
  request.staging = &staging;
  request.arena = arena.data();
  auto made = CompiledModel::compile(std::move(g), *selection, std::move(plan), request);
  ASSERT_FALSE(made.is_ok());
  EXPECT_NE(made.status().message().find("null.index_select reads operand index of"), std::string::npos)
      << made.status().message();
  EXPECT_NE(made.status().message().find("here it is \"index\", which lives elsewhere"), std::string::npos)
      << made.status().message();
}

TEST_F(HostOperandsTest, ResultsOfOtherOpsAreNoneEither) {
  make_platform(true, 0);
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {Dim(kRows), Dim(kWidth)}});
  t.output("y", nn::index_select(nn::add(x, x), t.input("index", {DType::I32, {Dim(kRows)}})));
  Graph g = std::move(*t.finish());
  auto selection = select_kernels(g, platform);
  ASSERT_TRUE(selection.is_ok()) << selection.status().message();
  MemoryPlan plan = plan_memory(g, selection->workspace);
  CompileRequest request;
  staging.declare(g, {});
  ASSERT_TRUE(staging.allocate(*platform.device).is_ok());
  arena = std::move(*platform.device->pool().allocate(plan.arena_bytes, "activations"));
  request.platform = &platform;
  request.params = &params;
  request.staging = &staging;
  request.arena = arena.data();
  auto made = CompiledModel::compile(std::move(g), *selection, std::move(plan), request);
  ASSERT_FALSE(made.is_ok());
  EXPECT_NE(made.status().message().find("operand x of"), std::string::npos) << made.status().message();
  EXPECT_NE(made.status().message().find("here it is the result of add"), std::string::npos) << made.status().message();
}

}  // namespace
}  // namespace reprise::host_operands_test
