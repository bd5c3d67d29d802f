// Completion scripts for shells, made from the commands and flags as they are declared. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace reprise::apps {

// The shells that there are scripts for.
const std::vector<std::string>& completion_shells();
// For a shell of that list.
std::string completion_script(const CLI::App& program, std::string_view shell);

}  // namespace reprise::apps
