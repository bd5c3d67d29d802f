// Calls of tools as Python writes them, NAME(key=value, ...), with literals as far as models write them. Plain
// functions; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/named_call.h"

namespace reprise::server {

// [NAME(...), ...]; nullopt when it is something else.
std::optional<std::vector<NamedCall>> read_python_list(std::string_view text);
// One on each line.
std::optional<std::vector<NamedCall>> read_python_lines(std::string_view text);

// One literal; nullopt when it is something else.
std::optional<OrderedJson> read_python_value(std::string_view text);

}  // namespace reprise::server
