// What the settings `device` and `ascend_runtime` and the environment say about the device together, and what there is
// to say about them. Plain functions on plain values.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/graph_aliases.h"
#include "backends/all.h"
#include "base/json.h"

namespace reprise::api {

using GetVariable = std::function<const char*(const char*)>;  // as std::getenv
using FindDevice = std::function<FoundDevice()>;              // what `auto` means; as found_device()

// Kind and Ascend's settings.
Result<DeviceOptions> device_options(const std::string& device, const std::optional<std::string>& ascend_runtime,
                                     const GetVariable& get, const FindDevice& find = found_device);

// Which device `auto` found, settings of a device that is not in use, and that a simulator computes where one does.
std::vector<Notice> device_notices(const std::string& device, const std::optional<std::string>& ascend_runtime,
                                   const GetVariable& get = ::getenv, const FindDevice& find = found_device);

// The lines of Device::clock_note().
std::vector<std::string> clock_lines(const Device& device);

// What a device says of itself: name, memory, abilities and notes, as `reprise doctor` shows them.
OrderedJson device_json(const Device& device);
// The same as lines "name", "value"; notes have no name.
std::vector<std::pair<std::string, std::string>> device_lines(const Device& device);

}  // namespace reprise::api
