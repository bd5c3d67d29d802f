// Any bytes as an image file: decoding answers a Status, and an image that is decoded can be cut into patches.
#include <cstddef>
#include <cstdint>

#include "images/patches.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise::images;
  const auto image = decode_image({data, size}, {.bytes = 1 << 20, .pixels = 1 << 16});
  if (!image.is_ok()) return 0;
  if (image->rgb.size() != static_cast<size_t>(image->width * image->height * 3)) __builtin_trap();
  PatchRules rules;
  rules.max_pixels = 56 * 56 * 4;
  (void)make_patches(*image, rules);
  return 0;
}
