// From files of images to places in a prompt.
#include "sched/image_prompt.h"

#include <gtest/gtest.h>

#include "base/file.h"

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

}  // namespace
}  // namespace reprise::sched::image_prompt_test
