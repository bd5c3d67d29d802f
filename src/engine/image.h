// ImageInput: an image on its way into a sequence: its patches, and what stands for it in the prefix cache. Immutable
// once made; shared by the sequences that show it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
};

}  // namespace reprise::engine
