// linear_silu_mul on the CUDA device: the bits of its parts for any number of rows and any widths, with a library that
// takes the product and without one; and where the rewrite fires, and why not.
#include <gtest/gtest.h>

#include <limits>

#include "engine/engine.h"
#include "see/phase_view.h"
#include "simt/both_devices.h"
#include "simt/kernels.h"
#include "support/tiny_models.h"

namespace reprise::simt::linear_silu_mul_test {
namespace {

using namespace cpu;

TestTensor by_parts(const TestTensor& x, const TestTensor& w) {
  return on_cuda().run("silu_mul", {on_cuda().run("linear", {x, w})[0]})[0];
}

TEST(CudaLinearSiluMul, HasTheBitsOfItsParts) {
  for (const DType t : {DType::BF16, DType::F16})
    // Rows of every tile, and past it; widths that fill no tile, or just one; depths that are no multiple of 16 bytes.
    for (auto [rows, depth, width] : {std::array<int64_t, 3>{1, 64, 16},
                                      {3, 72, 25},
                                      {16, 264, 33},
                                      {17, 200, 5},
                                      {33, 136, 70},
                                      {64, 64, 32},
                                      {70, 24, 1},
                                      {2, 13, 11}}) {
      const TestTensor x = random_tensor(t, {rows, depth}, 1, -2, 2), w = random_tensor(t, {2 * width, depth}, 2);
      const TestTensor want = by_parts(x, w);
      for (const Order order : {Order::Ascending, Order::Shuffled, Order::Descending})
        expect_same_bits(on_cuda(order).run("linear_silu_mul", {x, w})[0], want,
                         fmt::format("{} rows of {}, {} wide", rows, depth, width));
    }
}

TEST(CudaLinearSiluMul, ARowHasTheSameBitsInAnyCompany) {
  const TestTensor x = random_tensor(DType::BF16, {140, 48}, 3), w = random_tensor(DType::BF16, {40, 48}, 4);
  const TestTensor all = by_parts(x, w);
  for (int64_t rows = 1; rows <= 140; rows += rows == 80 ? 47 : 1)
    expect_same_bits(
        on_cuda(rows % 2 ? Order::Shuffled : Order::Ascending).run("linear_silu_mul", {rows_of(x, 0, rows), w})[0],
        rows_of(all, 0, rows), fmt::format("{} rows", rows));
}

// Sums that are huge, tiny or no numbers go through silu as they do alone.
TEST(CudaLinearSiluMul, SpecialNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const TestTensor x = tensor_of(DType::BF16, {6, 2}, {1, 0, 300, 1, -300, 1, inf, 1, -inf, 1, 1e-30, 1e-30});
  const TestTensor w = tensor_of(DType::BF16, {4, 2}, {1, 0.5, -1, 1e-20, 3, 1, 0, 2});
  expect_same_bits(on_cuda().run("linear_silu_mul", {x, w})[0], by_parts(x, w));
}

const PassReport* report_of(engine::Engine& e, const std::string& phase, const std::string& name) {
  const auto view = see::view_of_phase(e, phase);
  if (!view.is_ok()) return nullptr;
  for (const PassReport& p : view->passes->passes)
    if (p.name == name) return &p;
  return nullptr;
}

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, DType dtype, bool cuda = true) {
  testing_support::EngineSetup s;
  if (cuda) {
    s.device = DeviceKind::Cuda;
    s.cuda = &stand_in();
  }
  s.dtype = dtype;
  s.policy = engine::GraphPolicy::Off;
  s.context = 16;
  return testing_support::open_engine(testing_support::tiny_model_path(model), s);
}

TEST(CudaLinearSiluMul, FiresInEveryLayerOfAGatedModel) {
  for (const char* model : {"llama_gqa3_tied", "qwen3_untied"}) {
    auto e = open(model, DType::BF16);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    for (const char* phase : {"decode", "prefill"}) {
      const PassReport* p = report_of(**e, phase, "linear_silu_mul");
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(p->matched, (*e)->config().num_hidden_layers) << model << " " << phase;
    }
  }
}

TEST(CudaLinearSiluMul, WhereItDoesNotFireTheReasonIsReported) {
  // No kernel of fp32; on the CPU none at all.
  for (const bool cuda : {true, false}) {
    auto e = open("llama_gqa3_tied", cuda ? DType::F32 : DType::BF16, cuda);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const PassReport* p = report_of(**e, "decode", "linear_silu_mul");
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(p->matched, 0);
    ASSERT_FALSE(p->refused.empty());
    EXPECT_NE(p->refused[0].reason.find("linear_silu_mul"), std::string::npos) << p->refused[0].reason;
    EXPECT_GT(report_of(**e, "decode", "silu_mul")->matched, 0);
  }
}

}  // namespace
}  // namespace reprise::simt::linear_silu_mul_test
