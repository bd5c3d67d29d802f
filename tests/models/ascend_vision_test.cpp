// Models with a vision tower on the Ascend backend over the simulator: rows of the tower, deepstack rows and logits
// against HF transformers (tests/data/vision), in every graph mode with the same bits, and which images are replayed.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "support/ascend_engine.h"
#include "support/vision_golden.h"

namespace reprise::ascend_vision_test {
namespace {

using engine::GraphPolicy;
using testing_support::AscendOptions;
using testing_support::same_bits;
using testing_support::vision_folder;
using testing_support::VisionGolden;

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const AscendOptions& options = {}) {
  return testing_support::open_ascend(vision_folder(model), options);
}

// The logits behind each step of a prompt, which is computed in steps of `chunks` tokens.
std::vector<float> logits_of(engine::Engine& e, const VisionGolden& golden, std::span<const int64_t> chunks) {
  engine::Sequence s(golden.get<int32_t>("tokens"));
  s.set_images(golden.images());
  EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
  std::vector<float> out;
  for (size_t i = 0; s.uncached() > 0; ++i) {
    engine::StepItem item;
    item.sequence = &s;
    item.count = std::min(s.uncached(), chunks[std::min(i, chunks.size() - 1)]);
    item.logits = 1;
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) return {};
    out.insert(out.end(), logits->begin(), logits->end());
  }
  e.release(s);
  return out;
}

std::vector<float> numbers_of(const std::vector<uint8_t>& bytes, DType dtype) {
  std::vector<float> out(bytes.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, &bytes[2 * i], 2);
    out[i] = dtype == DType::BF16 ? bf16_to_float(half) : half_to_float(half);
  }
  return out;
}

// The furthest number of the largest.
double distance(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  double most = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::isnan(got[i]) ? INFINITY : std::fabs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
  }
  return most / largest;
}

class AscendVision : public testing::TestWithParam<std::string> {};

TEST_P(AscendVision, RowsOfTheTowerAreThoseOfTransformers) {
  const VisionGolden golden(GetParam());
  for (const DType dtype : {DType::BF16, DType::F16}) {
    SCOPED_TRACE(dtype_name(dtype));
    auto e = open(GetParam(), {.dtype = dtype});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto images = golden.images();
    for (size_t i = 0; i < images.size(); ++i) {
      const auto rows = (*e)->image_rows(*images[i].input);
      ASSERT_TRUE(rows.is_ok()) << rows.status().message();
      const auto compare = [&](const std::string& name, const std::vector<uint8_t>& bytes) {
        EXPECT_LE(distance(numbers_of(bytes, dtype), golden.get<float>(name)), 2e-2) << name;
      };
      compare("rows." + std::to_string(i), (*rows)->rows);
      for (size_t k = 0; k < (*rows)->deep.size(); ++k)
        compare("deep." + std::to_string(i) + "." + std::to_string(k), (*rows)->deep[k]);
    }
  }
}

TEST_P(AscendVision, LogitsAreThoseOfTransformersHoweverThePromptIsCut) {
  const VisionGolden golden(GetParam());
  const auto want = golden.get<float>("logits");
  for (const DType dtype : {DType::BF16, DType::F16}) {
    SCOPED_TRACE(dtype_name(dtype));
    // The tower's roundings come before the text model's, which alone are allowed 2e-2 in bf16.
    const float bound = dtype == DType::BF16 ? 4e-2f : 1e-2f;
    auto e = open(GetParam(), {.dtype = dtype});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto vocab = static_cast<size_t>((*e)->vocab_size());
    const auto size = static_cast<int64_t>(want.size() / vocab);
    float largest = 0;
    for (const float w : want) largest = std::max(largest, std::fabs(w));
    for (const std::vector<int64_t>& chunks : {std::vector<int64_t>{128}, {7}, {8, 1, 1, 4, 1}}) {
      const auto got = logits_of(**e, golden, chunks);
      ASSERT_FALSE(got.empty());
      int64_t position = 0;
      for (size_t i = 0; i < got.size() / vocab; ++i) {
        position = std::min(size, position + chunks[std::min(i, chunks.size() - 1)]);
        for (size_t v = 0; v < vocab; ++v)
          ASSERT_NEAR(got[i * vocab + v], want[static_cast<size_t>(position - 1) * vocab + v], bound * largest)
              << "position " << position << ", chunks of " << chunks.front();
      }
    }
    EXPECT_EQ((*e)->tower()->computed(), golden.images().size());
  }
}

TEST_P(AscendVision, AllModesGiveTheSameBits) {
  const VisionGolden golden(GetParam());
  std::vector<float> expected;
  for (const auto& [policy, prefill] :
       {std::pair{GraphPolicy::Off, GraphMode::Piecewise}, std::pair{GraphPolicy::Required, GraphMode::Piecewise},
        std::pair{GraphPolicy::Required, GraphMode::Whole}}) {
    SCOPED_TRACE(policy == GraphPolicy::Off ? "eager" : graph_mode_name(prefill));
    auto e = open(GetParam(), {.policy = policy, .prefill = prefill, .prefill_sizes = {64, 128}});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const engine::Tower& tower = *(*e)->tower();
    EXPECT_EQ(tower.mode(), policy == GraphPolicy::Off ? GraphMode::Eager : prefill);
    EXPECT_EQ(tower.sizes(), policy == GraphPolicy::Off ? std::vector<int64_t>() : (std::vector<int64_t>{64, 128}));
    const std::vector<float> got = logits_of(**e, golden, std::vector<int64_t>{9, 20, 20, 1});
    EXPECT_EQ(tower.counters().replays > 0, policy != GraphPolicy::Off);
    if (expected.empty()) expected = got;
    EXPECT_TRUE(same_bits(expected, got));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AscendVision,
                         testing::Values("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen2_5_vl:video",
                                         "qwen3_vl:video"),
                         [](const auto& i) {
                           std::string name = i.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST(AscendVisionSizes, ImagesAboveTheLargestCaptureRunEagerlyUnlessGraphsAreRequired) {
  const VisionGolden golden("qwen2_5_vl");
  const engine::SequenceImage image = golden.images()[0];
  ASSERT_GT(image.high * image.wide, 2);
  auto small = open("qwen2_5_vl", {.prefill_sizes = {2}}), usual = open("qwen2_5_vl");
  ASSERT_TRUE(small.is_ok() && usual.is_ok());
  EXPECT_EQ((*small)->tower()->sizes(), std::vector<int64_t>{2});
  EXPECT_EQ((*usual)->tower()->sizes(), (std::vector<int64_t>{64, 128, 256, 384}));
  const auto eager = (*small)->image_rows(*image.input), replayed = (*usual)->image_rows(*image.input);
  ASSERT_TRUE(eager.is_ok() && replayed.is_ok());
  EXPECT_EQ((*eager)->rows, (*replayed)->rows);
  EXPECT_EQ((*small)->tower()->counters().replays, 0u);
  EXPECT_GT((*usual)->tower()->counters().replays, 0u);
  auto required = open("qwen2_5_vl", {.policy = GraphPolicy::Required, .prefill_sizes = {2}});
  ASSERT_TRUE(required.is_ok()) << required.status().message();
  const auto refused = (*required)->image_rows(*image.input);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("is captured for at most 2"), std::string::npos)
      << refused.status().message();
}

// The tower is in floats of 16 bits there: the attention of its text model knows no others.
TEST(AscendVisionTypes, TheTypeOfTheFilesGivesWay) {
  auto e = open("qwen3_vl", {.dtype = DType::F32});
  ASSERT_FALSE(e.is_ok());
  EXPECT_NE(e.status().message().find("allowed: auto, bfloat16, float16"), std::string::npos) << e.status().message();
}

}  // namespace
}  // namespace reprise::ascend_vision_test
