// From files of images to places in a prompt.
#include "sched/image_prompt.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace reprise::sched::image_prompt_test {
namespace {

std::vector<uint8_t> picture(const std::string& name) {
  const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/images/" + name);
  EXPECT_TRUE(text.is_ok());
  return {text->begin(), text->end()};
}

images::PatchRules small_rules() {
  images::PatchRules rules;
  rules.patch = 4;
  rules.min_pixels = 64;
  rules.max_pixels = 4096;
  return rules;
}

TEST(ImagePrompt, PlaceholdersGrowToTheRowsOfTheirImages) {
  const auto a = prepare_image(picture("rgb.png"), small_rules());     // 37 x 29: 5 x 4 blocks of 8 pixels
  const auto b = prepare_image(picture("alpha.webp"), small_rules());  // 23 x 31: 3 x 4
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  EXPECT_EQ(a->wide, 5);
  EXPECT_EQ(a->high, 4);
  const auto prompt = place_images({1, 9, 2, 9, 3}, {*a, *b}, 9);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->tokens.size(), 3u + 20 + 12);
  EXPECT_EQ(prompt->images[0].first, 1);
  EXPECT_EQ(prompt->images[1].first, 22);
  EXPECT_EQ(prompt->tokens[21], 2);
  EXPECT_EQ(prompt->tokens[34], 3);
  EXPECT_FALSE(place_images({1, 9, 2}, {*a, *b}, 9).is_ok());
  EXPECT_FALSE(place_images({1, 9, 9}, {*a}, 9).is_ok());
}

TEST(ImagePrompt, DigestsAreOfPixelsAndRules) {
  const auto rules = small_rules();
  auto other = rules;
  other.max_pixels = 1024;
  const auto digest = [](const std::string& name, const images::PatchRules& r) {
    return prepare_image(picture(name), r)->input->digest;
  };
  EXPECT_EQ(digest("alpha.png", rules), digest("alpha.webp", rules)) << "two files of the same pixels";
  EXPECT_NE(digest("alpha.png", rules), digest("rgb.png", rules));
  EXPECT_NE(digest("alpha.png", rules), digest("alpha.png", other));
  EXPECT_EQ(digest("rgb.png", rules).size(), 64u);
}

TEST(ImagePrompt, RulesMustBeThoseOfTheTower) {
  const std::string folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/images";
  checkpoint::VisionFields vision;
  vision.patch = 4;
  vision.merge = vision.temporal = 2;
  const auto rules = patch_rules(folder, vision, 8);
  ASSERT_TRUE(rules.is_ok()) << rules.status().message();
  EXPECT_EQ(rules->max_pixels, 8 * 64);  // the file allows 1920
  vision.patch = 16;
  EXPECT_NE(patch_rules(folder, vision, 8).status().message().find("vision_config"), std::string::npos);
}

// Frames of tests/data/videos/clip, 40 x 24.
VideoFrames clip(size_t count, double fps) {
  VideoFrames out;
  out.count = count;
  out.fps = fps;
  out.file = [](size_t i) { return read_file(fmt::format("{}/tests/data/videos/clip/{}.png", REPRISE_SOURCE_DIR, i)); };
  return out;
}

VideoRules video(bool told_times) {
  VideoRules out{small_rules(), 2048, told_times, 2};
  out.patches.whole_video = told_times;
  out.patches.max_pixels = 8000;
  return out;
}

TEST(VideoPrompt, FramesThatFollowOneAnotherLieOverEachOther) {
  const auto parts = prepare_video(clip(5, 0.5), video(false));
  ASSERT_TRUE(parts.is_ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*parts)[i].joined, i > 0);
    EXPECT_EQ((*parts)[i].time, static_cast<int64_t>(8 * i));  // 2 frames at one in 2 s, 2 positions a second
  }
  const auto still = prepare_image(picture("rgb.png"), small_rules());
  std::vector<engine::SequenceImage> all{*still};
  all.insert(all.end(), parts->begin(), parts->end());
  const auto prompt = place_images({1, 8, 2, 9}, all, 9, 8);  // the video stands in front
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_EQ(prompt->tokens.size(), 2u + 3 * 15 + 20);
  EXPECT_EQ(prompt->images[2].first, 1 + 2 * 15);
  EXPECT_EQ(prompt->images[3].first, 2 + 3 * 15);
  EXPECT_FALSE(prompt->images[3].video);
  EXPECT_NE(place_images({9, 8, 8}, all, 9, 8).status().message().find("1 parts of videos"), std::string::npos);
}

TEST(VideoPrompt, PositionsInTimeAreThoseOfTransformers) {
  const auto text = read_file(fmt::format("{}/tests/data/videos/times.json", REPRISE_SOURCE_DIR));
  ASSERT_TRUE(text.is_ok());
  const auto all = parse_json(*text, "times");
  ASSERT_TRUE(all.is_ok());
  for (const Json& c : *all) {
    VideoRules rules = video(false);
    rules.positions_per_second = c[1].get<double>();
    VideoFrames frames = clip(2 * c[2].size(), c[0].get<double>());
    frames.file = [](size_t) { return read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/videos/clip/0.png"); };
    const auto parts = prepare_video(frames, rules);
    ASSERT_TRUE(parts.is_ok());
    std::vector<int64_t> times;
    for (const auto& p : *parts) times.push_back(p.time);
    EXPECT_EQ(Json(times), c[2]) << c.dump();
  }
}

TEST(VideoPrompt, TimesAreToldBetweenFrames) {
  const VideoRules rules = video(true);
  auto parts = prepare_video(clip(3, 2), rules);
  ASSERT_TRUE(parts.is_ok()) << parts.status().message();
  const std::string pad = "<|vision_start|>V<|vision_end|>";
  EXPECT_EQ(tell_times("a " + pad + " b", *parts, "V", rules), "a <0.2 seconds>" + pad + "<1.0 seconds>" + pad + " b");
  EXPECT_EQ(tell_times("V b", *parts, "V", rules), "<0.2 seconds>" + pad + "<1.0 seconds>" + pad + " b");
  EXPECT_EQ(tell_times("V", *parts, "V", video(false)), "V");
  VideoFrames uneven = clip(4, 2);
  uneven.seconds = {0, 7, 7, 100};
  const auto two = prepare_video(uneven, rules);
  ASSERT_TRUE(two.is_ok());
  parts->insert(parts->end(), two->begin(), two->end());
  EXPECT_EQ(tell_times(pad + pad, *parts, "V", rules),
            "<0.2 seconds>" + pad + "<1.0 seconds>" + pad + "<3.5 seconds>" + pad + "<53.5 seconds>" + pad);
}

TEST(VideoPrompt, DigestsAreOfBothFrames) {
  const auto digests = [](VideoFrames frames) {
    std::vector<std::string> out;
    const auto parts = prepare_video(frames, video(true));
    for (const auto& p : *parts) out.push_back(p.input->digest);
    return out;
  };
  VideoFrames turned = clip(4, 2);
  turned.file = [](size_t i) {
    return read_file(fmt::format("{}/tests/data/videos/clip/{}.png", REPRISE_SOURCE_DIR, i < 2 ? 1 - i : i));
  };
  const auto a = digests(clip(4, 2)), b = digests(turned);
  EXPECT_NE(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_EQ(a, digests(clip(4, 24)));
}

TEST(VideoPrompt, WhatIsBeyondALimitIsNamed) {
  const auto said = [](const VideoFrames& frames, const VideoLimits& limits = {}) {
    return prepare_video(frames, video(true), limits).status().message();
  };
  VideoLimits few;
  few.frames = 4;
  few.frames_by = " (frames)";
  EXPECT_NE(said(clip(5, 2), few).find("5 frames; allowed: 4 (frames)"), std::string::npos);
  VideoLimits small;
  small.pixels = 5 * 40 * 24 - 1;
  EXPECT_NE(said(clip(5, 2), small).find("pixels in all frames"), std::string::npos);
  EXPECT_EQ(said(clip(4, 2), small), "");
  EXPECT_NE(said(clip(5, 0)).find("frames a second"), std::string::npos);
  EXPECT_NE(said(clip(0, 2)).find("without frames"), std::string::npos);
  VideoFrames times = clip(2, 2);
  times.seconds = {1, 0.5};
  EXPECT_NE(said(times).find("ascending"), std::string::npos);
  times.seconds = {1};
  EXPECT_NE(said(times).find("as many"), std::string::npos);
  VideoFrames sizes = clip(2, 2);
  sizes.file = [](size_t i) {
    return read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + (i ? "images/rgb.png" : "videos/clip/0.png"));
  };
  EXPECT_NE(said(sizes).find("one size"), std::string::npos);
  EXPECT_NE(said(clip(1, 2)).find("a video of 1 frames; allowed: at least 2"), std::string::npos);
}

// transformers raises for fewer frames than a pair where it resizes the whole video (Qwen3-VL), and fills a pair else.
TEST(VideoPrompt, OneFrameFillsAPairOfQwen2) {
  const auto parts = prepare_video(clip(1, 2), video(false));
  ASSERT_TRUE(parts.is_ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 1u);
  EXPECT_EQ(parts->front().wide * parts->front().high, 15);
}

TEST(VideoPrompt, WhatTheContextDoesNotHoldIsRefusedByTheFirstFrame) {
  size_t read = 0;
  VideoFrames frames = clip(5, 2);
  frames.file = [&](size_t i) {
    ++read;
    return clip(5, 2).file(i);
  };
  int64_t asked = 0, most = 3 * 15;  // 5 x 3 blocks of 8 pixels for each of 3 pairs
  VideoLimits limits;
  limits.may_take = [&](int64_t rows) {
    asked = rows;
    return rows <= most ? Status::ok() : invalid("{} rows", rows);
  };
  for (const bool told_times : {false, true}) {
    read = 0;
    EXPECT_TRUE(prepare_video(frames, video(told_times), limits).is_ok());
    EXPECT_EQ(asked, most);
    EXPECT_EQ(read, 5u);
  }
  most = 44;
  read = 0;
  EXPECT_NE(prepare_video(frames, video(true), limits).status().message().find("45 rows"), std::string::npos);
  EXPECT_EQ(read, 1u);
}

TEST(VideoPrompt, NoPairHasMoreRowsThanItMay) {
  for (const bool told_times : {false, true})
    for (const size_t count : {2, 3, 5, 7})
      for (int64_t most = 1; most <= 15; ++most) {
        VideoRules rules = video(told_times);
        rules.max_rows = most;
        VideoFrames frames = clip(count, 2);
        frames.file = [](size_t i) { return clip(5, 2).file(i % 5); };
        const auto parts = prepare_video(frames, rules);
        ASSERT_TRUE(parts.is_ok()) << parts.status().message();
        ASSERT_EQ(parts->size(), (count + 1) / 2);
        for (const auto& p : *parts) EXPECT_LE(p.high * p.wide, most) << count << " frames";
        if (most == 15) {
          EXPECT_EQ(parts->front().high * parts->front().wide, 15);
        }
      }
}

TEST(VideoPrompt, PositionsInTimeAreBounded) {
  VideoRules rules = video(false);
  rules.positions_per_second = 25;
  const auto placed = [&](double seconds, size_t videos) {
    VideoFrames frames = clip(4, 2);
    frames.seconds = {0, 0, seconds, seconds};
    std::vector<engine::SequenceImage> all;
    for (size_t i = 0; i < videos; ++i) {
      const auto parts = prepare_video(frames, rules);
      all.insert(all.end(), parts->begin(), parts->end());
    }
    return place_images(std::vector<int32_t>(videos, 8), std::move(all), 9, 8).status().message();
  };
  EXPECT_EQ(placed(600000, 1), "");
  EXPECT_NE(placed(1e6, 1).find("25000000 positions in time; allowed: 16777216"), std::string::npos);
  EXPECT_NE(placed(600000, 2).find("30000000 positions"), std::string::npos);
}

}  // namespace
}  // namespace reprise::sched::image_prompt_test
