// ShownMedia: the pictures and the video that a command line shows to a model, ready for its tower: for commands that
// ask an engine of their own. Plain values; one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "sched/generator.h"
#include "sched/image_prompt.h"
#include "text/tokenizer.h"

namespace reprise::apps {

struct MediaFiles {
  std::vector<std::string> images;
  std::vector<std::string> video;  // frames of one video, or the folder of them
  std::optional<double> fps;       // 2 where it is not given

  bool any() const { return !images.empty() || !video.empty(); }
  void add_to(CLI::App& app);
  // What a chat template gets as the user's message: the pictures, the video, and the text.
  OrderedJson content(const std::string& text) const;
};

class ShownMedia {
 public:
  static Result<ShownMedia> read(const MediaFiles& files, const engine::Engine& engine);

  // The prompt with the times of frames, where the model has them told in words.
  Result<std::string> told(std::string prompt, const text::Tokenizer& tokenizer) const;
  // In the places that the prompt has for them.
  Status place(sched::GenerationRequest& request) const;

 private:
  std::vector<engine::SequenceImage> images_;
  int64_t image_token_ = -1, video_token_ = -1;
  sched::VideoRules video_rules_;
};

}  // namespace reprise::apps
