// MediaFlags: the flags of a command that shows pictures or a video to a model of its own. A plain value.
#pragma once

#include "api/prompt_media.h"

namespace CLI {
class App;
}

namespace reprise::apps {

struct MediaFlags : api::MediaFiles {
  MediaFlags() {
    images_from = "--image";
    video_from = "--video";
  }
  void add_to(CLI::App& app);
};

}  // namespace reprise::apps
