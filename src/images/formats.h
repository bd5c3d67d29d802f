// The readers of the three formats, for decode.cpp alone: each checks the sizes in the header, then decodes. Stateless;
// any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "images/decode.h"

namespace reprise::images {

// As a file has it: three channels, or four with alpha behind the colours.
struct Decoded {
  int64_t width = 0, height = 0;
  int channels = 3;
  std::vector<uint8_t> data;
  int orientation = 1;  // EXIF's number, 1 to 8

  Status set_size(int64_t w, int64_t h, int c, const DecodeLimits& limits);
  uint8_t* row(int64_t y) { return data.data() + y * width * channels; }
};

Status read_png(std::span<const uint8_t> bytes, const DecodeLimits& limits, Decoded& out);
Status read_jpeg(std::span<const uint8_t> bytes, const DecodeLimits& limits, Decoded& out);
Status read_webp(std::span<const uint8_t> bytes, const DecodeLimits& limits, Decoded& out);

// The orientation in EXIF data (a TIFF header and what follows, with or without "Exif\0\0" in front); 1 where there is
// none that makes sense.
int exif_orientation(std::span<const uint8_t> exif);

}  // namespace reprise::images
