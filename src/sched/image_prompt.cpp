#include "sched/image_prompt.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sha256.h"

namespace reprise::sched {

Result<images::PatchRules> patch_rules(const std::string& path, const checkpoint::VisionFields& vision,
                                       int64_t max_rows) {
  const std::string file = path + "/preprocessor_config.json";
  ASSIGN_OR_RETURN(const std::string text, read_file(file));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, file));
  ASSIGN_OR_RETURN(images::PatchRules rules, images::read_patch_rules(json, file));
  if (rules.patch != vision.patch || rules.merge != vision.merge || rules.temporal != vision.temporal)
    return invalid("{}: patches of {}, merged by {}, {} frames; the model's vision_config asks for {}, {} and {}", file,
                   rules.patch, rules.merge, rules.temporal, vision.patch, vision.merge, vision.temporal);
  const int64_t side = rules.patch * rules.merge, most = max_rows * side * side;
  if (most < rules.min_pixels)
    return invalid("{}: images of at least {} pixels, and {} fit here (a larger `context_length` takes more)", file,
                   rules.min_pixels, most);
  if (most < rules.max_pixels) log::info("images of more than {} pixels are scaled down: {} rows each", most, max_rows);
  rules.max_pixels = std::min(rules.max_pixels, most);
  return rules;
}

Result<engine::SequenceImage> prepare_image(std::span<const uint8_t> file, const images::PatchRules& rules,
                                            const images::DecodeLimits& limits) {
  ASSIGN_OR_RETURN(const images::Pixels pixels, images::decode_image(file, limits));
  ASSIGN_OR_RETURN(images::Patches patches, images::make_patches(pixels, rules));
  const std::string made_of = fmt::format("{} x {} by {}\n", pixels.width, pixels.height, rules.text());
  engine::ImageInput input{
      .digest = sha256_hex(made_of + std::string(reinterpret_cast<const char*>(pixels.rgb.data()), pixels.rgb.size())),
      .rows = patches.rows,
      .columns = patches.columns,
      .patches = std::move(patches.data)};
  engine::SequenceImage out;
  out.high = input.rows / rules.merge;
  out.wide = input.columns / rules.merge;
  out.input = std::make_shared<const engine::ImageInput>(std::move(input));
  return out;
}

Result<ImagePrompt> place_images(const std::vector<int32_t>& tokens, std::vector<engine::SequenceImage> images,
                                 int64_t placeholder) {
  const auto places = static_cast<size_t>(std::count(tokens.begin(), tokens.end(), placeholder));
  if (places != images.size())
    return invalid("{} images for a prompt with {} places for images (token {}); allowed: as many", images.size(),
                   places, placeholder);
  ImagePrompt out;
  for (const int32_t token : tokens) {
    if (token != placeholder) {
      out.tokens.push_back(token);
      continue;
    }
    engine::SequenceImage& image = images[out.images.size()];
    image.first = static_cast<int64_t>(out.tokens.size());
    out.tokens.insert(out.tokens.end(), static_cast<size_t>(image.high * image.wide), token);
    out.images.push_back(std::move(image));
  }
  return out;
}

}  // namespace reprise::sched
