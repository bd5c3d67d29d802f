// HubOptions, and resolve_model_path(): what `model_path` calls a model is a path on disk, the default model, or a
// name on a hub; it becomes a path, and what is missing of a model by name is fetched. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/hub.h"
#include "settings/binding.h"

namespace reprise::api {

// Options of models by name. A plain value.
struct HubOptions {
  std::string revision;      // as "@revision" in the name
  std::string download_dir;  // the hub's cache; "" = by the environment

  std::vector<settings::Binding> bindings();
  bool progress = false;            // a bar on standard error while a model is fetched
  std::function<bool()> stop = {};  // asked while a model is fetched: true ends that with Cancelled
};

// Whether it is to be looked for on a hub: it has the form of a name, and there is no file or folder of that spelling.
bool is_model_name(const std::string& path);
// What clients call the model: a name stays whole, as clients of other servers send it; of a path it is the last part.
std::string short_name(const std::string& path);
// Name and hub as flags and environment say them together.
Result<hub::ModelName> model_name(const std::string& path, const HubOptions& options);
Result<hub::Hub> open_hub(const HubOptions& options);

Result<hub::FetchedModel> fetch_model(const hub::Hub& hub, const hub::ModelName& name, const HubOptions& options);

// A path on disk stands for itself, "smollm2" for the file that `reprise pull smollm2` stored, and a name for what the
// cache holds, else for what is then fetched. Asked twice in a process, it answers the same.
Result<std::string> resolve_model_path(const std::string& path, const HubOptions& options);

}  // namespace reprise::api
