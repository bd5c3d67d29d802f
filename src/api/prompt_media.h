// PromptMedia: the pictures and the video of a prompt, read from files and ready for the model's tower; and
// encode_prompt(), which makes a request of a text and them. Plain values; one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/text_model.h"
#include "base/json.h"
#include "engine/engine.h"
#include "sched/generator.h"
#include "sched/image_prompt.h"

namespace reprise::api {

struct MediaFiles {
  std::vector<std::string> images;
  std::vector<std::string> video;            // frames of one video, or the folder of them
  std::optional<double> fps;                 // 2 where it is not given
  std::string_view images_from, video_from;  // what sets them, for errors

  bool any() const { return !images.empty() || !video.empty(); }
  // What a chat template gets as the user's message: the pictures, the video, and the text.
  OrderedJson content(const std::string& text) const;
};

// The frames of a video: the files as given, or those of the one folder in the order of their names, of which numbers
// count as such: 2.png stands before 10.png. `from` begins errors.
Result<std::vector<std::string>> frame_files(const std::vector<std::string>& given, std::string_view from);

class PromptMedia {
 public:
  static Result<PromptMedia> read(const MediaFiles& files, const engine::Engine& engine);

  // The prompt with the times of frames, where the model has them told in words.
  Result<std::string> with_times(std::string prompt, const text::Tokenizer& tokenizer) const;
  // In the places that the prompt has for them.
  Status place(sched::GenerationRequest& request) const;

 private:
  std::vector<engine::SequenceImage> images_;
  int64_t image_token_ = -1, video_token_ = -1;
  std::string_view video_from_;
  sched::VideoRules video_rules_;
};

// How a text becomes a prompt.
struct PromptForm {
  bool chat = false;                       // as the user's message in the chat template; else as it stands
  std::optional<std::string> system = {};  // with `chat`: the message in front of it
};

// The tokens of `text` with the places of `files`, which `media` holds.
Result<std::vector<int32_t>> encode_prompt(const TextModel& model, const std::string& text, const PromptForm& form,
                                           const MediaFiles& files, const PromptMedia& media);

}  // namespace reprise::api
