// The rows of the table by group, each written in the file of its group. settings/setting.h keeps what they make.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "settings/setting.h"

namespace reprise::settings {

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
constexpr int64_t kServerMost = int64_t{1} << 40;
constexpr int64_t kLargestChunk = 1 << 20;
constexpr double kEndless = std::numeric_limits<double>::infinity();
// What `model_path` may be, for help and errors.
constexpr const char* kModelPathHelp = "smollm2, a GGUF file, a folder, or a hub's org/name[@revision][:file]";

std::vector<Setting> model_rows();
std::vector<Setting> engine_rows();
std::vector<Setting> graph_rows();
std::vector<Setting> graph_alias_rows();
std::vector<Setting> sampling_rows();
std::vector<Setting> server_rows();
std::vector<Setting> launcher_rows();

}  // namespace reprise::settings
