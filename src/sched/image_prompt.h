// ImagePrompt: a prompt whose placeholders have grown to the rows of images, and those images ready for the tower; the
// same for every front door. Plain values; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/vision.h"
#include "engine/image.h"
#include "images/patches.h"

namespace reprise::sched {

// How the model at `path` (a folder) has its images cut: preprocessor_config.json, held against the tower's fields;
// no image has more than `max_rows` rows, larger ones are scaled down.
Result<images::PatchRules> patch_rules(const std::string& path, const checkpoint::VisionFields& vision,
                                       int64_t max_rows);

// Decoded, resized and cut. `first` is still to be set.
Result<engine::SequenceImage> prepare_image(std::span<const uint8_t> file, const images::PatchRules& rules,
                                            const images::DecodeLimits& limits = {});

struct ImagePrompt {
  std::vector<int32_t> tokens;
  std::vector<engine::SequenceImage> images;
};
// Each `placeholder` among the tokens stands for the next image, and is repeated for each of its rows. An error where
// there are not as many of one as of the other.
Result<ImagePrompt> place_images(const std::vector<int32_t>& tokens, std::vector<engine::SequenceImage> images,
                                 int64_t placeholder);

}  // namespace reprise::sched
