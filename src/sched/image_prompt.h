// ImagePrompt: a prompt whose placeholders have grown to the rows of images and videos, and those ready for the tower;
// the same for every front door. Plain values; any thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "engine/image.h"
#include "images/patches.h"

namespace reprise::sched {

// What is said of a model without a tower to one who sends an image.
std::string reads_no_images(const checkpoint::ModelConfigFields& fields);

// How the model at `path` (a folder) has its images cut: preprocessor_config.json, held against the tower's fields, or
// of a GGUF file what its tower's metadata say; no image has more than `max_rows` rows, larger ones are scaled down.
Result<images::PatchRules> patch_rules(const std::string& path, const checkpoint::VisionFields& vision,
                                       int64_t max_rows);
// Its videos: video_preprocessor_config.json, or where there is none the rules of images.
struct VideoRules {
  images::PatchRules patches;
  int64_t max_rows = 0;     // of the frames that the tower sees as one
  bool told_times = false;  // as VisionFields
  double positions_per_second = 0;
};
Result<VideoRules> video_rules(const std::string& path, const checkpoint::VisionFields& vision, int64_t max_rows);

// Decoded, resized and cut. `first` is still to be set.
Result<engine::SequenceImage> prepare_image(std::span<const uint8_t> file, const images::PatchRules& rules,
                                            const images::DecodeLimits& limits = {});

// The frames of a video, each a file of an image, all of one size. None is left out.
struct VideoFrames {
  size_t count = 0;
  std::function<Result<std::string>(size_t)> file;
  double fps = 2;                    // as which they were taken out of the video
  std::vector<double> seconds = {};  // or when each stands in it
};
struct VideoLimits {
  images::DecodeLimits frame;
  int64_t frames = 768, pixels = int64_t{1} << 29;
  std::string_view frames_by = {}, pixels_by = {};  // as DecodeLimits::pixels_by
  // Asked before more than the first frame is read: whether the video may take so many rows of the prompt. None: any.
  std::function<Status(int64_t rows)> may_take = {};
};
constexpr double kLeastFps = 0.01, kMostFps = 1000, kMostSeconds = 1e6;
Status check_fps(double fps);
Status check_times(const VideoFrames& video);
// A part for every VisionFields::temporal frames. An error names the frame. Where the bounds of pixels are those of all
// frames (PatchRules::whole_video), fewer than VisionFields::temporal frames are refused, as transformers does.
Result<std::vector<engine::SequenceImage>> prepare_video(const VideoFrames& video, const VideoRules& rules,
                                                         const VideoLimits& limits = {});

// The marks of videos in a prompt are the texts that transformers writes for them (Qwen3VLProcessor): for each part of
// a video when it stands, and a mark of its own. Of a model whose videos have one mark (VideoRules::told_times) as it
// was.
std::string tell_times(std::string prompt, std::span<const engine::SequenceImage> images, const std::string& mark,
                       const VideoRules& rules);

constexpr int64_t kMostTime = int64_t{1} << 24;  // fp32, in which angles are computed, is exact up to here

struct ImagePrompt {
  std::vector<int32_t> tokens;
  std::vector<engine::SequenceImage> images;
};
// Each placeholder among the tokens stands for the next image or video, and is repeated for each of its rows. An error
// where there are not as many of one as of the other, or where the videos take more than kMostTime positions.
Result<ImagePrompt> place_images(const std::vector<int32_t>& tokens, std::vector<engine::SequenceImage> images,
                                 int64_t image_token, int64_t video_token = -1);

}  // namespace reprise::sched
