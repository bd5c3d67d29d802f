// Resizing and patches against the image processors of HF transformers (tools/golden/make_images.py).
#include "images/patches.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace reprise::images {
namespace {

const std::string kImages = std::string(REPRISE_SOURCE_DIR) + "/tests/data/images/";

Json json_of(const std::string& name) {
  const auto text = read_file(kImages + name);
  EXPECT_TRUE(text.is_ok());
  const auto json = parse_json(*text, name);
  EXPECT_TRUE(json.is_ok());
  return *json;
}

TEST(Patches, SizesAreThoseOfSmartResize) {
  int refused = 0;
  for (const Json& c : json_of("smart_resize.json")) {
    PatchRules rules;
    rules.patch = c[2].get<int64_t>() / 2;
    rules.min_pixels = c[3].get<int64_t>();
    rules.max_pixels = c[4].get<int64_t>();
    const auto size = smart_resize({c[0].get<int64_t>(), c[1].get<int64_t>()}, rules);
    refused += c.size() == 5;
    ASSERT_EQ(size.is_ok(), c.size() == 7) << c.dump();
    if (!size.is_ok()) continue;
    EXPECT_EQ(*size, (ImageSize{c[5].get<int64_t>(), c[6].get<int64_t>()})) << c.dump();
  }
  EXPECT_GT(refused, 0);
}

TEST(Patches, ArePillowsToTheLevelAndTorchvisionsToOneMore) {
  const auto rules = read_patch_rules(json_of("preprocessor_config.json"), "rules");
  ASSERT_TRUE(rules.is_ok()) << rules.status().message();
  const auto golden = checkpoint::SafetensorsFile::open(kImages + "golden.safetensors");
  ASSERT_TRUE(golden.is_ok());
  const auto floats = [&](const std::string& name) {
    const auto bytes = golden->bytes(*golden->find(name));
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  };
  for (int i = 0; i < 6; ++i) {
    const auto& t = *golden->find("image." + std::to_string(i));
    const auto bytes = golden->bytes(t);
    const auto patches = make_patches({t.shape[1], t.shape[0], {bytes.begin(), bytes.end()}}, *rules);
    ASSERT_TRUE(patches.is_ok());
    const auto grid = golden->bytes(*golden->find("grid." + std::to_string(i)));
    int32_t expected[3];
    std::memcpy(expected, grid.data(), sizeof expected);
    EXPECT_EQ(patches->rows, expected[1]);
    EXPECT_EQ(patches->columns, expected[2]);
    const float level = 1.0f / (255 * 0.26f);
    for (const auto& [kind, bound] : {std::pair("pil.", 2e-6f), std::pair("torchvision.", 1.5f * level)}) {
      const std::vector<float> want = floats(kind + std::to_string(i));
      ASSERT_EQ(want.size(), patches->data.size());
      float most = 0;
      for (size_t k = 0; k < want.size(); ++k) most = std::max(most, std::fabs(want[k] - patches->data[k]));
      EXPECT_LE(most, bound) << kind << i;
    }
  }
}

// tools/golden/make_video.py.
TEST(VideoPatches, SizesAreThoseOfSmartResize) {
  const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/videos/smart_resize.json");
  ASSERT_TRUE(text.is_ok());
  int refused = 0;
  const auto sizes = parse_json(*text, "sizes");
  ASSERT_TRUE(sizes.is_ok());
  for (const Json& c : *sizes) {
    PatchRules rules;
    rules.whole_video = true;
    rules.patch = c[3].get<int64_t>() / 2;
    rules.min_pixels = c[4].get<int64_t>();
    rules.max_pixels = c[5].get<int64_t>();
    const auto size = smart_resize_video(c[0].get<int64_t>(), {c[1].get<int64_t>(), c[2].get<int64_t>()}, rules);
    refused += c.size() == 6;
    ASSERT_EQ(size.is_ok(), c.size() == 8) << c.dump();
    if (!size.is_ok()) continue;
    EXPECT_EQ(*size, (ImageSize{c[6].get<int64_t>(), c[7].get<int64_t>()})) << c.dump();
  }
  EXPECT_GT(refused, 0);
}

// As transformers raises (video_processing_qwen3_vl.py, smart_resize).
TEST(VideoPatches, TheWholeOfOneFrameIsRefused) {
  PatchRules rules;
  EXPECT_TRUE(smart_resize_video(1, {56, 56}, rules).is_ok());
  rules.whole_video = true;
  EXPECT_TRUE(smart_resize_video(2, {56, 56}, rules).is_ok());
  EXPECT_NE(smart_resize_video(1, {56, 56}, rules).status().message().find("at least 2"), std::string::npos);
}

TEST(VideoPatches, ACapOfPixelsByTheLengthIsRefusedByName) {
  EXPECT_TRUE(read_patch_rules({{"cap_pixels_per_frame", false}}, "rules").is_ok());
  EXPECT_TRUE(read_patch_rules({{"cap_pixels_per_frame", nullptr}}, "rules").is_ok());
  EXPECT_NE(read_patch_rules({{"cap_pixels_per_frame", true}}, "rules").status().message().find("cap_pixels_per_frame"),
            std::string::npos);
}

TEST(VideoPatches, AreThoseOfTheVideoProcessors) {
  const auto golden =
      checkpoint::SafetensorsFile::open(std::string(REPRISE_SOURCE_DIR) + "/tests/data/videos/golden.safetensors");
  ASSERT_TRUE(golden.is_ok());
  for (const std::string name : {"qwen2_5_vl", "qwen3_vl"})
    for (int i = 0; i < 3; ++i) {
      PatchRules rules;
      rules.patch = 4;
      rules.min_pixels = 256;
      rules.max_pixels = 8000;
      rules.mean = rules.deviation = {0.5, 0.5, 0.5};
      rules.whole_video = name == "qwen3_vl";
      const auto& t = *golden->find(fmt::format("frames.{}", i));
      const auto bytes = golden->bytes(t);
      const int64_t count = t.shape[0], frame = t.shape[1] * t.shape[2] * 3;
      const auto size = smart_resize_video(count, {t.shape[1], t.shape[2]}, rules);
      ASSERT_TRUE(size.is_ok());
      std::vector<Pixels> frames;
      for (int64_t k = 0; k < count; ++k)
        frames.push_back(resize_bicubic(
            {t.shape[2], t.shape[1], {bytes.begin() + k * frame, bytes.begin() + (k + 1) * frame}}, *size));
      std::vector<float> got;
      for (size_t k = 0; k < frames.size(); k += 2) {
        const Patches p = cut_patches(std::span(frames).subspan(k, std::min<size_t>(2, frames.size() - k)), rules);
        got.insert(got.end(), p.data.begin(), p.data.end());
      }
      std::vector<float> want(got.size());
      const auto expected = golden->bytes(*golden->find(fmt::format("{}.{}", name, i)));
      ASSERT_EQ(expected.size(), want.size() * sizeof(float)) << name << i;
      std::memcpy(want.data(), expected.data(), expected.size());
      float most = 0;
      for (size_t k = 0; k < want.size(); ++k) most = std::max(most, std::fabs(want[k] - got[k]));
      EXPECT_LE(most, 1.5f * 2 / 255) << name << i;
    }
}

TEST(Patches, RulesThatAreNotComputedAreErrors) {
  EXPECT_FALSE(read_patch_rules(Json{{"resample", 2}}, "file").is_ok());
  EXPECT_FALSE(read_patch_rules(Json{{"do_normalize", false}}, "file").is_ok());
  EXPECT_FALSE(read_patch_rules(Json{{"patch_size", 0}}, "file").is_ok());
  EXPECT_FALSE(read_patch_rules(Json{{"image_std", {0, 1, 1}}}, "file").is_ok());
  const auto names =
      read_patch_rules(Json{{"min_pixels", 3136}, {"max_pixels", 12845056}, {"size", {{"shortest_edge", 1}}}}, "file");
  ASSERT_TRUE(names.is_ok());
  EXPECT_EQ(names->min_pixels, 3136);
  EXPECT_EQ(names->max_pixels, 12845056);
}

}  // namespace
}  // namespace reprise::images
