#include "api/prompt_media.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "base/file.h"

namespace reprise::api {

Result<std::vector<std::string>> frame_files(const std::vector<std::string>& given, std::string_view from) {
  std::error_code ec;
  if (given.size() != 1 || !std::filesystem::is_directory(given[0], ec)) return given;
  std::vector<std::string> out;
  for (std::filesystem::directory_iterator it(given[0], ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code gone;
    if (it->is_regular_file(gone) && !it->path().filename().string().starts_with("."))
      out.push_back(it->path().string());
  }
  if (ec) return error(Code::NotFound, "{} {}: {}", from, given[0], ec.message());
  const auto key = [](const std::string& path) {
    const std::string stem = std::filesystem::path(path).stem().string();
    const size_t digits = stem.find_last_not_of("0123456789") + 1;
    const std::string number = stem.substr(std::min(stem.find_first_not_of('0', digits), stem.size()));
    return std::tuple(stem.substr(0, digits), number.size(), number, path);
  };
  std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  if (out.empty()) return invalid("{} {}: no files; allowed: a folder of pictures, or their names", from, given[0]);
  return out;
}

OrderedJson MediaFiles::content(const std::string& text) const {
  if (!any()) return text;
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < images.size(); ++i) out.push_back({{"type", "image"}});
  if (!video.empty()) out.push_back({{"type", "video"}});
  out.push_back({{"type", "text"}, {"text", text}});
  return out;
}

Result<PromptMedia> PromptMedia::read(const MediaFiles& files, const engine::Engine& engine) {
  PromptMedia out;
  if (!files.any()) return out;
  const auto& vision = engine.config().vision;
  if (!vision)
    return error(Code::Unsupported, "{}: {}", files.images.empty() ? files.video_from : files.images_from,
                 sched::reads_no_images(engine.config()));
  out.image_token_ = vision->image_token;
  out.video_token_ = vision->video_token;
  out.video_from_ = files.video_from;
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
  ASSIGN_OR_RETURN(const std::vector<std::string> frames, frame_files(files.video, files.video_from));
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
  if (!parts) return parts.status().at(fmt::format("{} {}", files.video_from, files.video[0]));
  std::move(parts->begin(), parts->end(), std::back_inserter(out.images_));
  return out;
}

Result<std::string> PromptMedia::with_times(std::string prompt, const text::Tokenizer& tokenizer) const {
  if (std::none_of(images_.begin(), images_.end(), [](const auto& i) { return i.video; })) return prompt;
  const auto mark = tokenizer.id_to_token(static_cast<int32_t>(video_token_));
  if (!mark) return invalid("{}: the tokenizer has no token {}, which stands for videos", video_from_, video_token_);
  return sched::tell_times(std::move(prompt), images_, std::string(*mark), video_rules_);
}

Status PromptMedia::place(sched::GenerationRequest& request) const {
  if (images_.empty()) return Status::ok();
  ASSIGN_OR_RETURN(sched::ImagePrompt placed, sched::place_images(request.prompt, images_, image_token_, video_token_));
  request.prompt = std::move(placed.tokens);
  request.images = std::move(placed.images);
  return Status::ok();
}

Result<std::vector<int32_t>> encode_prompt(const TextModel& model, const std::string& text, const PromptForm& form,
                                           const MediaFiles& files, const PromptMedia& media) {
  if (!form.chat) {
    std::string prompt = text;
    if (model.tokenizer()) {
      ASSIGN_OR_RETURN(prompt, media.with_times(std::move(prompt), *model.tokenizer()));
    }
    return model.encode(prompt);
  }
  OrderedJson messages = OrderedJson::array();
  if (form.system) messages.push_back({{"role", "system"}, {"content", *form.system}});
  messages.push_back({{"role", "user"}, {"content", files.content(text)}});
  ASSIGN_OR_RETURN(std::string prompt, model.render_chat(messages));
  ASSIGN_OR_RETURN(prompt, media.with_times(std::move(prompt), *model.tokenizer()));
  return model.encode_rendered(prompt);
}

}  // namespace reprise::api
