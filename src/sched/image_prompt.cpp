#include "sched/image_prompt.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sha256.h"

namespace reprise::sched {

namespace {

constexpr std::string_view kVisionStart = "<|vision_start|>", kVisionEnd = "<|vision_end|>";

Status hold_to_tower(const images::PatchRules& rules, const checkpoint::VisionFields& vision, const std::string& file) {
  if (rules.patch == vision.patch && rules.merge == vision.merge && rules.temporal == vision.temporal)
    return Status::ok();
  return invalid("{}: patches of {}, merged by {}, {} frames; the model's vision_config asks for {}, {} and {}", file,
                 rules.patch, rules.merge, rules.temporal, vision.patch, vision.merge, vision.temporal);
}

// The rules that a GGUF file's metadata has, in place of a preprocessor_config.json.
Result<images::PatchRules> rules_of_metadata(Json rules, bool of_videos, const images::PatchRules& missing) {
  if (of_videos) rules.erase("size");  // whose bounds are no matter of videos
  return images::read_patch_rules(rules, "mmproj", missing);
}

Result<images::PatchRules> read_cutting_rules(const std::string& file, const images::PatchRules& missing) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, file));
  return images::read_patch_rules(json, file, missing);
}

std::string pixel_bytes(const images::Pixels& pixels) {
  return {reinterpret_cast<const char*>(pixels.rgb.data()), pixels.rgb.size()};
}

}  // namespace

std::string reads_no_images(const checkpoint::ModelConfigFields& fields) {
  const bool has_towers = fields.family && fields.family->vision && fields.raw().contains("gguf_rope_freqs");
  return fmt::format("{} reads no images{}", fields.architecture,
                     has_towers ? " without the GGUF file of its vision tower (`mmproj`)" : "");
}

Result<images::PatchRules> patch_rules(const std::string& path, const checkpoint::VisionFields& vision,
                                       int64_t max_rows) {
  const bool has_rules = !vision.preprocessor.is_null();
  const std::string file = has_rules ? "mmproj" : path + "/preprocessor_config.json";
  ASSIGN_OR_RETURN(images::PatchRules rules,
                   has_rules ? rules_of_metadata(vision.preprocessor, false, {}) : read_cutting_rules(file, {}));
  RETURN_IF_ERROR(hold_to_tower(rules, vision, file));
  const int64_t side = rules.patch * rules.merge, most = max_rows * side * side;
  if (most < rules.min_pixels)
    return invalid("{}: images of at least {} pixels, and {} fit here (a larger `context_length` takes more)", file,
                   rules.min_pixels, most);
  if (most < rules.max_pixels) log::info("images of more than {} pixels are scaled down: {} rows each", most, max_rows);
  rules.max_pixels = std::min(rules.max_pixels, most);
  return rules;
}

Result<VideoRules> video_rules(const std::string& path, const checkpoint::VisionFields& vision, int64_t max_rows) {
  // transformers' defaults (models/qwen2_vl and qwen3_vl/video_processing_*.py).
  images::PatchRules missing;
  const int64_t side = vision.told_times ? 32 : 28;
  missing.min_pixels = 128 * side * side;
  missing.max_pixels = 768 * side * side;
  if (vision.told_times) {
    missing.patch = 16;
    missing.whole_video = true;
    missing.mean = missing.deviation = {0.5, 0.5, 0.5};
  }
  std::string file = path + "/video_preprocessor_config.json";
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) file = path + "/preprocessor_config.json";
  VideoRules out{{}, max_rows, vision.told_times, vision.positions_per_second};
  const bool has_rules = !vision.preprocessor.is_null();
  ASSIGN_OR_RETURN(out.patches, has_rules ? rules_of_metadata(vision.preprocessor, true, missing)
                                          : read_cutting_rules(file, missing));
  RETURN_IF_ERROR(hold_to_tower(out.patches, vision, file));
  return out;
}

Result<engine::SequenceImage> prepare_image(std::span<const uint8_t> file, const images::PatchRules& rules,
                                            const images::DecodeLimits& limits) {
  ASSIGN_OR_RETURN(const images::Pixels pixels, images::decode_image(file, limits));
  ASSIGN_OR_RETURN(images::Patches patches, images::make_patches(pixels, rules));
  const std::string made_of = fmt::format("{} x {} by {}\n", pixels.width, pixels.height, rules.text());
  engine::ImageInput input{.digest = sha256_hex(made_of + pixel_bytes(pixels)),
                           .rows = patches.rows,
                           .columns = patches.columns,
                           .patches = std::move(patches.data)};
  engine::SequenceImage out;
  out.high = input.rows / rules.merge;
  out.wide = input.columns / rules.merge;
  out.input = std::make_shared<const engine::ImageInput>(std::move(input));
  return out;
}

Status check_fps(double fps) {
  if (fps >= kLeastFps && fps <= kMostFps) return Status::ok();
  return invalid("{} frames a second; allowed: {} to {}", fps, kLeastFps, kMostFps);
}

Status check_times(const VideoFrames& video) {
  RETURN_IF_ERROR(check_fps(video.fps));
  if (video.seconds.empty()) return Status::ok();
  if (video.seconds.size() != video.count)
    return invalid("times of {} frames for a video of {}; allowed: as many", video.seconds.size(), video.count);
  double before = 0;
  for (const double s : video.seconds) {
    if (!(s >= before && s <= kMostSeconds))
      return invalid("a frame at {} s behind one at {} s; allowed: ascending seconds from 0 to {}", s, before,
                     kMostSeconds);
    before = s;
  }
  return Status::ok();
}

namespace {

// The frames of a video, decoded, and resized one by one.
class VideoReader {
 public:
  VideoReader(const VideoFrames& video, const VideoRules& rules, const VideoLimits& limits)
      : video_(video), rules_(rules), limits_(limits) {}

  Result<images::Pixels> frame(size_t i) {
    ASSIGN_OR_RETURN(const std::string file, video_.file(i));
    ASSIGN_OR_RETURN(const images::Pixels pixels,
                     images::decode_image({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, limits_.frame));
    if (i == 0) RETURN_IF_ERROR(set_size({pixels.height, pixels.width}));
    if (pixels.height != given_.height || pixels.width != given_.width)
      return invalid("{} x {} pixels, and the first frame has {} x {}; allowed: one size for all frames", pixels.width,
                     pixels.height, given_.width, given_.height);
    return images::resize_bicubic(pixels, size_);
  }

 private:
  Status set_size(images::ImageSize given) {
    given_ = given;
    const auto count = static_cast<int64_t>(video_.count);
    if (given.height * given.width > limits_.pixels / count)
      return invalid("{} frames of {} x {} pixels; allowed: {} pixels in all frames{}", count, given.width,
                     given.height, limits_.pixels, limits_.pixels_by);
    const images::PatchRules& p = rules_.patches;
    ASSIGN_OR_RETURN(size_, images::smart_resize_video(count, given, p));
    const int64_t block = p.patch * p.merge * p.patch * p.merge;
    if (rows_of_pair() > rules_.max_rows) RETURN_IF_ERROR(shrink(rules_.max_rows * block));
    const int64_t parts = (count + p.temporal - 1) / p.temporal;
    return limits_.may_take ? limits_.may_take(parts * rows_of_pair()) : Status::ok();
  }

  int64_t rows_of_pair() const {
    const int64_t side = rules_.patches.patch * rules_.patches.merge;
    return size_.height * size_.width / (side * side);
  }

  // To at most so many pixels a frame. Bounds of the whole video are tried on the frames rounded to pairs, and shared
  // among those that are there: the smaller number holds for both.
  Status shrink(int64_t most) {
    const auto count = static_cast<int64_t>(video_.count);
    images::PatchRules smaller = rules_.patches;
    smaller.max_pixels =
        smaller.whole_video ? most * std::min(count, images::rounded_frames(count, smaller.temporal)) : most;
    smaller.min_pixels = 1;  // more than the least pixels would be too many
    ASSIGN_OR_RETURN(size_, images::smart_resize_video(count, given_, smaller));
    if (rows_of_pair() <= rules_.max_rows) return Status::ok();
    return invalid("frames of {} x {} pixels take at least {} tokens; allowed: {}", given_.width, given_.height,
                   rows_of_pair(), rules_.max_rows);
  }

  const VideoFrames& video_;
  const VideoRules& rules_;
  const VideoLimits& limits_;
  images::ImageSize given_, size_;
};

// When part k stands: in the middle of its first and last frame, of which the last of a video stands for those that
// are missing.
double middle_of(const VideoFrames& video, int64_t part, int64_t temporal) {
  const auto at = [&](int64_t i) {
    const auto frame = std::min(static_cast<size_t>(i), video.count - 1);
    return video.seconds.empty() ? static_cast<double>(frame) / video.fps : video.seconds[frame];
  };
  return (at(part * temporal) + at(part * temporal + temporal - 1)) / 2;
}

int64_t place_in_time(const VideoFrames& video, int64_t part, const VideoRules& rules) {
  const int64_t temporal = rules.patches.temporal;
  if (!video.seconds.empty())
    return static_cast<int64_t>(
        std::floor((middle_of(video, part, temporal) - middle_of(video, 0, temporal)) * rules.positions_per_second));
  // In fp32, as the product of torch is.
  const double interval = rules.positions_per_second * (static_cast<double>(temporal) / video.fps);
  return static_cast<int64_t>(static_cast<float>(part) * static_cast<float>(interval));
}

}  // namespace

Result<std::vector<engine::SequenceImage>> prepare_video(const VideoFrames& video, const VideoRules& rules,
                                                         const VideoLimits& limits) {
  if (video.count == 0) return invalid("a video without frames; allowed: at least one");
  if (rules.patches.whole_video && static_cast<int64_t>(video.count) < rules.patches.temporal)
    return invalid("a video of {} frames; allowed: at least {}", video.count, rules.patches.temporal);
  if (static_cast<int64_t>(video.count) > limits.frames)
    return invalid("a video of {} frames; allowed: {}{}", video.count, limits.frames, limits.frames_by);
  RETURN_IF_ERROR(check_times(video));
  VideoReader reader(video, rules, limits);
  const auto temporal = static_cast<size_t>(rules.patches.temporal);
  std::vector<engine::SequenceImage> out;
  for (size_t first = 0; first < video.count; first += temporal) {
    std::vector<images::Pixels> frames;
    for (size_t i = first; i < std::min(video.count, first + temporal); ++i) {
      auto frame = reader.frame(i);
      if (!frame) return frame.status().at(fmt::format("frame {}", i));
      frames.push_back(std::move(*frame));
    }
    images::Patches patches = images::cut_patches(frames, rules.patches);
    std::string made_of = fmt::format("frames of {} x {}, {} by {}\n", frames[0].width, frames[0].height, frames.size(),
                                      rules.patches.text());
    for (const images::Pixels& f : frames) made_of += pixel_bytes(f);
    engine::ImageInput input{.digest = sha256_hex(made_of),
                             .rows = patches.rows,
                             .columns = patches.columns,
                             .patches = std::move(patches.data)};
    engine::SequenceImage part;
    part.video = true;
    part.part = static_cast<int64_t>(out.size());
    part.seconds = middle_of(video, part.part, rules.patches.temporal);
    part.joined = !rules.told_times && part.part > 0;
    part.time = rules.told_times ? 0 : place_in_time(video, part.part, rules);
    part.high = input.rows / rules.patches.merge;
    part.wide = input.columns / rules.patches.merge;
    part.input = std::make_shared<const engine::ImageInput>(std::move(input));
    out.push_back(std::move(part));
  }
  return out;
}

std::string tell_times(std::string prompt, std::span<const engine::SequenceImage> images, const std::string& mark,
                       const VideoRules& rules) {
  if (!rules.told_times) return prompt;
  std::string out;
  size_t from = 0, i = 0;
  const std::string framed = std::string(kVisionStart) + mark + std::string(kVisionEnd);
  while (true) {
    while (i < images.size() && !images[i].video) ++i;
    const size_t at = prompt.find(mark, from);
    if (at == std::string::npos || i == images.size()) break;
    const bool whole =
        at >= from + kVisionStart.size() && prompt.compare(at - kVisionStart.size(), framed.size(), framed) == 0;
    out.append(prompt, from, (whole ? at - kVisionStart.size() : at) - from);
    do {
      out += fmt::format("<{:.1f} seconds>{}", images[i++].seconds, framed);
    } while (i < images.size() && images[i].video && images[i].part > 0);
    from = at + mark.size() + (whole ? kVisionEnd.size() : 0);
  }
  return out + prompt.substr(from);
}

namespace {

// Whether it needs a place of its own in a prompt.
bool has_place(const engine::SequenceImage& i, bool video) { return i.video == video && !i.joined; }

Status check_places(const std::vector<int32_t>& tokens, const std::vector<engine::SequenceImage>& images, bool video,
                    int64_t placeholder) {
  const auto places = std::count(tokens.begin(), tokens.end(), placeholder);
  const auto count = std::count_if(images.begin(), images.end(), [&](const auto& i) { return has_place(i, video); });
  if (places == count) return Status::ok();
  const char* what = video ? "parts of videos" : "images";
  return invalid("{} {} for a prompt with {} places for {} (token {}); allowed: as many", count, what, places, what,
                 placeholder);
}

// Text goes on behind a video's last part, so the lengths of several add up.
Status check_lengths(const std::vector<engine::SequenceImage>& images) {
  int64_t taken = 0;
  for (size_t i = 0; i < images.size(); ++i)
    if (i + 1 == images.size() || !images[i + 1].joined) taken += images[i].time;
  if (taken <= kMostTime) return Status::ok();
  return invalid("videos that take {} positions in time; allowed: {} (seconds times `tokens_per_second`)", taken,
                 kMostTime);
}

}  // namespace

Result<ImagePrompt> place_images(const std::vector<int32_t>& tokens, std::vector<engine::SequenceImage> images,
                                 int64_t image_token, int64_t video_token) {
  RETURN_IF_ERROR(check_places(tokens, images, false, image_token));
  RETURN_IF_ERROR(check_places(tokens, images, true, video_token));
  RETURN_IF_ERROR(check_lengths(images));
  ImagePrompt out;
  size_t still = 0, video = 0;  // the next ones
  for (const int32_t token : tokens) {
    if (token != image_token && token != video_token) {
      out.tokens.push_back(token);
      continue;
    }
    size_t& i = token == video_token ? video : still;
    while (!has_place(images[i], token == video_token)) ++i;
    do {
      engine::SequenceImage& image = images[i++];
      image.first = static_cast<int64_t>(out.tokens.size());
      out.tokens.insert(out.tokens.end(), static_cast<size_t>(image.high * image.wide), token);
      out.images.push_back(std::move(image));
    } while (i < images.size() && images[i].joined);
  }
  return out;
}

}  // namespace reprise::sched
