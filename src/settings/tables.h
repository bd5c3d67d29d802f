// The rows of the table by group, each written in the file of its group. settings/setting.h keeps what they make. Plain
// functions without state; the caller owns the rows. Any thread.
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

// Rows by kind; `initial` is the value where nothing is said.
Setting flag(std::string_view key, std::string_view help);
Setting text(std::string_view key, std::string_view value, std::string_view help, std::string_view initial = {});
Setting texts(std::string_view key, std::string_view value, std::string_view help);
Setting words(std::string_view key, std::string_view value, std::string_view help);
Setting choice(std::string_view key, std::vector<std::string> choices, std::string_view help,
               std::string_view initial = {});
Setting integer(std::string_view key, IntegerRange range, std::string_view help, std::string_view initial = {});
Setting real(std::string_view key, RealRange range, std::string_view help, std::string_view initial = {});
// The same with other names of its flag; as one that is an error, for which the help is the reason.
Setting also(std::string_view names, Setting row);
Setting refused(Setting row);
// What a server takes anew at SIGHUP; what is not printed; what the device or the model decides where nothing is said.
Setting live(Setting row);
Setting secret(Setting row);
Setting by_device(Setting row);
Setting by_model(Setting row);

std::vector<Setting> model_rows();
std::vector<Setting> engine_rows();
std::vector<Setting> graph_rows();
std::vector<Setting> graph_alias_rows();
std::vector<Setting> speculation_rows();
std::vector<Setting> sampling_rows();
std::vector<Setting> server_rows();
std::vector<Setting> library_rows();
std::vector<Setting> launcher_rows();

}  // namespace reprise::settings
