// Which ops a suite takes, in which order, and what a run of it says. Times are never judged here.
#include "measurement/op_suite.h"

#include <gtest/gtest.h>

#include "backends/all.h"

namespace reprise::measurement::op_suite_test {
namespace {

using Names = std::vector<std::string>;

TEST(OpSuite, AWholeNameMeansThatOpAlone) {
  const Names all{"linear", "linear_add", "rms_norm"};
  EXPECT_EQ(ops_named("", all), all);
  EXPECT_EQ(ops_named("linear", all), Names{"linear"});
  EXPECT_EQ(ops_named("lin", all), (Names{"linear", "linear_add"}));
  EXPECT_TRUE(ops_named("mlp", all).empty());
}

TEST(OpSuite, WorkGoesOpByOpAndThenByDtype) {
  const nn::FusedOps fused = nn::fused_ops();
  const OpSelection two{{"rms_norm", "silu_mul"}, "launch-bound", {DType::BF16, DType::F32}, {1, 5}};
  const OpPlan plan = plan_ops(two, fused);
  Names got;
  for (const OpWork& w : plan.work) {
    EXPECT_EQ(w.op.model, "launch-bound");
    const std::string name = fmt::format("{} {}", w.op.op, dtype_name(w.dtype));
    if (got.empty() || got.back() != name) got.push_back(name);
  }
  EXPECT_EQ(got, (Names{"rms_norm bf16", "rms_norm f32", "silu_mul bf16", "silu_mul f32"}));
  EXPECT_EQ(plan.tokens, (std::vector<int64_t>{1, 5}));
  OpSelection of_all = two;
  of_all.model = "";
  EXPECT_GT(plan_ops(of_all, fused).work.size(), plan.work.size());
}

Result<Platform> platform_of_one_thread() {
  DeviceOptions device;
  device.threads = 1;
  auto platform = make_platform(device);
  if (platform.is_ok()) nn::register_fused_ops(*platform->ops);
  return platform;
}

TEST(OpSuite, ReplaysEachSizeSoOften) {
  auto platform = platform_of_one_thread();
  ASSERT_TRUE(platform.is_ok()) << platform.status().message();
  const nn::FusedOps fused = nn::fused_ops();
  const OpPlan plan = plan_ops({{"silu_mul"}, "launch-bound", {DType::F32}, {1, 5}}, fused);
  std::vector<int64_t> sizes;
  const Status done = replay_ops(plan, *platform, fused, 3, [&](const OpWork& w, int64_t tokens, int64_t calls) {
    EXPECT_EQ(w.dtype, DType::F32);
    EXPECT_GT(calls, 0);
    EXPECT_EQ(calls % 3, 0);
    sizes.push_back(tokens);
  });
  EXPECT_TRUE(done.is_ok()) << done.message();
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 5}));
}

TEST(OpSuite, LeavesOutWhatHasNoKernel) {
  auto platform = platform_of_one_thread();
  ASSERT_TRUE(platform.is_ok()) << platform.status().message();
  platform->kernels = std::make_unique<KernelRegistry>();
  const nn::FusedOps fused = nn::fused_ops();
  const OpPlan plan = plan_ops({{"silu_mul"}, "launch-bound", {DType::F32}, {1, 5}}, fused);
  ASSERT_FALSE(plan.work.empty());
  int64_t replayed = 0;
  const Status done = replay_ops(plan, *platform, fused, 3, [&](const OpWork&, int64_t, int64_t) { ++replayed; });
  EXPECT_TRUE(done.is_ok()) << done.message();
  EXPECT_EQ(replayed, 0);
  // The reason, as a report has it.
  const auto bench = OpBench::make(plan.work[0].op, DType::F32, fused, *platform);
  ASSERT_FALSE(bench.is_ok());
  EXPECT_EQ(bench.status().code(), Code::Unsupported);
  EXPECT_NE(bench.status().message().find("nothing is registered for silu_mul on cpu"), std::string::npos)
      << bench.status().message();
}

}  // namespace
}  // namespace reprise::measurement::op_suite_test
