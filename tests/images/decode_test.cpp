// Decoding against Pillow: files and pixels of tests/data/images, made by tools/golden/make_images.py.
#include "images/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "checkpoint/safetensors.h"

namespace reprise::images {
namespace {

const std::string kFolder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/images/";

std::vector<uint8_t> file_bytes(const std::string& name) {
  const auto text = read_file(kFolder + name);
  EXPECT_TRUE(text.is_ok()) << name;
  return text.is_ok() ? std::vector<uint8_t>(text->begin(), text->end()) : std::vector<uint8_t>();
}

TEST(Decode, EveryKindIsWhatPillowMakesOfIt) {
  const auto golden = checkpoint::SafetensorsFile::open(kFolder + "golden.safetensors");
  ASSERT_TRUE(golden.is_ok());
  int seen = 0;
  for (const auto& t : golden->tensors()) {
    if (!t.name.starts_with("rgb.")) continue;
    const std::string name = t.name.substr(4);
    const auto image = decode_image(file_bytes(name));
    ASSERT_TRUE(image.is_ok()) << name << ": " << image.status().message();
    ASSERT_EQ(t.shape, (std::vector<int64_t>{image->height, image->width, 3})) << name;
    const auto expected = golden->bytes(t);
    int most = 0;
    for (size_t i = 0; i < expected.size(); ++i) most = std::max(most, std::abs(int{expected[i]} - int{image->rgb[i]}));
    EXPECT_EQ(most, 0) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 22);
}

TEST(Decode, SizesAreCheckedBeforePixelsAre) {
  for (const char* name : {"rgb.png", "rgb.jpeg", "rgb.webp"}) {
    const auto bytes = file_bytes(name);
    const auto few = decode_image(bytes, {.pixels = 100});
    EXPECT_NE(few.status().message().find("allowed: 100 pixels"), std::string::npos) << few.status().message();
    const auto small = decode_image(bytes, {.bytes = 64});
    EXPECT_NE(small.status().message().find("allowed: 64 bytes"), std::string::npos) << small.status().message();
    // The header says enough, so a file that has no more fails by its size all the same.
    const auto head = decode_image(std::span(bytes).first(std::min<size_t>(bytes.size(), 700)), {.pixels = 100});
    EXPECT_EQ(head.status().code(), Code::Invalid);
  }
}

TEST(Decode, FilesThatEndEarlyAreErrors) {
  for (const char* name : {"rgb.png", "progressive.jpeg", "rgb.jpeg", "alpha.webp"}) {
    const auto bytes = file_bytes(name);
    for (size_t cut : {size_t{3}, size_t{20}, bytes.size() / 2, bytes.size() - 20}) {
      const auto image = decode_image(std::span(bytes).first(cut));
      EXPECT_FALSE(image.is_ok()) << name << " of " << cut << " bytes";
    }
  }
}

TEST(Decode, OtherFilesAreErrorsThatListWhatIsAllowed) {
  const std::string text = "GIF89a and more";
  const auto image = decode_image({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  EXPECT_NE(image.status().message().find("PNG, JPEG, WebP"), std::string::npos);
}

}  // namespace
}  // namespace reprise::images
