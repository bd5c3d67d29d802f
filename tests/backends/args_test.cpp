// The table of launch arguments: it agrees with the ops' declarations, and every device's entries bind by it.
#include <gtest/gtest.h>

#include "nn/fused.h"
#include "ops/args/norms.h"
#include "ops/args/op_args.h"
#include "ops/args/rotation.h"
#include "ops/core.h"

namespace reprise {
namespace {

TEST(OpArgs, BeginWithTheOpsOperandsAndResults) {
  OpRegistry ops;
  register_core_ops(ops);
  nn::register_fused_ops(ops);
  for (const OpArgs& a : all_op_args()) {
    const OpSchema* op = ops.find(a.op);
    ASSERT_NE(op, nullptr) << a.op;
    EXPECT_EQ(a.operands, static_cast<int>(op->operands.size()) + op->results) << a.op;
    EXPECT_LT(a.typed, a.operands) << a.op;
    EXPECT_LT(a.other, a.operands) << a.op;
    EXPECT_EQ(&op_args(a.op), &a) << a.op << " stands in the table twice";
    EXPECT_LE(a.operands, LaunchArgs::kMaxPointers) << a.op;
  }
}

// Memory is set by number; the struct has it by name.
TEST(OpArgs, OperandsAreSetByNumberAndReadByName) {
  LaunchArgs args;
  std::array<float, 7> memory{};
  for (size_t i = 0; i < memory.size(); ++i) args.ptr[i] = &memory[i];
  const auto& a = args.as<SplitKvArgs>();
  EXPECT_EQ(static_cast<float*>(a.kv), &memory[0]);
  EXPECT_EQ(static_cast<const float*>(a.slots), &memory[3]);
  EXPECT_EQ(static_cast<float*>(a.same), &memory[6]);
  EXPECT_FALSE(args.as<SplitRowsArgs>().q.data);
}

TEST(OpArgs, BindingLeavesOperandsAlone) {
  OpRegistry ops;
  register_core_ops(ops);
  const std::vector<TensorType> in{{DType::BF16, {Dim(1, 1), Dim(4), Dim(8)}}, {DType::BF16, {Dim(8)}}};
  const Attrs attrs{{"eps", 1e-5}};
  LaunchArgs args;
  float x = 0;
  args.ptr[0] = &x;
  op_args("rms_norm").bind({ops.find("rms_norm"), in, in, &attrs, {}}, args);
  const auto& a = args.as<RmsNormArgs>();
  EXPECT_EQ(a.x.data, &x);
  EXPECT_FALSE(a.bias);
  LiveSizes live;
  live.value[1] = 3;
  EXPECT_EQ(a.rows.value(live), 12);
  EXPECT_EQ(a.width, 8);
  EXPECT_EQ(a.eps, 1e-5);
}

// What every device says of a call that no kernel of this dtype takes.
TEST(OpArgs, TheGuardNamesWhatTheCallHas) {
  OpRegistry ops;
  register_core_ops(ops);
  const TensorType x{DType::F32, {Dim(1, 1), Dim(8)}}, weight{DType::F32, {Dim(4), Dim(8)}};
  const TensorType wide{DType::F32, {Dim(1, 1), Dim(4)}};
  const std::vector<TensorType> in{x, weight}, out{wide};
  const Attrs attrs{{"out", std::string("same")}};
  const OpCall call{ops.find("linear"), in, out, &attrs, {}};
  EXPECT_TRUE(accepts_types(op_args("linear"), DType::F32, call).is_ok());
  EXPECT_EQ(accepts_types(op_args("linear"), {DType::BF16, DType::F32}, call).message(),
            "takes bf16 and gives f32; the call has f32 and f32");
  EXPECT_EQ(accepts_types(op_args("silu"), DType::BF16, {ops.find("silu"), {&x, 1}, {&x, 1}, &attrs, {}}).message(),
            "takes bf16, not silu(f32[s1, 8])");
}

}  // namespace
}  // namespace reprise
