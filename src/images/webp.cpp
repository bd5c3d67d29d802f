// WebP through libwebp: still images, lossy or not.
#include <webp/decode.h>

#include <cstring>

#include "images/formats.h"

namespace reprise::images {
namespace {

// The chunk "EXIF" of the RIFF file.
std::span<const uint8_t> exif_chunk(std::span<const uint8_t> bytes) {
  constexpr size_t kHeader = 12, kChunk = 8;
  size_t at = kHeader;
  while (bytes.size() >= kChunk && at <= bytes.size() - kChunk) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i) size |= uint32_t{bytes[at + 4 + i]} << (8 * i);
    const size_t begin = at + kChunk;
    if (size > bytes.size() - begin) return {};
    if (std::memcmp(bytes.data() + at, "EXIF", 4) == 0) return bytes.subspan(begin, size);
    at = begin + size + size % 2;
  }
  return {};
}

}  // namespace

Status read_webp(std::span<const uint8_t> bytes, const DecodeLimits& limits, Decoded& out) {
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK)
    return invalid("a WebP file that cannot be read: its header is broken");
  if (features.has_animation) return invalid("a WebP file with an animation; allowed: still images");
  RETURN_IF_ERROR(out.set_size(features.width, features.height, features.has_alpha ? 4 : 3, limits));
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (!decode(bytes.data(), bytes.size(), out.data.data(), out.data.size(), static_cast<int>(out.width * out.channels)))
    return invalid("a WebP file that cannot be read: its pixels are broken");
  out.orientation = exif_orientation(exif_chunk(bytes));
  return Status::ok();
}

}  // namespace reprise::images
