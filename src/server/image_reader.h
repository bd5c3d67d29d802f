// ImageReader: the images and videos of one request, each decoded and cut for the model's vision tower as it is read,
// within the bounds of the server: how many, how many bytes and pixels, and no more rows than the context has.
//
// Bytes come in data URLs and in base64. Other URLs are fetched where the server allows their hosts, and are else
// errors. It belongs to the code that reads the request; one thread, not the HTTP thread where there are others.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"
#include "server/generate_call.h"

namespace reprise::server {

class ImageReader {
 public:
  // Adds to the images of the call, which stand in the order of their parts in the conversation.
  ImageReader(GenerateCall& call, const ServedModel& model, const CallLimits& limits)
      : call_(call), model_(model), limits_(limits) {}

  // A part or block that shows an image, in the words of its API; false after an error, which names `at`.
  bool add_openai(Fields& f, const OrderedJson& part, const std::string& at);  // image_url
  // video_url with a data URL of frames (video/jpeg;base64, with a comma between them), or video with a list of images;
  // "fps" or "timestamps" say when they stand in the video.
  bool add_video(Fields& f, const OrderedJson& part, const std::string& at);
  bool add_response(Fields& f, const OrderedJson& part, const std::string& at);    // input_image
  bool add_anthropic(Fields& f, const OrderedJson& block, const std::string& at);  // image
  bool add_base64(Fields& f, std::string_view text, const std::string& at);

  // What a template gets in the place of an image.
  static OrderedJson part() { return {{"type", "image"}}; }
  static OrderedJson video_part() { return {{"type", "video"}}; }
  // Frames a second for the videos that do not say so themselves: one for all, or one for each in their order; `at` is
  // the field that had them.
  struct RequestFps {
    std::vector<double> each = {};
    std::string at = {};
  };
  void set_fps(RequestFps fps) { fps_ = std::move(fps); }
  // Once all messages are read: whether there are as many of them as videos.
  void check_fps(Fields& f) const;

 private:
  bool wrong(Fields& f, const std::string& at, std::string message);
  bool may_add(Fields& f, const std::string& at);
  bool count_rows(Fields& f, int64_t rows, const std::string& at);
  Result<std::string> bytes_of_base64(std::string_view text) const;
  Result<std::string> bytes_of_url(const std::string& url);
  bool read_times(Fields& f, const OrderedJson& part, const std::string& at, sched::VideoFrames& video);
  bool read_times_of(Fields& f, const OrderedJson& object, const std::string& at, sched::VideoFrames& video);
  bool add_url(Fields& f, const std::string& url, const std::string& at);
  bool add_file(Fields& f, std::string_view bytes, const std::string& at);
  void read_detail(Fields& f, const OrderedJson& of, const std::string& at);

  GenerateCall& call_;
  const ServedModel& model_;
  const CallLimits& limits_;
  int64_t rows_ = 0, count_ = 0;
  size_t videos_ = 0;
  RequestFps fps_;
  std::chrono::steady_clock::duration fetching_{0};  // so far, of the whole request
};

}  // namespace reprise::server
