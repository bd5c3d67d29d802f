// ImageInput: an image on its way into a sequence, or a pair of frames of a video: its patches, and what stands for it
// in the prefix cache. Immutable once made and shared by the sequences that show it; any thread may read it. A
// SequenceImage is a plain value of its sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::engine {

struct ImageInput {
  // SHA-256 of the pixels and of how they were made into patches: equal for equal rows of the tower, and no other
  // image of the same digest can be made.
  std::string digest;
  int64_t rows = 0, columns = 0;  // of the grid of patches
  std::vector<float> patches;     // as images::Patches::data
};

struct SequenceImage {
  int64_t first = 0;           // the first of its placeholders
  int64_t high = 0, wide = 0;  // of the merged grid: so many placeholders follow one another
  std::shared_ptr<const ImageInput> input;
  bool video = false;   // frames of a video, which has placeholders of its own
  int64_t part = 0;     // of the video
  double seconds = 0;   // when it stands in the video
  bool joined = false;  // it goes on behind the part before, and lies over that (models::PlacedImage)
  int64_t time = 0;     // likewise

  // What keys and values of its rows depend on besides what stands before it.
  std::string key() const {
    return joined || time > 0 ? fmt::format("{} {}{}", input->digest, joined, time) : input->digest;
  }
};

}  // namespace reprise::engine
