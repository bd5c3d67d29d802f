// PlacedImage: an image among the tokens of a sequence, or two frames of a video, which the vision tower sees as one:
// where its rows stand, and the rows once the tower has computed them. Positions of images have three parts (M-RoPE):
// time, row and column. Plain values; rows are immutable and shared.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace reprise::models {

// What the tower gave, in the model's dtype: a row for each place of the merged grid, line by line.
struct ImageRows {
  size_t row_bytes = 0;
  std::vector<uint8_t> rows;
  std::vector<std::vector<uint8_t>> deep;  // added behind the first layers (deepstack)

  size_t bytes() const { return rows.size() * (1 + deep.size()); }
};

struct PlacedImage {
  int64_t first = 0;           // token that its first row replaces; the others follow
  int64_t high = 0, wide = 0;  // of the merged grid
  int64_t time = 0;            // of a video: positions since its start
  bool joined = false;         // of the video of the image before, and lies over that
  std::shared_ptr<const ImageRows> rows = nullptr;

  int64_t count() const { return high * wide; }
  int64_t end() const { return first + count(); }
};

// The image that token t is a row of; null: it is text. `images` are in the order of their tokens.
inline const PlacedImage* image_at(std::span<const PlacedImage> images, int64_t t) {
  for (const PlacedImage& i : images)
    if (t >= i.first && t < i.end()) return &i;
  return nullptr;
}

// Text counts on; an image's rows lie on a grid from the position that comes next, and text goes on behind its longer
// side (transformers, Qwen3VLModel.get_rope_index). Frames of a video start at one place, and text goes on behind all
// that they take (transformers 4, Qwen2_5_VLModel.get_rope_index). Their `time` is the product of version 5: version 4
// cuts the seconds of a pair to an integer before it multiplies. Prompts are bounded (sched::kMostTime), so that 32
// bits hold all positions.
inline std::array<int32_t, 3> position_of(std::span<const PlacedImage> images, int64_t t) {
  int64_t shift = 0, start = 0, taken = 0;  // taken: positions of the video so far
  for (const PlacedImage& i : images) {
    if (t < i.first) break;
    if (!i.joined) {
      start = i.first + shift;
      taken = 0;
    }
    const int64_t at = t - i.first;
    if (t < i.end())
      return {static_cast<int32_t>(start + i.time), static_cast<int32_t>(start + at / i.wide),
              static_cast<int32_t>(start + at % i.wide)};
    const int64_t more = std::max({i.high, i.wide, i.time + 1, taken}) - taken;
    taken += more;
    shift += more - i.count();
  }
  const auto p = static_cast<int32_t>(t + shift);
  return {p, p, p};
}

}  // namespace reprise::models
