// What --device, --ascend-runtime and the environment say about the device together, and what there is to say about
// them. Plain functions on plain values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/all.h"
#include "base/json.h"
#include "common/graph_aliases.h"

namespace CLI {
class App;
}

namespace reprise::apps {

// --device and --ascend-runtime.
void add_device_flags(CLI::App& app, std::string& device, std::optional<std::string>& ascend_runtime);

// Kind and Ascend's settings; `get` as in understand_environment().
Result<DeviceOptions> device_options(const std::string& device, const std::optional<std::string>& ascend_runtime,
                                     const std::function<const char*(const char*)>& get);

// Settings of a device that is not in use, and that a simulator computes where one does.
std::vector<Notice> device_notices(const std::string& device, const std::optional<std::string>& ascend_runtime);

// The lines of Device::clock_note().
std::vector<std::string> clock_lines(const Device& device);

// What a device says of itself: name, memory, abilities and notes, as `reprise doctor` shows them.
OrderedJson device_json(const Device& device);
// The same as lines "name", "value"; notes have no name.
std::vector<std::pair<std::string, std::string>> device_lines(const Device& device);

}  // namespace reprise::apps
