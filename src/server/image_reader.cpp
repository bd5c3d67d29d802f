#include "server/image_reader.h"

#include <algorithm>
#include <iterator>

#include "base/base64.h"
#include "server/call_reader.h"

namespace reprise::server {
namespace {

constexpr std::string_view kData = "data:", kBase64 = ";base64";
constexpr std::string_view kMediaTypes[] = {"image/png", "image/jpeg", "image/webp"};

bool is_read(std::string_view media_type) {
  return std::find(std::begin(kMediaTypes), std::end(kMediaTypes), media_type) != std::end(kMediaTypes);
}

// A data URL of kilobytes does not stand in an error.
std::string cut(std::string_view text) { return std::string(text.substr(0, 60)) + (text.size() > 60 ? "..." : ""); }

}  // namespace

bool ImageReader::wrong(Fields& f, const std::string& at, std::string message) {
  f.fail(at, std::move(message));
  return false;
}

// Before anything is decoded or fetched.
bool ImageReader::may_add(Fields& f, const std::string& at) {
  if (!model_.images)
    return wrong(f, at, model_.images_problem.empty() ? "this model reads no images" : model_.images_problem);
  if (count_++ >= limits_.most_images)
    return wrong(f, at, fmt::format("at most {} images of a request are read (--max-images)", limits_.most_images));
  return true;
}

bool ImageReader::count_rows(Fields& f, int64_t rows, const std::string& at) {
  rows_ += rows;
  if (rows_ < model_.context_length) return true;
  f.take(ApiError{400,
                  fmt::format("{}: the images so far take {} tokens; this model's context is {} tokens", f.name_of(at),
                              rows_, model_.context_length),
                  f.name_of(at), "context_length_exceeded"});
  return false;
}

bool ImageReader::add_file(Fields& f, std::string_view bytes, const std::string& at) {
  auto image = sched::prepare_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                    model_.images->rules, limits_.image);
  if (!image) return wrong(f, at, image.status().message());
  if (!count_rows(f, image->high * image->wide, at)) return false;
  call_.images.push_back(std::move(*image));
  return true;
}

Result<std::string> ImageReader::bytes_of_base64(std::string_view text) const {
  if (static_cast<int64_t>(text.size() / 4 * 3) > limits_.image.bytes + 2)
    return invalid("an image of about {} bytes; allowed: {} bytes{}", text.size() / 4 * 3, limits_.image.bytes,
                   limits_.image.bytes_by);
  auto bytes = base64_bytes(text);
  if (!bytes) return invalid("base64 is expected (A to Z, a to z, 0 to 9, + and /)");
  return std::move(*bytes);
}

bool ImageReader::add_base64(Fields& f, std::string_view text, const std::string& at) {
  if (!may_add(f, at)) return false;
  const auto bytes = bytes_of_base64(text);
  return bytes ? add_file(f, *bytes, at) : wrong(f, at, bytes.status().message());
}

Result<std::string> ImageReader::bytes_of_url(const std::string& url) {
  if (!url.starts_with(kData)) {
    if (!limits_.fetch_image)
      return invalid(
          "a data URL (\"data:image/png;base64,...\") is expected; other URLs are not fetched, unless "
          "--allowed-image-hosts names their hosts");
    constexpr std::chrono::seconds kMostFetching{10};
    if (fetching_ >= kMostFetching)
      return invalid("fetching the images before took more than the {} s that a request has", kMostFetching.count());
    const auto begin = std::chrono::steady_clock::now();
    auto bytes = limits_.fetch_image(url);
    fetching_ += std::chrono::steady_clock::now() - begin;
    return bytes;
  }
  const size_t comma = url.find(',');
  std::string_view type = std::string_view(url).substr(0, comma).substr(kData.size());
  if (comma == std::string::npos || !type.ends_with(kBase64))
    return invalid("\"{}\": a data URL with \";base64,\" is expected", cut(url));
  type = type.substr(0, type.find(';'));
  if (!is_read(type)) return invalid("an image of type \"{}\"; allowed: {}", cut(type), fmt::join(kMediaTypes, ", "));
  return bytes_of_base64(std::string_view(url).substr(comma + 1));
}

bool ImageReader::add_url(Fields& f, const std::string& url, const std::string& at) {
  if (!may_add(f, at)) return false;
  const auto bytes = bytes_of_url(url);
  return bytes ? add_file(f, *bytes, at) : wrong(f, at, bytes.status().message());
}

bool ImageReader::read_times_of(Fields& f, const OrderedJson& object, const std::string& at,
                                sched::VideoFrames& video) {
  for (const char* name : {"fps", "sample_fps"})
    if (const OrderedJson* fps = given(object, name)) {
      if (!fps->is_number()) return wrong(f, at + "." + name, "a number is expected");
      video.fps = fps->get<double>();
      if (const Status good = sched::check_fps(video.fps); !good.is_ok())
        return wrong(f, at + "." + name, good.message());
    }
  const OrderedJson* times = given(object, "timestamps");
  if (!times) return true;
  const std::string name = at + ".timestamps";
  if (!video.seconds.empty()) return wrong(f, name, "the part has them twice; allowed: beside the frames or with them");
  if (!times->is_array() || times->empty()) return wrong(f, name, "a list of seconds is expected");
  for (const OrderedJson& t : *times) {
    if (!t.is_number()) return wrong(f, name, "a list of seconds is expected");
    video.seconds.push_back(t.get<double>());
  }
  const Status good = sched::check_times(video);
  return good.is_ok() || wrong(f, name, good.message());
}

// Beside the frames, or in the object that holds them.
bool ImageReader::read_times(Fields& f, const OrderedJson& part, const std::string& at, sched::VideoFrames& video) {
  if (!fps_.each.empty()) video.fps = fps_.each[std::min(videos_, fps_.each.size() - 1)];
  if (!read_times_of(f, part, at, video)) return false;
  const OrderedJson* inner = given(part, "video_url");
  return !inner || !inner->is_object() || read_times_of(f, *inner, at + ".video_url", video);
}

void ImageReader::check_fps(Fields& f) const {
  if (fps_.each.size() > 1 && fps_.each.size() != videos_)
    f.fail(fps_.at,
           fmt::format("{} numbers for {} videos; allowed: one for all, or as many", fps_.each.size(), videos_));
}

bool ImageReader::add_video(Fields& f, const OrderedJson& part, const std::string& at) {
  if (!may_add(f, at)) return false;
  if (!model_.images->videos) return wrong(f, at, model_.images->videos_problem);
  constexpr std::string_view kFrames = "data:video/jpeg;base64,";
  constexpr const char* kAllowed =
      "videos are read as frames, and no files of videos; allowed: a part \"video\" with a list of images as data "
      "URLs, or \"video_url\" with \"data:video/jpeg;base64,FRAME,FRAME,...\"";
  std::vector<std::string_view> coded;        // in base64
  std::vector<const std::string*> addresses;  // or images as they stand elsewhere
  std::string place = at + ".video";
  if (const OrderedJson* list = given(part, "video")) {
    if (!list->is_array()) return wrong(f, place, kAllowed);
    for (size_t i = 0; i < list->size(); ++i) {
      if (!(*list)[i].is_string()) return wrong(f, fmt::format("{}[{}]", place, i), "a URL of an image is expected");
      addresses.push_back(&(*list)[i].get_ref<const std::string&>());
    }
  } else {
    place = at + ".video_url.url";
    const OrderedJson* object = given(part, "video_url");
    const OrderedJson* url = object && object->is_object() ? given(*object, "url") : nullptr;
    if (!url || !url->is_string()) return wrong(f, at + ".video_url", "an object with a \"url\" is expected");
    std::string_view text = url->get_ref<const std::string&>();
    if (!text.starts_with(kFrames)) return wrong(f, place, kAllowed);
    text.remove_prefix(kFrames.size());
    for (size_t comma; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1))
      coded.push_back(text.substr(0, comma));
    coded.push_back(text);
  }
  sched::VideoFrames video;
  video.count = std::max(coded.size(), addresses.size());
  video.file = [&](size_t i) { return coded.empty() ? bytes_of_url(*addresses[i]) : bytes_of_base64(coded[i]); };
  if (!read_times(f, part, at, video)) return false;
  // The error that count_rows() leaves is the first, and stays.
  const auto may_take = [&](int64_t rows) { return count_rows(f, rows, at) ? Status::ok() : invalid("too long"); };
  auto parts = sched::prepare_video(video, *model_.images->videos,
                                    {limits_.image, limits_.most_frames, limits_.video_pixels, " (--max-video-frames)",
                                     " (--max-video-pixels)", may_take});
  if (!parts) return wrong(f, place, parts.status().message());
  ++videos_;
  std::move(parts->begin(), parts->end(), std::back_inserter(call_.images));
  return true;
}

void ImageReader::read_detail(Fields& f, const OrderedJson& of, const std::string& at) {
  const OrderedJson* detail = given(of, "detail");
  if (detail && *detail != "auto") warn(f, f.name_of(at + ".detail"), "is not honoured", call_, limits_);
}

bool ImageReader::add_openai(Fields& f, const OrderedJson& part, const std::string& at) {
  const OrderedJson* image = given(part, "image_url");
  const OrderedJson* url = image && image->is_object() ? given(*image, "url") : nullptr;
  if (!url || !url->is_string()) return wrong(f, at + ".image_url", "an object with a \"url\" is expected");
  read_detail(f, *image, at + ".image_url");
  return add_url(f, url->get<std::string>(), at + ".image_url.url");
}

bool ImageReader::add_response(Fields& f, const OrderedJson& part, const std::string& at) {
  if (given(part, "file_id")) return wrong(f, at + ".file_id", "files are not kept; image_url takes a data URL");
  const OrderedJson* url = given(part, "image_url");
  if (!url || !url->is_string()) return wrong(f, at + ".image_url", "a string is expected");
  read_detail(f, part, at);
  return add_url(f, url->get<std::string>(), at + ".image_url");
}

bool ImageReader::add_anthropic(Fields& f, const OrderedJson& block, const std::string& at) {
  const OrderedJson* source = given(block, "source");
  const std::string type = source ? text_of_member(*source, "type") : "";
  if (type == "url") {
    if (const std::string url = text_of_member(*source, "url"); !url.empty())
      return add_url(f, url, at + ".source.url");
    return wrong(f, at + ".source.url", "a string is expected");
  }
  if (type != "base64") return wrong(f, at + ".source", "an object with \"type\": \"base64\" or \"url\" is expected");
  const std::string media_type = text_of_member(*source, "media_type");
  if (!is_read(media_type))
    return wrong(f, at + ".source.media_type", fmt::format("one of {} is expected", fmt::join(kMediaTypes, ", ")));
  const OrderedJson* data = given(*source, "data");
  if (!data || !data->is_string()) return wrong(f, at + ".source.data", "a string is expected");
  return add_base64(f, data->get_ref<const std::string&>(), at + ".source.data");
}

}  // namespace reprise::server
