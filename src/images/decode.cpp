#include "images/decode.h"

#include <algorithm>
#include <cstring>

#include "images/formats.h"

namespace reprise::images {
namespace {

bool begins(std::span<const uint8_t> bytes, std::string_view with, size_t at = 0) {
  return bytes.size() >= at + with.size() && std::memcmp(bytes.data() + at, with.data(), with.size()) == 0;
}

// A pixel over white in the arithmetic of Pillow (AlphaComposite.c), whose result is opaque.
uint8_t over_white(uint8_t colour, uint8_t alpha) {
  const uint32_t front = uint32_t{alpha} << 7, back = (255u << 7) - front;
  const uint32_t sum = colour * front + 255u * back + (0x80u << 7);
  return static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
}

void drop_alpha(Decoded& image) {
  if (image.channels == 3) return;
  const size_t pixels = static_cast<size_t>(image.width * image.height);
  const uint8_t* from = image.data.data();
  uint8_t* to = image.data.data();
  for (size_t i = 0; i < pixels; ++i, from += 4, to += 3) {
    const uint8_t alpha = from[3];
    for (int c = 0; c < 3; ++c) to[c] = over_white(from[c], alpha);
  }
  image.data.resize(pixels * 3);
  image.channels = 3;
}

// Where EXIF says that the picture stands otherwise: 2 to 4 keep rows as rows, 5 to 8 make them columns.
Pixels turned(Decoded&& image) {
  const int64_t w = image.width, h = image.height;
  if (image.orientation == 1) return {w, h, std::move(image.data)};
  const bool swapped = image.orientation >= 5;
  Pixels out{swapped ? h : w, swapped ? w : h, std::vector<uint8_t>(image.data.size())};
  const int o = image.orientation;
  const bool from_right = o == 2 || o == 3 || o == 7 || o == 8;   // columns of the file run backwards
  const bool from_bottom = o == 3 || o == 4 || o == 6 || o == 7;  // and its rows
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x) {
      int64_t column = swapped ? y : x, row = swapped ? x : y;
      if (from_right) column = w - 1 - column;
      if (from_bottom) row = h - 1 - row;
      std::memcpy(&out.rgb[static_cast<size_t>((y * out.width + x) * 3)],
                  &image.data[static_cast<size_t>((row * w + column) * 3)], 3);
    }
  return out;
}

uint32_t number(std::span<const uint8_t> at, size_t bytes, bool big) {
  uint32_t n = 0;
  for (size_t i = 0; i < bytes; ++i) n |= uint32_t{at[i]} << (8 * (big ? bytes - 1 - i : i));
  return n;
}

}  // namespace

Status Decoded::set_size(int64_t w, int64_t h, int c, const DecodeLimits& limits) {
  if (w < 1 || h < 1) return invalid("an image of {} x {} pixels; allowed: at least 1 x 1", w, h);
  if (w > limits.pixels / h)
    return invalid("an image of {} x {} pixels; allowed: {} pixels{}", w, h, limits.pixels, limits.pixels_by);
  width = w;
  height = h;
  channels = c;
  data.resize(static_cast<size_t>(w * h * c));
  return Status::ok();
}

int exif_orientation(std::span<const uint8_t> exif) {
  constexpr uint16_t kOrientation = 0x0112, kShort = 3;
  constexpr size_t kHeader = 8, kEntry = 12;
  if (begins(exif, std::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
  const bool big = begins(exif, std::string_view("MM\0*", 4));
  if (!big && !begins(exif, std::string_view("II*\0", 4))) return 1;
  if (exif.size() < kHeader) return 1;
  const size_t directory = number(exif.subspan(4), 4, big);
  if (directory > exif.size() || exif.size() - directory < 2) return 1;
  const size_t count = number(exif.subspan(directory), 2, big);
  const auto entries = exif.subspan(directory + 2);
  for (size_t i = 0; i < count && (i + 1) * kEntry <= entries.size(); ++i) {
    const auto entry = entries.subspan(i * kEntry, kEntry);
    if (number(entry, 2, big) != kOrientation) continue;
    const uint32_t value = number(entry.subspan(8), 2, big);
    return number(entry.subspan(2), 2, big) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

std::string_view image_format(std::span<const uint8_t> bytes) {
  if (begins(bytes, "\x89PNG\r\n\x1a\n")) return "png";
  if (begins(bytes, "\xff\xd8\xff")) return "jpeg";
  if (begins(bytes, "RIFF") && begins(bytes, "WEBP", 8)) return "webp";
  return "";
}

Result<Pixels> decode_image(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
  if (static_cast<int64_t>(bytes.size()) > limits.bytes)
    return invalid("an image of {} bytes; allowed: {} bytes{}", bytes.size(), limits.bytes, limits.bytes_by);
  const std::string_view format = image_format(bytes);
  if (format.empty()) return invalid("this is no image that can be read; allowed: PNG, JPEG, WebP");
  Decoded image;
  const auto read = format == "png" ? read_png : format == "jpeg" ? read_jpeg : read_webp;
  RETURN_IF_ERROR(read(bytes, limits, image));
  drop_alpha(image);
  return turned(std::move(image));
}

}  // namespace reprise::images
