#include "common/media_flags.h"

#include <CLI/CLI.hpp>

#include "common/flags.h"

namespace reprise::apps {

void MediaFlags::add_to(CLI::App& app) {
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

}  // namespace reprise::apps
