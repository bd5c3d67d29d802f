// VisionFields: the vision tower in front of a text model, from vision_config and the positions of the text model
// (mrope_section). Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::checkpoint {

class FieldReader;
struct ModelConfigFields;

struct VisionFields {
  int64_t depth = 0, hidden = 0, intermediate = 0, heads = 0;
  int64_t patch = 0, merge = 0, temporal = 0;
  int64_t out_hidden = 0;                 // of a merged row: the hidden size of the text model
  std::string activation;                 // "silu", "gelu", "gelu_tanh"
  int64_t window = 0;                     // side in patches of the windows that most blocks attend in; 0: none do
  std::vector<int64_t> full_blocks;       // those that attend over the whole image where others have windows
  int64_t side = 0;                       // of the square grid of learned positions; 0: there are none
  std::vector<int64_t> deepstack_blocks;  // whose rows are merged apart for the text model's first layers
  // In the text model, of what turns of a head: how many frequencies turn with time, row and column; in turns, or one
  // group behind the other.
  std::vector<int64_t> sections;
  bool interleaved = false;
  int64_t image_token = 0;  // stands where a row of an image goes
  int64_t video_token = 0;  // and where one of a video does
  // Whether the times of a video's frames are told in words between them; else their position tells, so many a second.
  bool told_times = false;
  double positions_per_second = 0;

  // What a GGUF file has otherwise: attention's projections are three tensors (`apart`), and it says how pictures are
  // cut, in the words of preprocessor_config.json; null: the model's folder says so.
  bool apart = false;
  Json preprocessor;

  int64_t block() const { return merge * merge; }  // patches of a merged row
  int64_t patch_width() const { return 3 * temporal * patch * patch; }
  bool full(int64_t index) const;
  // For each frequency of the text model's `count`: 0 time, 1 row, 2 column.
  std::vector<double> axes(int64_t count) const;
};

struct VisionDefaults {
  int64_t depth = 0, hidden = 0, intermediate = 0, heads = 16, patch = 0;
  int64_t image_token = 151655, video_token = 151656;
  bool windows = false, learned = false, interleaved = false;
  bool deepstack = true;                           // of towers with learned positions
  std::array<int64_t, 3> sections = {16, 24, 24};  // mrope_section
};

// The text model's sizes are read already.
Status read_vision(const FieldReader& in, const VisionDefaults& defaults, ModelConfigFields& out);

}  // namespace reprise::checkpoint
