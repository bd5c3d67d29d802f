// sum_order(): every op of the CPU that adds up is described, and the words are true: sums made again by them, number
// by number, have the bits of the kernels.
#include "backends/sum_order.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/chip_remarks.h"
#include "backends/op_runner.h"

namespace reprise::cpu::sum_order_test {
namespace {

// Ops that add nothing up, or no more than two numbers, or integers in the order of their indices.
const std::set<std::string> kWithoutSums{"add",
                                         "argmax",
                                         "concat",
                                         "copy",
                                         "embedding",
                                         "embedding_blocks",
                                         "finite_rows",
                                         "gelu",
                                         "gelu_tanh",
                                         "add_groups",
                                         "swiglu_clamped",
                                         "index_select",
                                         "kv_write",
                                         "latent_forms",
                                         "latent_write",
                                         "mask_logits",
                                         "mask_own_logits",
                                         "draw_tops",
                                         "moe_route",
                                         "mul",
                                         "position_scale",
                                         "quantize_dynamic",
                                         "quantize_groups",
                                         "quantize_static",
                                         "reciprocal",
                                         "relu_squared",
                                         "rope",
                                         "rope_table",
                                         "rope_table_axes",
                                         "row_write",
                                         "scale",
                                         "scale_rows",
                                         "sigmoid",
                                         "silu",
                                         "silu_mul",
                                         "silu_mul_quant",
                                         "silu_mul_quant_static",
                                         "slice",
                                         "softcap",
                                         "widen"};

TEST(SumOrder, EveryOpOfTheCpuThatAddsUpIsDescribed) {
  KernelRegistry kernels;
  register_cpu(kernels, Isa::Baseline);
  DeviceInfo device;
  device.kind = DeviceKind::Cpu;
  std::set<std::string> with, without;
  for (const auto& entry : kernels.entries()) {
    const bool described = !sum_order(device, entry->op, DType::F32).empty();
    (described ? with : without).insert(entry->op);
  }
  for (const std::string& op : without) EXPECT_TRUE(kWithoutSums.contains(op)) << op;
  for (const std::string& op : with) EXPECT_FALSE(kWithoutSums.contains(op)) << op;
}

TEST(SumOrderName, DiffersWhereSumsMay) {
  EXPECT_EQ(sum_order_name(DeviceKind::Cuda, "sm_90"), "sm90/tc16/page128");
  EXPECT_EQ(sum_order_name(DeviceKind::Cuda, "sm_100"), "sm100/tc16/page128");
  EXPECT_EQ(sum_order_name(DeviceKind::Null, "none"), "");
  EXPECT_EQ(sum_order_name(DeviceKind::Cpu, "no such set"), "");
  DeviceInfo device;
  device.kind = DeviceKind::Cpu;
  std::map<std::string, std::string> products;  // by the name of the order
  for (const Isa isa : built_isas()) {
    device.isa = isa_name(isa);
    const std::string name = sum_order_name(DeviceKind::Cpu, device.isa);
    EXPECT_FALSE(name.empty()) << device.isa;
    // One name, one description.
    const auto known = products.emplace(name, sum_order(device, "linear", DType::BF16));
    EXPECT_EQ(known.first->second, sum_order(device, "linear", DType::BF16)) << device.isa;
    EXPECT_EQ(name.starts_with("amx32x2"), has_tiles(isa)) << device.isa;
  }
  const auto cpu = make_cpu_device({.threads = 1, .isa = parse_isa("auto").value()});
  ASSERT_TRUE(cpu.is_ok());
  EXPECT_EQ((*cpu)->info().order, sum_order_name(DeviceKind::Cpu, (*cpu)->info().isa));
}

TEST(ChipRemarks, DataCentreBlackwellIsSlowWithInt8) {
  for (const int architecture : {80, 86, 89, 90, 120}) EXPECT_TRUE(cuda::int8_remark(architecture).empty());
  for (const int architecture : {100, 103})
    EXPECT_NE(cuda::int8_remark(architecture).find("int8"), std::string_view::npos) << architecture;
}

class SumOrderTest : public testing::TestWithParam<Isa> {
 protected:
  // Fused where the instruction set has that.
  static float multiply_add(float a, float b, float sum) {
#if defined(__x86_64__)
    if (GetParam() == Isa::Baseline) return sum + a * b;
#endif
    return std::fma(a, b, sum);
  }
};

// "one chain of multiply-adds in fp32 for each number, over K in ascending order, from 0".
TEST_P(SumOrderTest, ALinearIsOneChainOverK) {
  OpRunner runner(GetParam());
  const TestTensor x = random_tensor(DType::F32, {5, 77}, 1), w = random_tensor(DType::F32, {70, 77}, 2);
  const TestTensor y = runner.run("linear", {x, w}, {{"out", std::string("f32")}})[0];
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t n = 0; n < 70; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < 77; ++k) sum = multiply_add(x.as<float>()[t * 77 + k], w.as<float>()[n * 77 + k], sum);
      ASSERT_EQ(std::bit_cast<uint32_t>(sum), std::bit_cast<uint32_t>(y.as<float>()[t * 70 + n])) << t << " " << n;
    }
}

// "bf16 goes in pairs of K, the odd one first".
TEST_P(SumOrderTest, ALinearInBf16TakesTheOddOneOfAPairFirst) {
  if (has_tiles(GetParam())) GTEST_SKIP() << "this set has another order: tiles_test";
  OpRunner runner(GetParam());
  const TestTensor x = random_tensor(DType::BF16, {3, 77}, 3), w = random_tensor(DType::BF16, {66, 77}, 4);
  const TestTensor y = runner.run("linear", {x, w}, {{"out", std::string("f32")}})[0];
  const auto at = [](const TestTensor& t, int64_t i) { return bf16_to_float(t.as<uint16_t>()[i]); };
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t n = 0; n < 66; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < 77; k += 2) {
        if (k + 1 < 77) sum = multiply_add(at(x, t * 77 + k + 1), at(w, n * 77 + k + 1), sum);
        sum = multiply_add(at(x, t * 77 + k), at(w, n * 77 + k), sum);
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(sum), std::bit_cast<uint32_t>(y.as<float>()[t * 66 + n])) << t << " " << n;
    }
}

// "number i of a row goes to partial sum i % 16, in ascending order; the 16 are added as a tree".
TEST_P(SumOrderTest, ANormAddsInSixteenPartsAndATree) {
  OpRunner runner(GetParam());
  constexpr int64_t kWidth = 75;
  const TestTensor x = random_tensor(DType::F32, {4, kWidth}, 5);
  TestTensor w = random_tensor(DType::F32, {kWidth}, 6);
  const TestTensor y = runner.run("rms_norm", {x, w}, {{"eps", 1e-5}})[0];
  for (int64_t r = 0; r < 4; ++r) {
    const float* row = x.as<float>() + r * kWidth;
    std::array<float, 16> parts{};
    for (int64_t i = 0; i < kWidth; ++i)
      parts[static_cast<size_t>(i % 16)] = multiply_add(row[i], row[i], parts[static_cast<size_t>(i % 16)]);
    for (size_t step = 8; step > 0; step /= 2)
      for (size_t i = 0; i < step; ++i) parts[i] += parts[i + step];
    const float factor = 1.0f / std::sqrt(parts[0] / static_cast<float>(kWidth) + 1e-5f);
    for (int64_t i = 0; i < kWidth; ++i) {
      const float want = row[i] * factor * w.as<float>()[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(y.as<float>()[r * kWidth + i])) << r << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SumOrderTest, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::sum_order_test
