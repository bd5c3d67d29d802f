#include "common/shown_media.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "base/file.h"
#include "common/flags.h"

namespace reprise::apps {
namespace {

// Files of a folder in the order of their names, of which numbers count as such: 2.png stands before 10.png.
Result<std::vector<std::string>> frame_files(const std::vector<std::string>& given) {
  std::error_code ec;
  if (given.size() != 1 || !std::filesystem::is_directory(given[0], ec)) return given;
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(given[0], ec))
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with("."))
      out.push_back(entry.path().string());
  if (ec) return error(Code::NotFound, "--video {}: {}", given[0], ec.message());
  const auto key = [](const std::string& path) {
    const std::string stem = std::filesystem::path(path).stem().string();
    const size_t digits = stem.find_last_not_of("0123456789") + 1;
    const std::string number = stem.substr(std::min(stem.find_first_not_of('0', digits), stem.size()));
    return std::tuple(stem.substr(0, digits), number.size(), number, path);
  };
  std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  if (out.empty()) return invalid("--video {}: no files; allowed: a folder of pictures, or their names", given[0]);
  return out;
}

}  // namespace

void MediaFiles::add_to(CLI::App& app) {
  add_texts(app, "--image", images,
            "PNG, JPEG or WebP for a model that reads images; may be given several times. With --apply-chat-template "
            "in front of the text, else where the prompt has the model's placeholders",
            "FILE");
  add_texts(
      app, "--video", video,
      "a folder with the frames of a video as such files, in the order of their names; or the name of one frame, and "
      "may then be given several times (Qwen3-VL needs two frames); likewise",
      "FOLDER");
  add_real(app, "--fps", fps, {sched::kLeastFps, sched::kMostFps}, "frames of --video a second (default: 2)");
}

OrderedJson MediaFiles::content(const std::string& text) const {
  if (!any()) return text;
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < images.size(); ++i) out.push_back({{"type", "image"}});
  if (!video.empty()) out.push_back({{"type", "video"}});
  out.push_back({{"type", "text"}, {"text", text}});
  return out;
}

Result<ShownMedia> ShownMedia::read(const MediaFiles& files, const engine::Engine& engine) {
  ShownMedia out;
  if (!files.any()) return out;
  const auto& vision = engine.config().vision;
  if (!vision)
    return error(Code::Unsupported, "--{}: {}", files.images.empty() ? "video" : "image",
                 sched::reads_no_images(engine.config()));
  out.image_token_ = vision->image_token;
  out.video_token_ = vision->video_token;
  const std::string& model = engine.options().model_path;
  ASSIGN_OR_RETURN(const images::PatchRules rules, sched::patch_rules(model, *vision, engine.max_image_rows()));
  for (const std::string& file : files.images) {
    ASSIGN_OR_RETURN(const std::string bytes, read_file(file));
    auto image = sched::prepare_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, rules);
    if (!image.is_ok()) return image.status().at(file);
    out.images_.push_back(std::move(*image));
  }
  if (files.video.empty()) return out;
  ASSIGN_OR_RETURN(out.video_rules_, sched::video_rules(model, *vision, engine.max_image_rows()));
  ASSIGN_OR_RETURN(const std::vector<std::string> frames, frame_files(files.video));
  sched::VideoFrames video;
  video.count = frames.size();
  video.fps = files.fps.value_or(2);
  video.file = [&](size_t i) { return read_file(frames[i]); };
  sched::VideoLimits limits;
  limits.may_take = [&](int64_t rows) {
    if (rows < engine.context_length()) return Status::ok();
    return invalid("it takes {} tokens; the context is {} tokens", rows, engine.context_length());
  };
  auto parts = sched::prepare_video(video, out.video_rules_, limits);
  if (!parts) return parts.status().at("--video " + files.video[0]);
  std::move(parts->begin(), parts->end(), std::back_inserter(out.images_));
  return out;
}

Result<std::string> ShownMedia::told(std::string prompt, const text::Tokenizer& tokenizer) const {
  if (std::none_of(images_.begin(), images_.end(), [](const auto& i) { return i.video; })) return prompt;
  const auto mark = tokenizer.id_to_token(static_cast<int32_t>(video_token_));
  if (!mark) return invalid("--video: the tokenizer has no token {}, which stands for videos", video_token_);
  return sched::tell_times(std::move(prompt), images_, std::string(*mark), video_rules_);
}

Status ShownMedia::place(sched::GenerationRequest& request) const {
  if (images_.empty()) return Status::ok();
  ASSIGN_OR_RETURN(sched::ImagePrompt placed, sched::place_images(request.prompt, images_, image_token_, video_token_));
  request.prompt = std::move(placed.tokens);
  request.images = std::move(placed.images);
  return Status::ok();
}

}  // namespace reprise::apps
