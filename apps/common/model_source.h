// HubFlags, and resolve_model_path(): what the command line calls a model is a path on disk, the default model, or a
// name on a hub; it becomes a path, and what is missing of a model by name is fetched. Any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "hub/hub.h"

namespace CLI {
class App;
}

namespace reprise::apps {

// Of models by name. A plain value.
struct HubFlags {
  std::string revision;      // as "@revision" in the name
  std::string download_dir;  // the hub's cache; "" = by the environment

  void add_to(CLI::App& app);
};

// What --model-path may be, for help and errors.
constexpr const char* kModelPathHelp = "smollm2, a GGUF file, a folder, or a hub's org/name[@revision][:file]";

// Whether it is to be looked for on a hub: it has the form of a name, and there is no file or folder of that spelling.
bool is_model_name(const std::string& path);
// Name and hub as flags and environment say them together.
Result<hub::ModelName> model_name(const std::string& path, const HubFlags& flags);
Result<hub::Hub> open_hub(const HubFlags& flags);

// Fetches with a bar on standard error; Ctrl-C ends it with Cancelled.
Result<hub::FetchedModel> fetch_model(const hub::Hub& hub, const hub::ModelName& name, bool runnable);

// A path on disk stands for itself, "smollm2" for the file that `reprise pull smollm2` stored, and a name for what the
// cache holds, else for what is then fetched. Asked twice in a process, it answers the same.
Result<std::string> resolve_model_path(const std::string& path, const HubFlags& flags);

}  // namespace reprise::apps
