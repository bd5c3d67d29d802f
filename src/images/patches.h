// Patches: an image, or a few frames of a video, as a vision tower of the Qwen family reads them: resized, normalised,
// cut into square patches.
//
// The rules are those of transformers (models/qwen2_vl/image_processing_pil_qwen2_vl.py, and video_processing_*.py of
// both families): smart_resize, Pillow's
// bicubic filter in its fixed-point arithmetic, patches in the order of the blocks that the tower merges. Plain values;
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "images/decode.h"

namespace reprise::images {

struct PatchRules {
  int64_t patch = 14, merge = 2, temporal = 2;
  int64_t min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;
  bool whole_video = false;  // of a video: the bounds of pixels are those of all frames together, else of each
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073}, deviation{0.26862954, 0.26130258, 0.27577711};

  int64_t width() const { return 3 * temporal * patch * patch; }  // numbers of a patch
  // What a cached result of these rules depends on.
  std::string text() const;
};

// The rules that preprocessor_config.json has; what it leaves out is as in `missing`, by default transformers' defaults
// for images. `source` is named by errors.
Result<PatchRules> read_patch_rules(const Json& config, std::string_view source, const PatchRules& missing = {});

struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};
// Both sides multiples of patch * merge, the area within the limits; an error for a side 200 times the other.
Result<ImageSize> smart_resize(ImageSize size, const PatchRules& rules);
// The size of each of so many frames; there are at least rules.temporal where the bounds are those of the whole video.
Result<ImageSize> smart_resize_video(int64_t frames, ImageSize size, const PatchRules& rules);
// The frames that it tests bounds of the whole video with: pairs, half of one rounded to an even number of pairs.
int64_t rounded_frames(int64_t frames, int64_t temporal);

// Bicubic with the filter widened where the image shrinks, as Pillow's Image.resize(BICUBIC) to the bit.
Pixels resize_bicubic(const Pixels& image, ImageSize size);

struct Patches {
  int64_t rows = 0, columns = 0;  // of the grid of patches
  int64_t width = 0;              // numbers of a patch
  // A row a patch: channel, frame (of an image the same for each), row, column. Blocks of merge x merge patches follow
  // one another.
  std::vector<float> data;

  int64_t count() const { return rows * columns; }
};
Result<Patches> make_patches(const Pixels& image, const PatchRules& rules);
// The patches of rules.temporal frames that were resized to one size; the last one stands for missing ones.
Patches cut_patches(std::span<const Pixels> frames, const PatchRules& rules);

}  // namespace reprise::images
