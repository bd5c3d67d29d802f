// decode_image(): the pixels of a PNG, JPEG or WebP file, from bytes that are not trusted.
//
// What comes out is what transformers makes of the file (image_transforms.convert_to_rgb behind PIL.ImageOps
// .exif_transpose): 8 bits a channel, turned as EXIF says, transparent pixels over white. Sizes are checked before
// anything is decoded. Stateless; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::images {

// Rows of red, green, blue.
struct Pixels {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
};

struct DecodeLimits {
  int64_t bytes = int64_t{32} << 20;               // of the file
  int64_t pixels = 64'000'000;                     // width times height
  std::string_view bytes_by = {}, pixels_by = {};  // behind the number in errors: " (what sets it)"
};

// The format by the first bytes: "png", "jpeg", "webp", or "" of anything else.
std::string_view image_format(std::span<const uint8_t> bytes);

// Errors say what is wrong with the file, and of a limit its name and number.
Result<Pixels> decode_image(std::span<const uint8_t> bytes, const DecodeLimits& limits = {});

}  // namespace reprise::images
