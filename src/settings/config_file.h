// The file of settings of `reprise serve --config FILE`: JSON with comments, {"max-running-requests": 32}. Names are
// those of the flags without dashes in front; "include" lists files that are read first. Pure but for reading; any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::settings {

struct FileValue {
  std::string key;                  // "max_running_requests"
  std::vector<std::string> values;  // one, or the elements of a list
  std::string place;                // the file, for errors

  bool operator==(const FileValue& other) const { return key == other.key && values == other.values; }
};

// Each setting once, in the order of the files; what is read later outranks what was read before. Every value is one
// that its row allows. Errors name file and setting.
Result<std::vector<FileValue>> read_config(const std::string& path);

// The text of one file. What it includes goes to `includes`, as it is written there.
Result<std::vector<FileValue>> parse_config(std::string_view text, const std::string& place,
                                            std::vector<std::string>& includes);

}  // namespace reprise::settings
