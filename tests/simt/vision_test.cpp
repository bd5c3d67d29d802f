// Models with a vision tower on CUDA: rows of the tower and logits against HF transformers (tests/data/vision), eager
// and from captured graphs, on the SIMT executor always and on a GPU where there is one.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "simt/gpu.h"
#include "simt/kernels.h"
#include "support/tiny_models.h"
#include "support/vision_golden.h"

namespace reprise::simt::vision_test {
namespace {

using engine::GraphPolicy;
using testing_support::EngineSetup;
using testing_support::vision_folder;
using testing_support::VisionGolden;

struct Param {
  std::string model;
  bool gpu;
};

class CudaVision : public testing::TestWithParam<Param> {
 protected:
  static Result<std::unique_ptr<engine::Engine>> open(GraphPolicy policy) {
    EngineSetup s;
    s.device = DeviceKind::Cuda;
    if (!GetParam().gpu) s.cuda = &stand_in();
    s.policy = policy;
    s.chunk = 64;
    s.rows = 2;
    return testing_support::open_engine(vision_folder(GetParam().model), s);
  }

  static void expect_near(std::span<const float> got, std::span<const float> want, double relative) {
    ASSERT_EQ(got.size(), want.size());
    double largest = 0;
    for (const float w : want) largest = std::max(largest, std::fabs(static_cast<double>(w)));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], relative * largest) << i;
  }
};

TEST_P(CudaVision, RowsAndLogitsAreThoseOfTransformers) {
  const VisionGolden golden(GetParam().model);
  std::vector<float> expected;
  for (const GraphPolicy policy : {GraphPolicy::Off, GraphPolicy::Required}) {
    auto e = open(policy);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    engine::Sequence s(golden.get<int32_t>("tokens"));
    s.set_images(golden.images());
    ASSERT_TRUE((*e)->reserve(s, s.size()).is_ok());
    engine::StepItem item;
    item.sequence = &s;
    item.count = std::min<int64_t>(s.size(), 64);
    item.logits = 1;
    const auto logits = (*e)->step({&item, 1});
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    const auto want = golden.get<float>("logits");
    expect_near(*logits, std::span(want).subspan(static_cast<size_t>(item.count - 1) * logits->size(), logits->size()),
                1e-4);
    if (expected.empty()) expected.assign(logits->begin(), logits->end());
    EXPECT_TRUE(testing_support::same_bits(expected, *logits));
    const auto images = golden.images();
    for (size_t i = 0; i < images.size(); ++i) {
      const auto rows = (*e)->image_rows(*images[i].input);
      ASSERT_TRUE(rows.is_ok()) << rows.status().message();
      const auto compare = [&](const std::string& name, const std::vector<uint8_t>& bytes) {
        std::vector<float> numbers(bytes.size() / sizeof(float));
        std::memcpy(numbers.data(), bytes.data(), bytes.size());
        expect_near(numbers, golden.get<float>(name), 2e-5);
      };
      compare("rows." + std::to_string(i), (*rows)->rows);
      for (size_t k = 0; k < (*rows)->deep.size(); ++k)
        compare("deep." + std::to_string(i) + "." + std::to_string(k), (*rows)->deep[k]);
    }
    EXPECT_EQ((*e)->tower()->counters().replays > 0, policy == GraphPolicy::Required);
    (*e)->release(s);
  }
}

std::vector<Param> cuda_vision_params() {
  std::vector<Param> out;
  for (const char* model : {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"}) {
    out.push_back({model, false});
    if (no_gpu().empty()) out.push_back({model, true});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaVision, testing::ValuesIn(cuda_vision_params()),
                         [](const auto& i) { return i.param.model + (i.param.gpu ? "_gpu" : "_executor"); });

}  // namespace
}  // namespace reprise::simt::vision_test
