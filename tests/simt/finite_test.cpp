// Steps whose numbers break: the CUDA device says so of each row, in one word that comes with the tokens, and the step
// ends with the words it ends with on the CPU, where the host looks at the rows themselves.
#include <gtest/gtest.h>

#include "device/host_copy.h"
#include "simt/both_devices.h"
#include "simt/kernels.h"
#include "support/tiny_models.h"

namespace reprise::simt::finite_test {
namespace {

using testing_support::EngineSetup;

TEST(CudaKernels, FiniteRowsAreTheCpus) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType t : cpu::kDTypes)
    for (const int64_t width : {1, 15, 16, 300, 4100}) {
      cpu::TestTensor x = cpu::random_tensor(t, {7, width}, 1, -60000, 60000);
      x.set(1 * width, nan);
      x.set(2 * width + width - 1, inf);
      x.set(3 * width + width / 2, -inf);
      x.set(4 * width, 65504);
      x.set(5 * width, -0.0);
      expect_equal("finite_rows", {x});
      const auto said = on_cuda().run("finite_rows", {x})[0];
      EXPECT_EQ(cpu::to_doubles(said), (std::vector<double>{1, 0, 0, 0, 1, 1, 1})) << dtype_name(t) << " " << width;
    }
}

struct Case {
  bool cuda;
  engine::GraphPolicy policy;
  engine::StepOutput output;
};

class CudaFinite : public testing::TestWithParam<Case> {};

TEST_P(CudaFinite, ABrokenCacheEndsTheStep) {
  EngineSetup setup;
  if (GetParam().cuda) {
    setup.device = DeviceKind::Cuda;
    setup.cuda = &stand_in();
  }
  setup.policy = GetParam().policy;
  setup.rows = 2;
  setup.chunk = 16;
  setup.context = 32;
  auto opened = testing_support::open_engine(testing_support::tiny_model_path("qwen3_tied"), setup);
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  engine::Engine& e = **opened;
  engine::Sequence good({5, 6, 7}), bad({9, 8, 7, 6});
  for (engine::Sequence* s : {&good, &bad}) ASSERT_TRUE(e.reserve(*s, 8).is_ok());
  const auto item = [&](engine::Sequence& s) {
    engine::StepItem i{&s, s.size() - s.cached(), 1};
    if (GetParam().output == engine::StepOutput::Sampled) i.draw = Draw{.scale = 1, .seed = 4};
    return i;
  };
  const auto step = [&](std::vector<engine::StepItem> items) -> Result<std::vector<int32_t>> {
    ASSIGN_OR_RETURN(const auto ticket, e.submit(items, GetParam().output));
    ASSIGN_OR_RETURN(const auto result, e.wait(ticket));
    return std::vector<int32_t>(result.tokens.begin(), result.tokens.end());
  };
  const StreamStats before = e.stream_stats();
  const auto first = step({item(good), item(bad)});
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  if (GetParam().cuda) {
    EXPECT_EQ(e.stream_stats().copies_to_host - before.copies_to_host, 2u);
    EXPECT_EQ(e.stream_stats().bytes_to_host - before.bytes_to_host, 2 * 2 * sizeof(int32_t))
        << "a token and a word of each row";
  }
  const auto stream = e.device().make_stream();
  ASSERT_TRUE(stream.is_ok());
  const auto& caches = e.kv_pool().shape().caches;
  for (size_t c = 0; c < caches.size(); ++c)
    ASSERT_TRUE(
        fill_bytes(e.device(), **stream, e.kv_pool().page(c, bad.pages()[0]), 0xff, caches[c].page_bytes).is_ok());
  good.append(first->at(0));
  bad.append(first->at(1));
  const auto broken = step({item(good), item(bad)});
  ASSERT_FALSE(broken.is_ok());
  EXPECT_EQ(broken.status().message(), "a hidden state is not a finite number; something broke in the model");
  good.append(1);
  const auto alone = step({item(good)});
  EXPECT_TRUE(alone.is_ok()) << "the other sequence's numbers are sound: " << alone.status().message();
  for (engine::Sequence* s : {&good, &bad}) e.release(*s);
}

INSTANTIATE_TEST_SUITE_P(Steps, CudaFinite,
                         testing::Values(Case{false, engine::GraphPolicy::Required, engine::StepOutput::NextTokens},
                                         Case{true, engine::GraphPolicy::Off, engine::StepOutput::NextTokens},
                                         Case{true, engine::GraphPolicy::Required, engine::StepOutput::NextTokens},
                                         Case{true, engine::GraphPolicy::Off, engine::StepOutput::Sampled},
                                         Case{true, engine::GraphPolicy::Required, engine::StepOutput::Sampled}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return fmt::format("{}_{}_{}", c.cuda ? "executor" : "cpu",
                                              c.policy == engine::GraphPolicy::Off ? "eager" : "captured",
                                              c.output == engine::StepOutput::Sampled ? "sampled" : "greedy");
                         });

}  // namespace
}  // namespace reprise::simt::finite_test
