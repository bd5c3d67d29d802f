// Programs on the null device: order, binding errors, live sizes, capture.
#include <gtest/gtest.h>

#include "backends/all.h"
#include "backends/null/null_device.h"
#include "compile/compiled_model.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"

namespace reprise {
namespace {

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
  options.kind = DeviceKind::Cuda;
  auto p = make_platform(options);
  ASSERT_FALSE(p.is_ok());
  EXPECT_NE(p.status().message().find("available: cpu"), std::string::npos);
  options.kind = DeviceKind::Cpu;
  options.isa = "avx1024";
  EXPECT_NE(make_platform(options).status().message().find("baseline"), std::string::npos);
  options.isa = "auto";
  options.threads = -1;
  EXPECT_NE(make_platform(options).status().message().find("allowed"), std::string::npos);
}

}  // namespace
}  // namespace reprise
