// Images in the prefix cache: a prompt with the same images starts behind them, one with another image in the place of
// the first shares what stands before it and no more, and answers are those without a cache.
#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/tiny_models.h"
#include "support/vision_golden.h"

namespace reprise::sched::image_prefix_test {
namespace {

using testing_support::VisionGolden;

Result<std::unique_ptr<engine::Engine>> open(const std::string& model) {
  ASSIGN_OR_RETURN(Platform platform, make_platform({DeviceKind::Cpu, "auto", 2, false}));
  engine::EngineOptions o;
  o.model_path = testing_support::vision_folder(model);
  o.dtype = DType::F32;
  o.chunked_prefill_size = 16;  // cuts images
  o.max_running_requests = 4;
  o.max_total_tokens = 8 * 128;
  return engine::Engine::create(o, std::move(platform));
}

// The same grid with other patches.
engine::SequenceImage another(const engine::SequenceImage& image) {
  engine::ImageInput input = *image.input;
  input.digest += ", changed";
  for (float& x : input.patches) x = -x;
  engine::SequenceImage out = image;
  out.input = std::make_shared<const engine::ImageInput>(std::move(input));
  return out;
}

struct Outcome {
  Tokens tokens;
  int64_t cached = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome run(Scheduler& scheduler, const VisionGolden& golden, const std::vector<engine::SequenceImage>& images) {
  Asked a = ask(golden.get<int32_t>("tokens"), 6);
  a.request.sampling.ignore_eos = true;
  a.request.images = images;
  EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  while (!scheduler.idle()) scheduler.step();
  EXPECT_TRUE(a.answer->result && a.answer->result->status.is_ok());
  EXPECT_TRUE(scheduler.check_integrity().is_ok());
  return {a.answer->tokens, a.answer->result->cached_tokens};
}

class ImagePrefix : public testing::TestWithParam<std::string> {};

TEST_P(ImagePrefix, IsSharedByImagesAndNotByTheirPlaceholders) {
  const VisionGolden golden(GetParam());
  auto e = open(GetParam());
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto images = golden.images();
  const std::vector<engine::SequenceImage> first_changed{another(images[0]), images[1]},
      second_changed{images[0], another(images[1])};
  const auto size = static_cast<int64_t>(golden.get<int32_t>("tokens").size());

  std::vector<Outcome> alone;
  for (const auto* list : {&images, &first_changed, &second_changed}) {
    SchedulerOptions options;
    options.prefix_cache = false;
    Scheduler scheduler(**e, options);
    alone.push_back(run(scheduler, golden, *list));
  }
  EXPECT_NE(alone[0].tokens, alone[1].tokens);
  EXPECT_NE(alone[0].tokens, alone[2].tokens);

  Scheduler scheduler(**e, SchedulerOptions{});
  EXPECT_EQ(run(scheduler, golden, images), (Outcome{alone[0].tokens, 0}));
  const uint64_t computed = (*e)->tower()->computed();
  EXPECT_EQ(run(scheduler, golden, images), (Outcome{alone[0].tokens, size - 1}));
  const Outcome changed = run(scheduler, golden, first_changed);
  EXPECT_EQ(changed.tokens, alone[1].tokens);
  EXPECT_LE(changed.cached, images[0].first);  // a few tokens may not be worth a copy of their page
  EXPECT_EQ(run(scheduler, golden, second_changed), (Outcome{alone[2].tokens, images[1].first}));
  EXPECT_EQ((*e)->tower()->computed(), computed) << "rows of all four images were kept";
}

TEST_P(ImagePrefix, ImagesOutsideThePromptAreRefused) {
  const VisionGolden golden(GetParam());
  auto e = open(GetParam());
  ASSERT_TRUE(e.is_ok());
  Scheduler scheduler(**e, SchedulerOptions{});
  auto images = golden.images();
  images[1].first = 1000;
  Asked a = ask(golden.get<int32_t>("tokens"), 6);
  a.request.images = images;
  EXPECT_FALSE(scheduler.add(std::move(a.request)).is_ok());
}

INSTANTIATE_TEST_SUITE_P(Models, ImagePrefix,
                         testing::Values("qwen2_5_vl", "qwen3_vl", "qwen2_5_vl:video", "qwen3_vl:video"),
                         [](const auto& i) {
                           std::string name = i.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

// The same frames at other times have other keys and values.
TEST(VideoPrefix, IsNotSharedByOtherTimes) {
  const VisionGolden golden("qwen2_5_vl:video");
  auto e = open("qwen2_5_vl:video");
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto images = golden.images();
  auto slower = images;
  for (size_t i = 1; i < 3; ++i) slower[i].time *= 3;
  SchedulerOptions none;
  none.prefix_cache = false;
  Scheduler alone(**e, none);
  const Outcome want = run(alone, golden, slower);
  Scheduler scheduler(**e, SchedulerOptions{});
  run(scheduler, golden, images);
  const Outcome got = run(scheduler, golden, slower);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_LE(got.cached, images[1].first);
}

// A model with states goes on from one that is kept behind a border of a page (kept_states_test.cpp). That it is one of
// the same images is what its key says.
TEST(ImagePrefixOfStates, IsSharedByImagesAndNotByTheirPlaceholders) {
  const VisionGolden golden("qwen3_5_vl");
  auto e = open("qwen3_5_vl");
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto images = golden.images();
  Tokens prompt = golden.get<int32_t>("tokens");
  for (int32_t i = 0; prompt.size() < 150; ++i) prompt.push_back(3 + (i * 29 + 7) % 130);
  const auto serve = [&](Scheduler& scheduler, const std::vector<engine::SequenceImage>& list) {
    Asked a = ask(prompt, 6);
    a.request.sampling.ignore_eos = true;
    a.request.images = list;
    EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
    while (!scheduler.idle()) scheduler.step();
    EXPECT_TRUE(a.answer->result && a.answer->result->status.is_ok());
    EXPECT_TRUE(scheduler.check_integrity().is_ok());
    return Outcome{a.answer->tokens, a.answer->result->cached_tokens};
  };
  const std::vector<engine::SequenceImage> changed{images[0], another(images[1])};
  SchedulerOptions options;
  options.prefix_cache = false;
  Scheduler alone(**e, options);
  const Outcome one = serve(alone, images), other = serve(alone, changed);
  EXPECT_NE(one.tokens, other.tokens);
  Scheduler scheduler(**e, SchedulerOptions{});
  EXPECT_EQ(serve(scheduler, images), (Outcome{one.tokens, 0}));
  EXPECT_EQ(serve(scheduler, images), (Outcome{one.tokens, 128}));
  EXPECT_EQ(serve(scheduler, changed), (Outcome{other.tokens, 0}));
  EXPECT_EQ(serve(scheduler, changed), (Outcome{other.tokens, 128}));
}

TEST(ImageKeys, AForgottenDigestGetsANewNumber) {
  ImageKeys keys(100, 2);
  EXPECT_EQ(*keys.key("a"), 100);
  EXPECT_EQ(*keys.key("b"), 101);
  EXPECT_EQ(*keys.key("a"), 100);
  EXPECT_EQ(*keys.key("c"), 102);
  EXPECT_EQ(*keys.key("a"), 103);
}

}  // namespace
}  // namespace reprise::sched::image_prefix_test
